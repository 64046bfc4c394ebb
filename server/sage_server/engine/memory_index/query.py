"""What is searched for, and what is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sage_server.domain.memories import Memory, MemoryFilter
from sage_server.engine.memory_index.vectors import Floats

TOP_K = 10
VECTOR_WEIGHT = 0.7
TEXT_WEIGHT = 0.3


@dataclass(frozen=True)
class IndexQuery:
    """A search."""

    text: str = ""
    vector: Floats | None = None
    """Of the index's model; for `UserIndex.search` of unit length."""
    which: MemoryFilter = field(default_factory=MemoryFilter)
    top_k: int = TOP_K
    vector_weight: float = VECTOR_WEIGHT
    text_weight: float = TEXT_WEIGHT
    min_score: float | None = None
    context_evidence: bool = True


class Evidence(NamedTuple):
    """What a message's surroundings added to its score."""

    neighbours: float
    author: float
    date: float
    session: float
    matched_author: str
    matched_date: str


class Scored(NamedTuple):
    """A memory that was found, with its score explained."""

    memory: Memory
    score: float
    hybrid: float
    vector_score: float | None
    text_score: float
    normalized_vector: float
    normalized_text: float
    matched_terms: Sequence[str]
    evidence: Evidence | None


@dataclass(frozen=True)
class Found:
    """The best, and how many there were to choose from."""

    results: Sequence[Scored]
    candidates: int
    revision: int
    """Of the state that was searched."""
