"""The log of what happens in turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from sage_server.domain.events import Event, EventRange


class EventStore(Protocol):
    """Stored events. Numbers are handed out in the order of commits, so a reader who goes on after the last
    number that it saw misses nothing."""

    async def range(self, user_id: UUID) -> EventRange:
        """Which events can be read. Must raise USER_ERASED if the user is gone."""
        ...

    async def after(self, user_id: UUID, seq: int, limit: int) -> Sequence[Event]:
        """The next events after a number, in order."""
        ...

    async def of_turn(self, user_id: UUID, turn_id: UUID, seq: int, limit: int) -> Sequence[Event]:
        """The next events of one turn after a number, in order."""
        ...

    async def last(self, user_ids: Sequence[UUID]) -> dict[UUID, int]:
        """The last number of each user."""
        ...
