"""What a search finds, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sage_server.domain.memories import Memory


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
