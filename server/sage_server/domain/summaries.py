"""Summaries of the older part of a thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True)
class Summary:
    """A compaction of a stretch of a thread. Summaries form a chain; the originals stay."""

    id: UUID
    conversation_id: UUID
    from_seq: int
    to_seq: int
    message_count: int
    text: str
    token_count: int
    epoch: int
    """1 for the first of a thread, and one more for each that follows."""
    created_at: datetime
    previous_id: UUID | None = None


@dataclass(frozen=True)
class Summarized:
    """What came of a request to summarise a thread."""

    summary: Summary | None
    """The newest."""
    applied: bool
    """Whether the request made it."""
