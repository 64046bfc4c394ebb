"""Searches in threads beside changes on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Lets any number of readers in, or one writer. A writer who waits keeps new readers out.

    Readers on the event loop that never await need not enter: nothing can change under them.
    """

    def __init__(self) -> None:
        self._readers = 0
        self._writer = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Nobody changes anything inside."""
        async with self._writer:
            self._readers += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._empty.set()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Nobody else is inside."""
        async with self._writer:
            await self._empty.wait()
            yield
