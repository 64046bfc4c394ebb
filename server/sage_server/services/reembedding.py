"""Changing the embedding model of memories that are there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.jobs import Job, JobKind
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.ports.embedding import Embedders
from sage_server.ports.jobs import JobQueue
from sage_server.ports.memories import MemoryStore, Space
from sage_server.ports.reembedding import NextVector, ReembeddingStore, Unembedded

_BATCH = 256
_USERS = 200
_FIRST = UUID(int=0)
_SETTLING = timedelta(seconds=1)
"""Somebody writes, or a new key is on its way to every row. That passes, and the job must not die of it."""


class Reembedding:
    """Embeds a user's memories with the current model beside the old vectors, and then switches.

    Until the switch, search answers from the old ones and new memories get old vectors too.
    """

    def __init__(
        self,
        *,
        store: ReembeddingStore,
        memories: MemoryStore,
        writer: MemoryWriter,
        embedders: Embedders,
        queue: JobQueue,
    ) -> None:
        self._store = store
        self._memories = memories
        self._writer = writer
        self._embedders = embedders
        self._queue = queue

    async def plan(self) -> None:
        """Enqueue users whose search uses another model than the settings name, some at a time. Who has been
        enqueued makes room for the next, also if it came to nothing."""
        current = self._embedders.current
        for user_id in await self._store.users_beside(current.model, current.dimensions, _USERS):
            job = Job(JobKind.REEMBED_USER, user_id)
            await self._queue.enqueue(job, dedupe=f"{job.kind.value}:{user_id}")

    async def reembed(self, job: Job) -> None:
        """Bring one user over. May be cut short and repeated: what is embedded stays."""
        user_id = job.user_id
        old = (await self._memories.head(user_id)).space
        if old is None:
            return
        new = self._next(old)
        if new is None:  # an earlier try was cut short after the switch
            await self._clear(user_id, Space(old.model, old.dimensions, 1 - old.slot))
            return
        while await self._embed_all(user_id, new):
            pass
        if not await self._store.switch(user_id, old, new):
            raise SageError(
                Reason.ETAG_MISMATCH,
                "Memories changed while they were embedded again.",
                retry_after=_SETTLING,
            )
        await self._writer.refresh(user_id)
        await self._clear(user_id, old)

    async def _clear(self, user_id: UUID, unused: Space) -> None:
        while await self._store.clear(user_id, unused, _BATCH):
            pass

    def _next(self, old: Space) -> Space | None:
        """Where the user should be; None if they are there."""
        current = self._embedders.current
        if (old.model, old.dimensions) == (current.model, current.dimensions):
            return None
        return Space(current.model, current.dimensions, 1 - old.slot)

    async def _embed_all(self, user_id: UUID, space: Space) -> bool:
        """Go through all memories once. False if nothing could be done: what was written behind the back of
        one round is found by the next."""
        after: UUID | None = _FIRST
        done = 0
        while after is not None:
            page = await self._store.unembedded(user_id, space, _BATCH, after)
            if page.rows:
                vectors = await self._vectors(user_id, space, page.rows)
                done += await self._store.fill(user_id, space, vectors)
            after = page.next
        return done > 0

    async def _vectors(
        self, user_id: UUID, space: Space, waiting: Sequence[Unembedded]
    ) -> Sequence[NextVector]:
        lost = [NextVector(one.id, one.version, None) for one in waiting if one.text is None]
        readable = [(one, one.text) for one in waiting if one.text is not None]
        if not readable:
            return lost
        vectors = await self._writer.embed(user_id, [text for _, text in readable], space)
        assert vectors is not None
        pairs = zip(readable, vectors, strict=True)
        return lost + [NextVector(one.id, one.version, vector) for (one, _), vector in pairs]
