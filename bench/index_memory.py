"""What an index takes of the machine's memory, against the bytes of its vectors.

python -m bench.index_memory <memories> <dimensions> resident|traced
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.environment import Environment
from bench.memory_work import DIMENSIONS, MEMORIES, MemoryWork
from bench.result import Result, at_most
from sage_server.engine.memory_index.user_index import UserIndex
from sage_server.engine.memory_index.words import Words
from sage_server.ports.memories import Vector

_BATCH = 1_000
_SECONDS = 120.0
_REPEATS = 3
_PAGE = 4096


@dataclass(frozen=True)
class Taken:
    """Bytes of one index."""

    resident: int
    """By which the process grew."""
    traced: int
    """Which Python and numpy asked for."""
    claimed: int
    """Which the index says it takes; the cache's budget is in these."""


async def run(_environment: Environment) -> list[Result]:
    dimensions = max(DIMENSIONS)
    own = MEMORIES * dimensions * 4
    found = {length: [await _in_a_process(length) for _ in range(_REPEATS)] for length in DIMENSIONS}
    ratios = sorted(taken.resident / own for taken in found[dimensions])
    ratio = statistics.median(ratios)
    return [
        Result(
            f"index_memory_{dimensions}_vs_vectors",
            ratio,
            (ratios[0], ratios[-1]),
            at_most(1.5),
            f"{ratio * own / MEMORIES:,.0f} bytes/memory",
            f"{own // MEMORIES:,} bytes/memory",
            [_described(length, taken) for length, taken in found.items()],
        )
    ]


def _described(dimensions: int, found: Sequence[Taken]) -> str:
    taken = sorted(found, key=lambda one: one.resident)[len(found) // 2]
    return (
        f"{MEMORIES:,} x {dimensions}: the process grew by {taken.resident / 1e6:.1f} MB, "
        f"{taken.resident / (MEMORIES * dimensions * 4):.2f} times its vectors; Python and numpy asked for "
        f"{taken.traced / 1e6:.1f} MB; by its own count it takes {taken.claimed / 1e6:.1f} MB"
    )


async def _in_a_process(dimensions: int) -> Taken:
    """A fresh one, twice: what traces allocations takes memory itself."""
    found: dict[str, int] = {}
    for how in ("resident", "traced"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.index_memory", str(MEMORIES), str(dimensions), how),
            cwd=Path(__file__).parent.parent,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
        if process.returncode:
            raise RuntimeError("the index could not be measured")
        found |= json.loads(output)
    return Taken(**found)


def _measure(count: int, dimensions: int, how: str) -> dict[str, int]:
    work, words = MemoryWork(dimensions), Words()
    # One before it, so that what is made once for a process does not count. It stays: the memory of one
    # that is gone would be used again, and not be seen.
    first = UserIndex(words, dimensions)
    _build(first, work, _BATCH)
    gc.collect()
    if how == "traced":
        tracemalloc.start()
    before = _resident()
    index = UserIndex(words, dimensions)
    _build(index, work, count)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] if how == "traced" else _resident() - before
    assert len(first) == _BATCH
    return {how: taken, "claimed": index.bytes}


def _build(index: UserIndex, work: MemoryWork, count: int) -> None:
    random = np.random.default_rng(1)

    def fill(_at: int, room: Vector) -> bool:
        # In place: an array beside the index would leave its mark on the process.
        random.standard_normal(dtype=np.float32, out=room)
        room /= np.linalg.norm(room)
        return True

    for _ in range(0, count, _BATCH):
        index.add(work.memories(_BATCH), fill)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
