"""What is searched for, and what is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sage_server.domain.memories import MemoryFilter
from sage_server.domain.search import Scored
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


@dataclass(frozen=True)
class Found:
    """The best, and how many there were to choose from."""

    results: Sequence[Scored]
    candidates: int
    revision: int
    """Of the state that was searched."""
