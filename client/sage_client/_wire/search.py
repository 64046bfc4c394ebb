"""Searches and what they find."""

from __future__ import annotations

from sage.v1 import memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client._wire.enums import source_to, tag_match_to
from sage_client._wire.memory import memory_from
from sage_client._wire.values import texts_to, time_range_to, vector_to
from sage_client.models.search import ScoreEvidence, SearchQuery, SearchResult, SearchResults


def search_to(query: SearchQuery) -> pb.SearchMemoriesRequest:
    """A search."""
    return pb.SearchMemoriesRequest(
        query=query.query,
        query_embedding=vector_to(query.embedding),
        sources=[source_to(source) for source in query.sources],
        tags=texts_to(query.tags),
        tag_match=tag_match_to(query.match),
        conversation_id=query.conversation_id,
        agent=query.agent,
        document_id=query.document_id,
        created=time_range_to(query.after, query.before),
        top_k=query.top_k,
        vector_weight=query.vector_weight,
        text_weight=query.text_weight,
        min_score=query.min_score,
        context_evidence=query.context_evidence,
        consistency=_consistency_to(query),
    )


def search_from(message: pb.SearchMemoriesResponse) -> SearchResults:
    """What a search found."""
    return SearchResults(
        results=tuple([result_from(result) for result in message.results]),
        memory_token=message.memory_token,
        candidate_count=message.candidate_count,
        embedding_model=message.embedding_model,
        duration=message.duration.ToTimedelta(),
    )


def result_from(message: memory_pb2.SearchResult) -> SearchResult:
    """A memory that was found. Searches read many: the fields go by position."""
    return SearchResult(
        memory_from(message.memory),
        message.rank,
        message.score,
        message.hybrid_score,
        message.vector_score if message.HasField("vector_score") else None,
        message.text_score,
        message.normalized_vector_score,
        message.normalized_text_score,
        tuple(message.matched_terms),
        _evidence_from(message.evidence) if message.HasField("evidence") else None,
    )


def _consistency_to(query: SearchQuery) -> memory_pb2.Consistency | None:
    if query.fully_consistent:
        return memory_pb2.Consistency(fully_consistent=True)
    if query.at_least_as_fresh:
        return memory_pb2.Consistency(at_least_as_fresh=query.at_least_as_fresh)
    return None


def _evidence_from(message: memory_pb2.ScoreEvidence) -> ScoreEvidence:
    return ScoreEvidence(
        neighbours=message.neighbours,
        author=message.author,
        date=message.date,
        session=message.session,
        matched_author=message.matched_author,
        matched_date=message.matched_date,
    )
