"""The store of overlays."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from sage_server.domain.idempotency import Once
from sage_server.domain.overlays import ConflictPolicy, Merged, OverlayChange
from sage_server.domain.paging import Page, TimeCursor


class OverlayStore(Protocol):
    """What agents of MemoryMode.OVERLAY have of their own: blocks, and archival memories."""

    async def changes(
        self, user_id: UUID, agent_id: UUID, *, conflicting_only: bool, size: int, after: TimeCursor | None
    ) -> Page[OverlayChange, TimeCursor]:
        """A page, what was made last first. Must be empty for an agent that the user does not have."""
        ...

    async def merged_before(self, user_id: UUID, once: Once) -> Merged | None:
        """What this request did. None if the request is new.

        Must raise REQUEST_ID_REUSED if the id belongs to another request.
        """
        ...

    async def merge(
        self,
        user_id: UUID,
        agent_id: UUID,
        ids: Collection[UUID],
        policy: ConflictPolicy,
        *,
        once: Once | None,
        now: datetime,
    ) -> Merged:
        """Move the changes of these ids, or all if there are none, into the user's memory, all or nothing.

        Must raise NOT_FOUND for an agent or a change that is not there, AGENT_NOT_OVERLAY, and with
        ConflictPolicy.FAIL OVERLAY_CONFLICT. What lies in the user's memory must be compared as it is when
        the merge takes effect. A merge with `once` must happen at most once, and a repeat must give the first
        answer.
        """
        ...
