"""Scratchpads: short notes of a thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sage_server.domain.errors import etag_mismatch


@dataclass(frozen=True)
class Scratchpad:
    """The notes of one thread."""

    conversation_id: UUID
    items: tuple[str, ...] = ()
    version: int = 0
    """0 if it was never written."""
    updated_at: datetime | None = None
    agent_id: UUID | None = None
    """The agent whose own thread it is; callers never see the id of such a conversation."""

    @property
    def etag(self) -> str:
        """Changes with every write. Empty if there was none yet."""
        return f"v{self.version}" if self.version else ""

    def check_etag(self, etag: str) -> None:
        """Refuse a caller who read an older version. An empty etag asks for no check."""
        if etag and etag != self.etag:
            raise etag_mismatch("scratchpad")
