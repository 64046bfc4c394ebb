"""Memories."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sage.v1 import memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client._wire.enums import source_from, source_to, tag_match_to, trust_from, trust_to
from sage_client._wire.times import time_from, time_to
from sage_client._wire.values import texts_to, time_range_to, vector_to
from sage_client.models.memory import (
    Embeddings,
    Memory,
    MemoryFilter,
    MemorySourceCount,
    MemoryStats,
    MemoryTrust,
    NewMemory,
    Provenance,
    Vector,
)
from sage_client.unset import Unset

_NOWHERE = Provenance()


def memory_from(message: memory_pb2.Memory) -> Memory:
    """A memory. Searches read many: the fields go by position."""
    return Memory(
        message.id,
        message.text,
        source_from(message.source),
        tuple(message.tags),
        dict(message.metadata),
        message.agent_id,
        _provenance_from(message.provenance) if message.HasField("provenance") else _NOWHERE,
        trust_from(message.trust),
        message.embedding_model,
        time_from(message.create_time),
        time_from(message.update_time),
        message.etag,
    )


def new_memory_to(memory: NewMemory, *, request_id: str = "") -> pb.InsertMemoryRequest:
    """A memory to insert."""
    return pb.InsertMemoryRequest(
        text=memory.text,
        tags=texts_to(memory.tags),
        metadata=memory.metadata,
        agent=memory.agent,
        create_time=time_to(memory.create_time),
        trust=trust_to(memory.trust),
        embedding=vector_to(memory.embedding),
        embedding_model=memory.embedding_model,
        request_id=request_id,
    )


def filter_to(wanted: MemoryFilter) -> pb.MemoryFilter:
    """Which memories."""
    return pb.MemoryFilter(
        sources=[source_to(source) for source in wanted.sources],
        tags=texts_to(wanted.tags),
        tag_match=tag_match_to(wanted.match),
        agent=wanted.agent,
        conversation_id=wanted.conversation_id,
        document_id=wanted.document_id,
        created=time_range_to(wanted.after, wanted.before),
    )


def memory_update_to(
    memory_id: str,
    *,
    text: str | Unset,
    tags: Collection[str] | Unset,
    metadata: Mapping[str, str] | Unset,
    trust: MemoryTrust | Unset,
    embedding: Vector | None,
    embedding_model: str,
    etag: str,
) -> pb.UpdateMemoryRequest:
    """A change of what is given: the mask names that and nothing else."""
    request = pb.UpdateMemoryRequest(
        memory_id=memory_id, embedding=vector_to(embedding), embedding_model=embedding_model, etag=etag
    )
    request.update_mask.SetInParent()
    if not isinstance(text, Unset):
        request.text = text
        request.update_mask.paths.append("text")
    if not isinstance(tags, Unset):
        request.tags.extend(texts_to(tags))
        request.update_mask.paths.append("tags")
    if not isinstance(metadata, Unset):
        request.metadata.update(metadata)
        request.update_mask.paths.append("metadata")
    if not isinstance(trust, Unset):
        request.trust = trust_to(trust)
        request.update_mask.paths.append("trust")
    return request


def embeddings_from(message: pb.EmbedTextResponse) -> Embeddings:
    """Vectors of texts."""
    return Embeddings(
        vectors=tuple(tuple(embedding.values) for embedding in message.embeddings),
        model=message.model,
        dimensions=message.dimensions,
        embedding_tokens=message.embedding_tokens,
    )


def stats_from(message: memory_pb2.MemoryStats) -> MemoryStats:
    """The state of a user's memory."""
    return MemoryStats(
        sources=tuple(
            MemorySourceCount(source_from(counted.source), counted.count, counted.pending_count)
            for counted in message.sources
        ),
        memory_count=message.memory_count,
        block_count=message.block_count,
        document_count=message.document_count,
        embedding_model=message.embedding_model,
        dimensions=message.dimensions,
        index_loaded=message.index_loaded,
        index_bytes=message.index_bytes,
        index_count=message.index_count,
        indexing_lag=message.indexing_lag.ToTimedelta(),
        pending_count=message.pending_count,
        next_embedding_model=message.next_embedding_model,
        reembedding_progress=message.reembedding_progress,
        memory_token=message.memory_token,
    )


def _provenance_from(message: memory_pb2.Provenance) -> Provenance:
    return Provenance(
        message.conversation_id,
        message.thread_agent_id,
        message.item_id,
        message.item_seq,
        message.author,
        message.document_id,
        message.document_title,
        message.chunk_index,
        message.char_start,
        message.char_end,
        message.summary_id,
        message.turn_id,
    )
