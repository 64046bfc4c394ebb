"""MemoryService, what it says about memory and its model: decode, one call, encode."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from sage.v1 import memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_server.domain.identity import Caller
from sage_server.domain.memories import MemorySource
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.services.embedding import Embedding
from sage_server.services.memory_stats import MemoryStatistics, MemoryStats


class MemoryStatsServicer:
    """Statistics and vectors."""

    def __init__(self, statistics: MemoryStatistics, embedding: Embedding, tokens: MemoryTokens) -> None:
        self._statistics = statistics
        self._embedding = embedding
        self._tokens = tokens

    async def embed_text(self, request: pb.EmbedTextRequest, caller: Caller) -> pb.EmbedTextResponse:
        """Texts as vectors."""
        queries = request.purpose == pb.EMBED_PURPOSE_QUERY
        embedded = await self._embedding.embed(caller.user_id, request.texts, queries=queries)
        return pb.EmbedTextResponse(
            embeddings=[memory_pb2.Embedding(values=vector) for vector in embedded.vectors.tolist()],
            model=embedded.model,
            dimensions=embedded.dimensions,
            embedding_tokens=embedded.tokens,
        )

    async def get_memory_stats(
        self, _request: pb.GetMemoryStatsRequest, caller: Caller
    ) -> pb.GetMemoryStatsResponse:
        """Counts, the index, and what is under way."""
        stats = await self._statistics.get(caller.user_id)
        token = await self._tokens.write(caller.user_id, stats.revision)
        return pb.GetMemoryStatsResponse(stats=_to_stats(stats, token))


def _to_stats(stats: MemoryStats, token: str) -> memory_pb2.MemoryStats:
    stored = stats.stored
    by_source = {count.source: count for count in stored.sources}
    lag = Duration()
    lag.FromTimedelta(stored.lag)
    return memory_pb2.MemoryStats(
        sources=[
            memory_pb2.MemorySourceCount(
                source=memory_pb2.MemorySource.ValueType(source),
                count=by_source[source].count if source in by_source else 0,
                pending_count=by_source[source].pending if source in by_source else 0,
            )
            for source in MemorySource
        ],
        memory_count=sum(count.count for count in stored.sources),
        block_count=stored.blocks,
        document_count=stored.documents,
        embedding_model=stats.model,
        dimensions=stats.dimensions,
        index_loaded=stats.index_loaded,
        index_bytes=stats.index_bytes,
        index_count=stats.index_count,
        indexing_lag=lag,
        pending_count=stored.waiting,
        next_embedding_model=stats.next_model,
        reembedding_progress=stats.progress,
        memory_token=token,
    )
