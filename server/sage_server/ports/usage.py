"""The store of usage records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from sage_server.domain.usage import UsageEntry, UsagePeriod, UsagePurpose, UsageRecord


class UsageStore(Protocol):
    """Usage by user, day, model and purpose."""

    async def add(self, entries: Sequence[UsageEntry]) -> None:
        """Add to what is counted, all or nothing, each user, day, model and purpose at most once.

        What belongs to a user who was erased must be dropped.
        """
        ...

    async def list(
        self, user_id: UUID, period: UsagePeriod, purpose: UsagePurpose | None
    ) -> Sequence[UsageRecord]:
        """The user's records of these days, the newest day first, then by model and purpose."""
        ...
