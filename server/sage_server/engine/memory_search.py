"""Searching memories."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sage_server.domain.memories import memory_token_invalid
from sage_server.engine.given_vectors import checked_one
from sage_server.engine.memory_index.cache import Entry, IndexCache
from sage_server.engine.memory_index.query import Found, IndexQuery
from sage_server.engine.usage import EmbeddingMeter, UsageMeter
from sage_server.ports.embedding import Embedders
from sage_server.ports.memories import MemoryStore, Space, Vector


@dataclass(frozen=True)
class Search:
    """A search as a caller gives it."""

    query: IndexQuery
    """With the caller's own vector, as it came, or none."""
    at_least: int = 0
    """See at least this revision."""
    fully_consistent: bool = False


@dataclass(frozen=True)
class SearchAnswer:
    """What was found, and on which state."""

    found: Found
    model: str
    seconds: float


class MemorySearch:
    """Hybrid search in the user's index. A warm one needs no database."""

    def __init__(
        self, store: MemoryStore, indexes: IndexCache, embedders: Embedders, usage: UsageMeter
    ) -> None:
        self._store = store
        self._indexes = indexes
        self._embedders = embedders
        self._usage = usage

    async def search(
        self,
        user_id: UUID,
        searches: Sequence[Search],
        *,
        batch: bool,
        meter: EmbeddingMeter | None = None,
    ) -> list[SearchAnswer]:
        """Every search on one state of the index. In a batch, an error names the search that it is about.

        `meter` is told what the questions' vectors cost, in place of the usual one.
        """
        started = time.perf_counter()
        entry = await self._indexes.get(user_id, await self._needed(user_id, searches))
        if entry is None:
            return await self._nothing(user_id, searches, started, batch=batch)
        queries = [
            await self._query(user_id, entry, search, index if batch else None, meter or self._usage)
            for index, search in enumerate(searches)
        ]
        found = await self._indexes.search(entry, queries)
        seconds = time.perf_counter() - started
        return [SearchAnswer(one, entry.space.model, seconds) for one in found]

    async def _needed(self, user_id: UUID, searches: Sequence[Search]) -> int:
        """The revision that the searches demand. Raises MEMORY_TOKEN_INVALID for one that never was."""
        needed = max(search.at_least for search in searches)
        entry = self._indexes.peek(user_id)
        known = 0 if entry is None else entry.index.revision
        if any(search.fully_consistent for search in searches) or needed > known:
            head = (await self._store.head(user_id)).revision
            if needed > head:
                raise memory_token_invalid()
            needed = head if any(search.fully_consistent for search in searches) else needed
        return needed

    async def _query(
        self, user_id: UUID, entry: Entry, search: Search, index: int | None, meter: EmbeddingMeter
    ) -> IndexQuery:
        query = search.query
        if query.vector is not None:
            return replace(query, vector=checked_one(query.vector, entry.space, index))
        if query.text.strip() and query.vector_weight:
            return replace(query, vector=await self._embedded(user_id, entry, query.text, meter))
        return query

    async def _embedded(self, user_id: UUID, entry: Entry, text: str, meter: EmbeddingMeter) -> Vector | None:
        """The question's vector; None if this server does not have the model, or the model not the words."""
        embedder = self._embedders.of(entry.space.model, entry.space.dimensions)
        if embedder is None:
            return None
        embedded = await embedder.embed_queries([text], entry.index.weight)
        meter.record_embedding(user_id, embedder.model, embedded.tokens)
        vector: Vector = embedded.vectors[0]
        return vector if vector.any() else None

    async def _nothing(
        self, user_id: UUID, searches: Sequence[Search], started: float, *, batch: bool
    ) -> list[SearchAnswer]:
        """There is no memory, but a vector must be right all the same."""
        current = self._embedders.current
        space = Space(current.model, current.dimensions)
        for index, search in enumerate(searches):
            if search.query.vector is not None:
                checked_one(search.query.vector, space, index if batch else None)
        revision = (await self._store.head(user_id)).revision
        seconds = time.perf_counter() - started
        return [SearchAnswer(Found([], 0, revision), space.model, seconds) for _ in searches]
