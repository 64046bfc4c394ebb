"""Vectors for callers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sage_server.domain.embeddings import embedding_unavailable
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.usage import UsageMeter
from sage_server.ports.embedding import Embedders, Vectors


@dataclass(frozen=True)
class Texts:
    """Texts as vectors."""

    vectors: Vectors
    model: str
    dimensions: int
    tokens: int


class Embedding:
    """Embeds texts with the model that the user's search uses."""

    def __init__(
        self, embedders: Embedders, writer: MemoryWriter, indexes: IndexCache, usage: UsageMeter
    ) -> None:
        self._embedders = embedders
        self._writer = writer
        self._indexes = indexes
        self._usage = usage

    async def embed(self, user_id: UUID, texts: Sequence[str], *, queries: bool) -> Texts:
        """A vector for each text; queries are weighted by how rare their words are in the user's memory."""
        space = await self._writer.space(user_id)
        embedder = self._embedders.of(space.model, space.dimensions)
        if embedder is None:
            raise embedding_unavailable("unreachable")
        if queries:
            entry = await self._indexes.get(user_id)
            weight = (lambda _word: 1.0) if entry is None else entry.index.weight
            embedded = await embedder.embed_queries(texts, weight)
        else:
            embedded = await embedder.embed(texts)
        self._usage.record_embedding(user_id, embedder.model, embedded.tokens)
        return Texts(embedded.vectors, embedder.model, embedder.dimensions, embedded.tokens)
