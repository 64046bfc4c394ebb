"""How processes wake each other when there are new events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID


class EventNotices(Protocol):
    """Hints that a user has new events. One may be lost, late or repeated: whoever follows events must look
    for them now and then without one."""

    def send(self, user_id: UUID) -> None:
        """Tell the other processes soon. Must be cheap and must not fail: called after every commit."""
        ...

    async def run(self, heard: Callable[[UUID], None]) -> None:
        """Send, and call `heard` with what other processes send, until cancelled.

        Must go on after a loss of the connection.
        """
        ...
