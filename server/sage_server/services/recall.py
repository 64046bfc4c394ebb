"""Indexing messages for recall. Runs as a job, enqueued by whatever stored the messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from sage_server.domain.conversations import ItemFilter
from sage_server.domain.flags import Feature
from sage_server.domain.jobs import Job
from sage_server.domain.memories import Memory
from sage_server.domain.recall import MESSAGES, Place, remembered, remembered_summary
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.pauses import Pauses
from sage_server.ports.clock import Clock
from sage_server.ports.flags import Flags
from sage_server.ports.memories import MemoryStore, NewMemory, Space, Written
from sage_server.ports.transcripts import SummaryStore, TranscriptStore

_AT_ONCE = 1  # callers come first: this work shares their process
_BATCH = 200
_MOST = 1_000  # memories in one transaction: long messages are many


class Recall:
    """Makes messages of every thread findable, an agent's own included. What is private, hidden, deleted or
    kept out of memory is left out."""

    def __init__(
        self,
        *,
        transcripts: TranscriptStore,
        summaries: SummaryStore,
        memories: MemoryStore,
        writer: MemoryWriter,
        clock: Clock,
        flags: Flags,
    ) -> None:
        self._transcripts = transcripts
        self._summaries = summaries
        self._memories = memories
        self._writer = writer
        self._clock = clock
        self._flags = flags
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def index(self, job: Job) -> None:
        """Index the messages between two positions of a conversation. May be done twice. Nothing is indexed
        while that is switched off for the user, also not later."""
        if not await self._flags.is_on(job.user_id, Feature.AUTO_EMBEDDING):
            return
        async with self._turn:
            await self._index(job)

    async def _index(self, job: Job) -> None:
        thread = await self._transcripts.thread(job.user_id, job.subject)
        if thread.private or thread.deleted:
            return
        wanted = ItemFilter(kinds=MESSAGES)
        after: int | None = job.first - 1
        while after is not None and after < job.last:
            size = min(_BATCH, job.last - after)  # what comes after it has a job of its own
            page = await self._transcripts.items(job.user_id, job.subject, wanted, size, after)
            now = self._clock.now()
            items = [item for item in page.rows if item.seq <= job.last]
            memories, pauses = list[Memory](), Pauses()
            for item in items:
                memories += remembered(item, thread.place, now)
                await pauses.take()
            await self._store(job.user_id, job.subject, memories)
            after = page.next
        if job.first == 1:
            await self._restore_summaries(job.user_id, job.subject, thread.place)

    async def _restore_summaries(self, user_id: UUID, conversation_id: UUID, place: Place) -> None:
        """A thread that is indexed from its beginning was undeleted, or is new and has no summary. What is
        there already stays as it is."""
        page = await self._summaries.list(user_id, conversation_id, _BATCH, None)
        chain = list(page.rows)
        while page.next is not None:
            page = await self._summaries.list(user_id, conversation_id, _BATCH, page.next)
            chain += page.rows
        now, before = self._clock.now(), [*chain[1:], None]
        memories = [
            memory
            for one, previous in zip(chain, before, strict=False)
            for memory in remembered_summary(one, previous, place, now)
        ]
        await self._store(user_id, conversation_id, memories)

    async def _store(self, user_id: UUID, conversation_id: UUID, memories: Sequence[Memory]) -> None:
        async def store(new: Sequence[NewMemory], space: Space) -> Written | None:
            return await self._memories.index_items(user_id, conversation_id, new, space)

        for start in range(0, len(memories), _MOST):
            some = memories[start : start + _MOST]
            await self._writer.write(user_id, some, [None] * len(some), store)
