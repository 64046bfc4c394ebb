"""Numbers about a user's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from sage_server.domain.memories import MemorySource
from sage_server.ports.memories import Space


@dataclass(frozen=True)
class SourceCount:
    """How many memories there are of a source, and how many of them have no vector of a space."""

    source: MemorySource
    count: int
    pending: int


@dataclass(frozen=True)
class StoredNumbers:
    """What the database knows."""

    sources: Sequence[SourceCount]
    """Those that have any."""
    blocks: int
    documents: int
    waiting: int
    """Items and documents that wait to be indexed."""
    lag: timedelta
    """How long the oldest of them has waited."""


class MemoryStatsStore(Protocol):
    """Counts. Must not see another user's rows."""

    async def numbers(self, user_id: UUID, space: Space | None) -> StoredNumbers:
        """As things are now; `pending` is by the space."""
        ...
