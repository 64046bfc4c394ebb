"""Loops that run beside the server until it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_log = logging.getLogger("sage.workers")


@dataclass(frozen=True)
class Loop:
    """Something to do again and again."""

    name: str
    every: float
    run: Callable[[], Awaitable[object]]


class Workers:
    """Runs loops. One that fails is logged and tried again at its next turn."""

    def __init__(self, loops: list[Loop]) -> None:
        self._loops = loops
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start every loop; each waits its time first."""
        self._tasks = [asyncio.create_task(_repeat(loop), name=loop.name) for loop in self._loops]

    async def stop(self) -> None:
        """Stop every loop. What it was doing is durable or repeatable."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _repeat(loop: Loop) -> None:
    while True:
        await asyncio.sleep(loop.every)
        try:
            await loop.run()
        except Exception as error:  # noqa: BLE001
            _log.warning("a background loop failed", exc_info=error, extra={"loop": loop.name})
