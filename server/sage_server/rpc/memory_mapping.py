"""Memories and searches as messages. The domain's enum numbers are the contract's; a test says so."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
from google.protobuf.duration_pb2 import Duration
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from sage.v1 import memory_pb2, memory_service_pb2
from sage_server.domain.errors import invalid
from sage_server.domain.labels import normalise_label
from sage_server.domain.memories import (
    NOWHERE,
    Memory,
    MemoryChange,
    MemoryFilter,
    MemorySource,
    MemoryTrust,
    TagMatch,
)
from sage_server.domain.search import Evidence, Scored
from sage_server.engine.memory_index.query import (
    TEXT_WEIGHT,
    TOP_K,
    VECTOR_WEIGHT,
    IndexQuery,
)
from sage_server.engine.memory_search import Search, SearchAnswer
from sage_server.ports.memories import Vector
from sage_server.rpc.mapping import from_time_of, from_timestamp, set_time
from sage_server.services.memories import ArchivalDraft


def to_memory(memory: Memory) -> memory_pb2.Memory:
    """A memory for a caller."""
    message = memory_pb2.Memory()
    _write(memory, message)
    return message


def to_search_response(answer: SearchAnswer, token: str) -> memory_service_pb2.SearchMemoriesResponse:
    """What was found, for a caller."""
    duration = Duration()
    duration.FromNanoseconds(int(answer.seconds * 1e9))
    response = memory_service_pb2.SearchMemoriesResponse(
        memory_token=token,
        candidate_count=answer.found.candidates,
        embedding_model=answer.model,
        duration=duration,
    )
    for rank, scored in enumerate(answer.found.results, 1):
        add_result(response.results, scored, rank)
    return response


def add_result(
    results: RepeatedCompositeFieldContainer[memory_pb2.SearchResult], scored: Scored, rank: int
) -> None:
    """Add what was found to the results of a message."""
    result = results.add(
        rank=rank,
        score=scored.score,
        hybrid_score=scored.hybrid,
        vector_score=scored.vector_score,
        text_score=scored.text_score,
        normalized_vector_score=scored.normalized_vector,
        normalized_text_score=scored.normalized_text,
        matched_terms=scored.matched_terms,
        evidence=None if scored.evidence is None else _to_evidence(scored.evidence),
    )
    _write(scored.memory, result.memory)


def from_draft(request: memory_service_pb2.InsertMemoryRequest, agent_id: UUID | None) -> ArchivalDraft:
    """A memory to store."""
    return ArchivalDraft(
        text=request.text,
        tags=from_tags(request.tags, "tags"),
        metadata=dict(request.metadata),
        agent_id=agent_id,
        created_at=from_timestamp(request, "create_time"),
        trust=from_trust(request.trust),
        vector=from_vector(request.embedding),
        model=request.embedding_model,
    )


def from_memory_change(request: memory_service_pb2.UpdateMemoryRequest) -> MemoryChange:
    """What the mask names."""
    named = set(request.update_mask.paths)
    return MemoryChange(
        text=request.text if "text" in named else None,
        tags=from_tags(request.tags, "tags") if "tags" in named else None,
        metadata=dict(request.metadata) if "metadata" in named else None,
        trust=from_trust(request.trust) if "trust" in named else None,
    )


def from_memory_filter(
    request: memory_service_pb2.MemoryFilter | memory_service_pb2.SearchMemoriesRequest,
    agent_id: UUID | None,
    place: str = "",
) -> MemoryFilter:
    """Which memories are meant. `place` is what comes before the names of the fields in a refusal."""
    created = request.created
    return MemoryFilter(
        sources=frozenset(MemorySource(source) for source in request.sources),
        tags=from_tags(request.tags, f"{place}tags"),
        match=TagMatch(request.tag_match) if request.tag_match else TagMatch.ANY,
        agent_id=agent_id,
        conversation_id=UUID(request.conversation_id) if request.conversation_id else None,
        document_id=UUID(request.document_id) if request.document_id else None,
        start=from_time_of(created, "start_time", f"{place}created."),
        end=from_time_of(created, "end_time", f"{place}created."),
    )


def from_search(
    request: memory_service_pb2.SearchMemoriesRequest, agent_id: UUID | None, at_least: int
) -> Search:
    """A search, with the contract's defaults."""
    query = IndexQuery(
        text=request.query,
        vector=from_vector(request.query_embedding),
        which=from_memory_filter(request, agent_id),
        top_k=request.top_k or TOP_K,
        vector_weight=request.vector_weight if request.HasField("vector_weight") else VECTOR_WEIGHT,
        text_weight=request.text_weight if request.HasField("text_weight") else TEXT_WEIGHT,
        min_score=request.min_score if request.HasField("min_score") else None,
        context_evidence=request.context_evidence if request.HasField("context_evidence") else True,
    )
    return Search(query, at_least, fully_consistent=request.consistency.fully_consistent)


def from_tags(tags: Any, field: str) -> tuple[str, ...]:
    """Tags in the form in which they are compared. One that is nothing but space is refused."""
    if not tags:
        return ()
    found = tuple(dict.fromkeys(normalise_label(tag) for tag in tags))
    if "" in found:
        raise invalid(field, "must not be empty")
    return found


def from_trust(trust: int) -> MemoryTrust:
    """Unspecified means the user's own words."""
    return MemoryTrust(trust) if trust else MemoryTrust.USER


def from_vector(values: Any) -> Vector | None:
    """A vector, or None if the field is empty."""
    return np.array(values, np.float32) if values else None


def _write(memory: Memory, message: memory_pb2.Memory) -> None:
    """Field by field into the message where it is wanted: a third of what building and copying one costs."""
    message.id = str(memory.id)
    message.text = memory.text
    message.source = memory_pb2.MemorySource.ValueType(memory.source)
    message.trust = memory_pb2.MemoryTrust.ValueType(memory.trust)
    message.embedding_model = memory.embedding_model
    message.etag = memory.etag
    set_time(message.create_time, memory.created_at)
    set_time(message.update_time, memory.updated_at)
    if memory.tags:
        message.tags.extend(memory.tags)
    if memory.metadata:
        message.metadata.update(memory.metadata)
    if memory.agent_id is not None:
        message.agent_id = str(memory.agent_id)
    if memory.provenance is not NOWHERE:
        message.provenance.CopyFrom(_to_provenance(memory))


def _to_evidence(evidence: Evidence) -> memory_pb2.ScoreEvidence:
    return memory_pb2.ScoreEvidence(
        neighbours=evidence.neighbours,
        author=evidence.author,
        date=evidence.date,
        session=evidence.session,
        matched_author=evidence.matched_author,
        matched_date=evidence.matched_date,
    )


def _to_provenance(memory: Memory) -> memory_pb2.Provenance:
    place = memory.provenance
    document = memory.source is MemorySource.DOCUMENT
    agent_id, conversation_id = place.thread_agent_id, place.conversation_id
    public = conversation_id is not None and agent_id is None
    return memory_pb2.Provenance(
        conversation_id=str(conversation_id) if public else "",
        thread_agent_id="" if agent_id is None else str(agent_id),
        item_id="" if place.item_id is None else str(place.item_id),
        item_seq=place.item_seq or 0,
        author="" if document else place.origin,
        document_id="" if place.document_id is None else str(place.document_id),
        document_title=place.origin if document else "",
        chunk_index=place.chunk_index,
        char_start=place.char_start,
        char_end=place.char_end,
        summary_id=str(memory.id) if memory.source is MemorySource.SUMMARY else "",
        turn_id="" if place.turn_id is None else str(place.turn_id),
    )
