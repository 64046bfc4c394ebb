"""Long work on the event loop, in turns with everybody else's."""

from __future__ import annotations

import asyncio
import time

_TURN = 0.01
"""Seconds for which work may keep the event loop."""


class Pauses:
    """Lets others in whenever work has kept the event loop for a turn. By the clock, and not by an amount of
    work: texts of the same length cost one time twenty times what they cost another."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the turn is over."""
        return time.monotonic() - self._since >= _TURN

    async def take(self) -> None:
        """Let others in if the turn is over."""
        if self.due:
            await asyncio.sleep(0)
            self._since = time.monotonic()
