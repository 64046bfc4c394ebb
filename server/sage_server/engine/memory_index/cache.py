"""Users' indexes, held under a budget of bytes and kept up to date."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from uuid import UUID

from sage_server.domain.errors import SageError
from sage_server.domain.memories import Memory
from sage_server.engine.memory_index.gate import Gate
from sage_server.engine.memory_index.query import Found, IndexQuery
from sage_server.engine.memory_index.user_index import UserIndex
from sage_server.engine.memory_index.words import Words
from sage_server.engine.pauses import Pauses
from sage_server.ports.memories import MemoryBatch, MemoryStore, Space, Vector

_INLINE_WORK = 4_000_000
"""Work that searches may do on the event loop: about a millisecond. Beyond it, a thread pays."""
_THREADS = 2
_PIECE = 1_000
_PIECE_CHARACTERS = 50_000
"""What is added without a break, about ten milliseconds: so many memories, and no more text."""
_FOLLOWED = 600.0
"""Seconds for which an index that nobody uses is still kept up to date. Later, its next user waits."""
_log = logging.getLogger("sage.memory")
_T = TypeVar("_T")


@dataclass
class Entry:
    """A loaded index."""

    index: UserIndex
    space: Space
    gate: Gate = field(default_factory=Gate)
    partial: bool = False
    """Whether a batch is there in part. Whoever searches waits at the gate for all of it."""
    used_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class CacheSize:
    """What the cache holds."""

    indexes: int
    bytes: int
    loads: int
    evictions: int


class IndexCache:
    """Loads an index once however many callers ask for it, and drops the one that was not used for longest.

    A search goes on with the index it has, also when that is dropped meanwhile.
    """

    def __init__(self, store: MemoryStore, budget: int) -> None:
        self._store = store
        self._budget = budget
        self._words = Words()
        self._entries: OrderedDict[UUID, Entry] = OrderedDict()
        self._sizes: dict[UUID, int] = {}
        self._loading: dict[UUID, asyncio.Task[Entry | None]] = {}
        self._generation = 0
        self._passed = 0
        self._loads = 0
        self._evictions = 0
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sage-search")

    @property
    def size(self) -> CacheSize:
        """How full it is."""
        return CacheSize(len(self._entries), self._total(), self._loads, self._evictions)

    @property
    def generation(self) -> int:
        """Changes when something is forgotten, or written for a user whose index is not there."""
        return self._generation + self._passed

    def peek(self, user_id: UUID) -> Entry | None:
        """The user's index if it is loaded, without using it."""
        return self._entries.get(user_id)

    async def get(self, user_id: UUID, at_least: int = 0) -> Entry | None:
        """The user's index, with all that was written up to a revision at least; None if there is no memory.

        Without `at_least` it may lag behind what other replicas wrote, by a second in ordinary times.
        """
        entry = self._entries.get(user_id) or await self._load(user_id)
        if entry is None:
            return None
        now = time.monotonic()
        if user_id in self._entries:
            self._entries.move_to_end(user_id)
        unfollowed = now - entry.used_at > _FOLLOWED
        entry.used_at = now
        if entry.index.revision < at_least or unfollowed:
            return await self.catch_up(user_id)
        return entry

    async def search(self, entry: Entry, queries: Sequence[IndexQuery]) -> list[Found]:
        """Several searches on one state of the index; large ones leave the event loop."""
        if not entry.partial and _is_short(entry.index, queries):
            return [entry.index.search(query) for query in queries]
        async with entry.gate.reading():
            index = entry.index
            index.settle()
            loop = asyncio.get_running_loop()
            return await _ended(
                loop.run_in_executor(self._pool, lambda: [index.search(query) for query in queries])
            )

    async def catch_up(self, user_id: UUID) -> Entry | None:
        """Bring the user's index up to date, if it is loaded, and answer with it."""
        entry = self._entries.get(user_id)
        if entry is None:
            return await self._load(user_id)
        async with entry.gate.writing():
            useful = await self._bring(user_id, entry)
        if not useful:
            self._drop(user_id)
            return await self._load(user_id)
        self._account(user_id, entry)
        return entry

    async def refresh(self, user_id: UUID) -> None:
        """Bring the user's index up to date, if it is loaded or being loaded."""
        await self._settled(user_id)
        if user_id in self._entries:
            await self._caught_up(user_id)

    async def began(self, user_id: UUID, batch: MemoryBatch, space: Space, generation: int) -> None:
        """The first memories that a user has: their index, without reading them back.

        `generation` is of before the write: nothing comes back that was forgotten since, and nothing is left
        out that was written since.
        """
        if generation != self.generation or user_id in self._entries or user_id in self._loading:
            await self.wrote(user_id, batch, space)
            return
        entry = Entry(UserIndex(self._words, space.dimensions), space)
        self._entries[user_id] = entry
        async with entry.gate.writing():
            await self._apply(entry, batch)
            entry.index.revision = batch.revision
        self._account(user_id, entry)

    async def wrote(self, user_id: UUID, batch: MemoryBatch, space: Space | None = None) -> None:
        """A write of this process, in its own index before it is acknowledged. `space` is of its vectors."""
        revision = batch.revision
        await self._settled(user_id)
        entry = self._entries.get(user_id)
        if entry is None or not revision:
            self._passed += 1
            return
        async with entry.gate.writing():
            if entry.index.revision + 1 == revision and space in (None, entry.space):
                await self._apply(entry, batch)
                entry.index.revision = revision
        if entry.index.revision < revision:
            await self._caught_up(user_id)
        self._account(user_id, entry)

    async def follow(self) -> None:
        """See what other replicas wrote for users whose indexes are in use."""
        recently = time.monotonic() - _FOLLOWED
        followed = [user_id for user_id, entry in self._entries.items() if entry.used_at > recently]
        if not followed:
            return
        for user_id, revision in (await self._store.revisions(followed)).items():
            entry = self._entries.get(user_id)
            if entry is None or entry.index.revision >= revision:
                continue
            await self._caught_up(user_id)

    def forget(self, user_id: UUID) -> None:
        """Drop the user's index, and one that is being loaded."""
        self._generation += 1
        self._loading.pop(user_id, None)
        self._words.forget()
        self._drop(user_id)

    def forget_all(self) -> None:
        """Drop every index."""
        self._generation += 1
        self._loading.clear()
        self._words.forget()
        self._entries.clear()
        self._sizes.clear()

    def close(self) -> None:
        """Give the threads back."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _caught_up(self, user_id: UUID) -> None:
        """Bring an index up to date for a write that is stored, which must not fail for it: an index that
        cannot be brought up to date is dropped, and whoever needs it loads it."""
        try:
            await self.catch_up(user_id)
        except SageError as error:
            self._drop(user_id)
            _log.warning("an index was dropped: %s", error, extra={"user": user_id})

    async def _settled(self, user_id: UUID) -> None:
        """Wait for a load: it may have read before the write that its caller has in hand."""
        loading = self._loading.get(user_id)
        if loading is not None:
            await asyncio.wait([loading])

    async def _load(self, user_id: UUID) -> Entry | None:
        """Load, or wait for whoever loads it already. A caller who goes away does not stop the load."""
        task = self._loading.get(user_id)
        if task is None:
            task = asyncio.create_task(self._read(user_id), name="load-index")
            self._loading[user_id] = task
            task.add_done_callback(lambda done: self._loaded(user_id, done))
        return await asyncio.shield(task)

    def _loaded(self, user_id: UUID, task: asyncio.Task[Entry | None]) -> None:
        if self._loading.get(user_id) is task:
            del self._loading[user_id]
        if not task.cancelled():
            task.exception()  # somebody may wait for it no longer

    async def _read(self, user_id: UUID) -> Entry | None:
        generation = self._generation
        head = await self._store.head(user_id)
        if head.space is None:
            return None
        index = UserIndex(self._words, head.space.dimensions)
        entry = Entry(index, head.space)
        async for batch in self._store.load(user_id, head.space):
            await asyncio.to_thread(index.add, batch.memories, batch.fill, settled=False)
        await asyncio.to_thread(index.settle)
        index.revision = head.revision
        if not await self._bring(user_id, entry):
            return await self._read(user_id)
        self._loads += 1
        # What was read before somebody said "forget" must not come back into the cache.
        if generation == self._generation:
            self._entries[user_id] = entry
            self._account(user_id, entry)
        return entry

    async def _bring(self, user_id: UUID, entry: Entry) -> bool:
        """Apply what was written since; False if the index is of no use any more.

        It is up to date when a look after the changes finds nothing new. The revision comes from such a look
        and not from the changes: a change of the model has no row among them.
        """
        since = entry.index.revision
        while True:
            head = await self._store.head(user_id)
            if head.space != entry.space or head.pruned > since:
                return False
            if head.revision <= entry.index.revision:
                return True
            since = entry.index.revision
            async for batch in self._store.changes(user_id, entry.space, since):
                await self._apply(entry, batch)
            entry.index.revision = head.revision

    async def _apply(self, entry: Entry, batch: MemoryBatch) -> None:
        """In pieces, so that others are served meanwhile. For searches the batch appears at once: it becomes
        whole also when its caller goes away."""
        entry.partial = True
        try:
            await _ended(asyncio.create_task(_applied(entry.index, batch), name="apply-batch"))
        finally:
            entry.partial = False
        if entry.index.sparse:
            entry.index.settle()
            compacting = asyncio.get_running_loop().run_in_executor(None, entry.index.compacted)
            entry.index = await _ended(compacting)

    def _account(self, user_id: UUID, entry: Entry) -> None:
        if self._entries.get(user_id) is not entry:
            return
        self._sizes[user_id] = entry.index.bytes
        total = self._total()
        # The one in use stays, however large it is: dropping it would only mean loading it again.
        while total > self._budget and len(self._entries) > 1:
            oldest = next(iter(self._entries))
            if oldest == user_id:
                self._entries.move_to_end(user_id)
                continue
            total -= self._sizes.get(oldest, 0)  # 0 for one that is only being filled
            self._drop(oldest)
            self._evictions += 1

    def _total(self) -> int:
        return sum(self._sizes.values())

    def _drop(self, user_id: UUID) -> None:
        self._entries.pop(user_id, None)
        self._sizes.pop(user_id, None)


async def _ended(work: asyncio.Future[_T]) -> _T:
    """What a thread gives. Waits for its end also when the caller goes away: until then it reads what the
    next writer would change."""
    gone: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            gone = error
    if gone is not None:
        raise gone
    return work.result()


def _is_short(index: UserIndex, queries: Sequence[IndexQuery]) -> bool:
    """Whether the event loop has the time for all of these searches."""
    work = 0
    for query in queries:
        work += index.work(query)
        if work > _INLINE_WORK:
            return False
    return True


async def _applied(index: UserIndex, batch: MemoryBatch) -> None:
    """Take out and add what the batch says."""
    pauses = Pauses()
    for memory_id in batch.removed:
        index.remove(memory_id)
        await pauses.take()
    for start, piece in _pieces(batch.memories):
        index.add(piece, partial(_filled, batch, start))
        await pauses.take()


def _pieces(memories: Sequence[Memory]) -> Iterator[tuple[int, Sequence[Memory]]]:
    """Some memories after the other, each time with the place of the first."""
    start = characters = 0
    for at, memory in enumerate(memories):
        characters += len(memory.text)
        if at > start and (at - start == _PIECE or characters > _PIECE_CHARACTERS):
            yield start, memories[start:at]
            start, characters = at, len(memory.text)
    if memories:
        yield start, memories[start:]


def _filled(batch: MemoryBatch, start: int, at: int, room: Vector) -> bool:
    return batch.fill(start + at, room)
