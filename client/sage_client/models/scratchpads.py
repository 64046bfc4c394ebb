"""Scratchpads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Scratchpad:
    """Short notes of an agent for one thread.

    `conversation_id` is empty in an agent's own thread, `agent_id` in any other. `update_time` is None if
    it was never written.
    """

    conversation_id: str
    agent_id: str
    items: tuple[str, ...]
    update_time: datetime | None
    etag: str
