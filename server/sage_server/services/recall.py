"""Indexing messages for recall. Runs as a job, enqueued by whatever stored the messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from sage_server.domain.conversations import Item, ItemFilter
from sage_server.domain.jobs import Job
from sage_server.domain.memories import Memory
from sage_server.domain.recall import MESSAGES, remembered
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.ports.clock import Clock
from sage_server.ports.memories import MemoryStore, NewMemory, Space, Written
from sage_server.ports.stores import ItemStore

_AT_ONCE = 1  # callers come first: this work shares their process
_BATCH = 200
_MOST = 1_000  # memories in one transaction: long messages are many


class Recall:
    """Makes messages findable. What is private, hidden or deleted is left out."""

    def __init__(
        self,
        *,
        items: ItemStore,
        memories: MemoryStore,
        writer: MemoryWriter,
        clock: Clock,
        enabled: bool,
    ) -> None:
        self._items = items
        self._memories = memories
        self._writer = writer
        self._clock = clock
        self._enabled = enabled
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def index(self, job: Job) -> None:
        """Index the messages between two positions of a conversation. May be done twice."""
        if not self._enabled:
            return
        async with self._turn:
            await self._index(job)

    async def _index(self, job: Job) -> None:
        wanted = ItemFilter(kinds=MESSAGES)
        after: int | None = job.first - 1
        while after is not None and after < job.last:
            page = await self._items.list(job.user_id, job.subject, wanted, _BATCH, after)
            await self._store(job.user_id, job.subject, [item for item in page.rows if item.seq <= job.last])
            after = page.next

    async def _store(self, user_id: UUID, conversation_id: UUID, items: Sequence[Item]) -> None:
        now = self._clock.now()
        memories: list[Memory] = [memory for item in items for memory in remembered(item, now)]

        async def store(new: Sequence[NewMemory], space: Space) -> Written | None:
            return await self._memories.index_items(user_id, conversation_id, new, space)

        for start in range(0, len(memories), _MOST):
            some = memories[start : start + _MOST]
            await self._writer.write(user_id, some, [None] * len(some), store)
