"""Writing memories: embedded in the space that the user's search uses, and in the index before it is said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import numpy as np

from sage_server.domain.embeddings import embedding_model_mismatch
from sage_server.domain.idempotency import Once
from sage_server.domain.memories import Memory
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.engine.usage import EmbeddingMeter, UsageMeter
from sage_server.ports.embedding import Embedders
from sage_server.ports.memories import MemoryBatch, MemoryStore, NewMemory, Removed, Space, Vector, Written

_FIRST = 1  # the revision of a user's first write
Store: TypeAlias = Callable[[Sequence[NewMemory], Space], Awaitable[Written | None]]
"""Stores embedded memories; None if the space is no longer the user's."""


class MemoryWriter:
    """What every service that writes memories uses."""

    def __init__(
        self, store: MemoryStore, indexes: IndexCache, embedders: Embedders, usage: UsageMeter
    ) -> None:
        self._store = store
        self._indexes = indexes
        self._embedders = embedders
        self._usage = usage

    async def space(self, user_id: UUID) -> Space:
        """Where the user's vectors lie now; a user without memories starts with the current model."""
        entry = self._indexes.peek(user_id)
        if entry is not None:
            return entry.space
        head = await self._store.head(user_id)
        current = self._embedders.current
        return head.space or Space(current.model, current.dimensions)

    def model_of(self, space: Space) -> str:
        """The model that new memories of the space get; empty if they must wait for one."""
        return space.model if self._embedders.of(space.model, space.dimensions) is not None else ""

    async def embed(
        self, user_id: UUID, texts: Sequence[str], space: Space, meter: EmbeddingMeter | None = None
    ) -> list[Vector | None] | None:
        """A vector for each text, None for one with nothing in it that the model knows.

        None at all if this server does not have the model of the space. `meter` is told what it cost, in
        place of the usual one.
        """
        embedder = self._embedders.of(space.model, space.dimensions)
        if embedder is None:
            return None
        embedded = await embedder.embed(texts)
        (meter or self._usage).record_embedding(user_id, embedder.model, embedded.tokens)
        present: list[bool] = np.any(embedded.vectors, axis=1).tolist()
        return [vector if there else None for vector, there in zip(embedded.vectors, present, strict=True)]

    async def insert(
        self,
        user_id: UUID,
        memories: Sequence[Memory],
        vectors: Sequence[Vector | None],
        *,
        once: Once | None,
        now: datetime,
        checked_for: Space | None = None,
    ) -> Written:
        """Store memories; those that bring no vector are embedded. `vectors` were checked for a space, and
        are refused in another."""

        async def store(new: Sequence[NewMemory], space: Space) -> Written | None:
            return await self._store.insert(user_id, new, space, once, now)

        return await self.write(user_id, memories, vectors, store, checked_for)

    async def write(
        self,
        user_id: UUID,
        memories: Sequence[Memory],
        vectors: Sequence[Vector | None],
        store: Store,
        checked_for: Space | None = None,
    ) -> Written:
        """Embed what has no vector, store, and index what was stored."""
        generation = self._indexes.generation
        while True:
            space = await self.space(user_id)
            if checked_for is not None and space != checked_for:
                raise embedding_model_mismatch(space.model)
            new = await self._embedded(user_id, memories, vectors, space)
            written = await store(new, space)
            if written is not None:
                break
            await self.refresh(user_id)
        if not written.repeated:
            stored = set(written.ids)
            batch = _batch(written.revision, [one for one in new if one.memory.id in stored])
            if written.revision == _FIRST:
                await self._indexes.began(user_id, batch, space, generation)
            else:
                await self._indexes.wrote(user_id, batch, space)
        return written

    async def index(self, user_id: UUID, revision: int, new: Sequence[NewMemory], space: Space) -> None:
        """Put what was just stored into this process's index."""
        await self._indexes.wrote(user_id, _batch(revision, new), space)

    async def removed(self, user_id: UUID, gone: Removed) -> None:
        """Take what was just removed out of this process's index."""
        await self._indexes.wrote(user_id, MemoryBatch((), _nothing, gone.ids, gone.revision))

    async def _embedded(
        self, user_id: UUID, memories: Sequence[Memory], vectors: Sequence[Vector | None], space: Space
    ) -> list[NewMemory]:
        missing = [at for at, vector in enumerate(vectors) if vector is None]
        made = await self.embed(user_id, [memories[at].text for at in missing], space) if missing else []
        found = list(vectors)
        pending = set(missing) if made is None else set()
        for at, vector in zip(missing, made or (), strict=False):
            found[at] = vector
        return [
            NewMemory(memory._replace(embedding_model="" if at in pending else space.model), found[at])
            for at, memory in enumerate(memories)
        ]

    async def refresh(self, user_id: UUID) -> Space:
        """Bring this process's index up to date, if it has one; answers with the space of now."""
        await self._indexes.refresh(user_id)
        return await self.space(user_id)


def _batch(revision: int, new: Sequence[NewMemory]) -> MemoryBatch:
    def fill(at: int, room: Vector) -> bool:
        vector = new[at].vector
        if vector is None:
            return False
        room[:] = vector
        return True

    return MemoryBatch([one.memory for one in new], fill, (), revision)


def _nothing(_at: int, _room: Vector) -> bool:
    return False
