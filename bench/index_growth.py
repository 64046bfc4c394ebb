"""One insert into an index and one delete from it, with 100,000 memories against 1,000: whether the price of
a change depends on what is there already. Once for memories on their own, once for the messages of one
endless conversation, which know their neighbours. Vectors have 64 dimensions, to keep the large index
small."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from bench.environment import Environment
from bench.memory_work import MemoryWork
from bench.result import Result, at_most
from sage_server.domain.memories import Memory
from sage_server.engine.memory_index.user_index import UserIndex
from sage_server.engine.memory_index.words import Words
from sage_server.ports.memories import Vector

_SIZES = (1_000, 10_000, 100_000)
_KINDS = ("memory", "message")
_DIMENSIONS = 64
_BATCH = 1_000
_CHANGES = 20
"""In a round. A delete follows every insert, so that the size stays what it is."""


@dataclass
class _Growing:
    """An index of one size, and the time of every change to it, in rounds."""

    work: MemoryWork
    kind: str
    index: UserIndex
    conversation_id: UUID = field(default_factory=uuid4)
    ids: list[UUID] = field(default_factory=list)
    said: int = 0
    inserts: list[list[float]] = field(default_factory=list)
    deletes: list[list[float]] = field(default_factory=list)

    def new(self, count: int) -> list[Memory]:
        """Memories that come after those that are there."""
        self.said += count
        if self.kind == "memory":
            return self.work.memories(count)
        return self.work.messages(count, self.conversation_id, self.said - count + 1)

    def grow(self, size: int) -> None:
        """Add memories in large batches, as a load does."""
        for _ in range(0, size, _BATCH):
            memories, vectors = self.new(_BATCH), self.work.vectors(_BATCH)

            def fill(at: int, room: Vector, vectors: Vector = vectors) -> bool:
                room[:] = vectors[at]
                return True

            self.index.add(memories, fill)
            self.ids += [memory.id for memory in memories]
        self.index.settle()

    def round(self, chosen: random.Random) -> None:
        """Inserts and deletes in turn, each with what the next search would have to do first."""
        vector, clock = self.work.vectors(1)[0], time.perf_counter

        def fill(_at: int, room: Vector) -> bool:
            room[:] = vector
            return True

        inserts, deletes = [], []
        for memory in self.new(_CHANGES):
            place = chosen.randrange(len(self.ids))
            started = clock()
            self.index.add([memory], fill)
            self.index.settle()
            between = clock()
            self.index.remove(self.ids[place])
            self.index.settle()
            deletes.append(clock() - between)
            inserts.append(between - started)
            self.ids[place] = memory.id
        self.inserts.append(inserts)
        self.deletes.append(deletes)


async def run(environment: Environment) -> list[Result]:
    results = []
    for kind in _KINDS:
        work, words, chosen = MemoryWork(_DIMENSIONS), Words(), random.Random(1)
        growing = {size: _Growing(work, kind, UserIndex(words, _DIMENSIONS)) for size in _SIZES}
        for size, one in growing.items():
            one.grow(size)
        for number in range(environment.options.rounds + 1):
            for size in _SIZES if number % 2 else _SIZES[::-1]:
                growing[size].round(chosen)
        # The first round warms up.
        inserts = {size: one.inserts[1:] for size, one in growing.items()}
        deletes = {size: one.deletes[1:] for size, one in growing.items()}
        results += [_result(f"{kind}_insert", inserts), _result(f"{kind}_delete", deletes)]
    return results


def _result(change: str, rounds: Mapping[int, Sequence[Sequence[float]]]) -> Result:
    small, large = ([statistics.median(one) for one in rounds[size]] for size in (_SIZES[0], _SIZES[-1]))
    pairs = [a / b for a, b in zip(large, small, strict=True)]
    medians = {size: statistics.median(map(statistics.median, found)) for size, found in rounds.items()}
    means = {size: statistics.fmean(map(statistics.fmean, found)) for size, found in rounds.items()}
    return Result(
        f"index_{change}_100k_vs_1k",
        statistics.median(large) / statistics.median(small),
        (min(pairs), max(pairs)),
        at_most(1.5),
        f"{1e6 * medians[_SIZES[-1]]:.0f} us",
        f"{1e6 * medians[_SIZES[0]]:.0f} us",
        [
            f"at {size:,}: median {1e6 * medians[size]:.0f} us, mean {1e6 * means[size]:.0f} us"
            for size in rounds
        ],
    )
