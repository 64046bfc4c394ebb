"""Search over memories."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sage_client.models.memory import Memory, MemorySource, TagMatch, Vector


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One search: what to look for, where, how to score, and how fresh the answer must be.

    - `query`, `embedding`: words, their vector, or both. Without a vector the server makes one.
    - `sources`, `tags`, `conversation_id`, `agent`, `document_id`: only what they name. Default: all.
    - `after`, `before`: only with a `create_time` from `after` on and before `before`.
    - `vector_weight`, `text_weight`: 0 to 1, not both 0. Default: 0.7 and 0.3.
    - `min_score`: leave out what scores less. Default: no limit.
    - `context_evidence`: whether neighbours, author, date and session add to a message's score. Default: yes.
    - `at_least_as_fresh`: a memory token; what it stands for is seen. `fully_consistent`: all that was
      committed when the call began is seen. Default: what this replica has, at most about a second old.
    """

    query: str = ""
    embedding: Vector | None = field(default=None, repr=False)
    sources: Collection[MemorySource] = ()
    tags: Collection[str] = ()
    match: TagMatch = TagMatch.ANY
    conversation_id: str = ""
    agent: str = ""
    document_id: str = ""
    after: datetime | None = None
    before: datetime | None = None
    top_k: int = 10
    vector_weight: float | None = None
    text_weight: float | None = None
    min_score: float | None = None
    context_evidence: bool | None = None
    at_least_as_fresh: str = ""
    fully_consistent: bool = False


@dataclass(frozen=True, slots=True)
class ScoreEvidence:
    """What a message's surroundings added to its score, and the author and date that the query names."""

    neighbours: float
    author: float
    date: float
    session: float
    matched_author: str
    matched_date: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A memory that was found, with its score explained.

    `score` is `hybrid_score` and what `evidence` adds; `hybrid_score` is the weighted sum of the two
    normalised scores. `vector_score`, the cosine, is None if the memory or the query has no vector.
    `evidence` is None if it was not asked for or the memory is no message. `rank` counts from 1.
    """

    memory: Memory
    rank: int
    score: float
    hybrid_score: float
    vector_score: float | None
    text_score: float
    normalized_vector_score: float
    normalized_text_score: float
    matched_terms: tuple[str, ...]
    evidence: ScoreEvidence | None


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What a search found, the best first.

    `memory_token` stands for the state of memory that was searched, `candidate_count` is how many memories
    passed the filters, `duration` is how long the server took.
    """

    results: tuple[SearchResult, ...]
    memory_token: str
    candidate_count: int
    embedding_model: str
    duration: timedelta
