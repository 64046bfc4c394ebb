"""Reads of single rows that share round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_IN_FLIGHT = 2
_LARGEST = 256


class BatchedReads(Generic[K, V]):
    """Turns concurrent reads by key into few statements.

    A lone read goes out at once. Reads that arrive while statements are under way wait for the next one, so
    the busier the server, the more of them share a round trip. A statement starts after the reads in it have
    arrived, so each sees everything that was committed before.
    """

    def __init__(self, load: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._load = load
        self._waiting: dict[K, list[asyncio.Future[V | None]]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._scheduled = False

    async def get(self, key: K) -> V | None:
        """The row, or None if there is none. Raises what loading it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[V | None] = loop.create_future()
        self._waiting.setdefault(key, []).append(future)
        self._schedule(loop)
        return await future

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._scheduled and len(self._running) < _IN_FLIGHT:
            self._scheduled = True
            # At the end of this turn of the loop, when the reads that woke up with this one are here too.
            loop.call_soon(self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        batch = {key: self._waiting.pop(key) for key in list(self._waiting)[:_LARGEST]}
        task = loop.create_task(self._run(batch))
        self._running.add(task)
        task.add_done_callback(lambda done: self._finished(done, loop))
        self._schedule(loop)

    def _finished(self, task: asyncio.Task[None], loop: asyncio.AbstractEventLoop) -> None:
        self._running.discard(task)
        self._schedule(loop)

    async def _run(self, batch: dict[K, list[asyncio.Future[V | None]]]) -> None:
        try:
            found = await self._load(list(batch))
        except BaseException as error:
            for future in _waiting_in(batch):
                future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for key, futures in batch.items():
            for future in futures:
                if not future.done():
                    future.set_result(found.get(key))


def _waiting_in(batch: dict[K, list[asyncio.Future[V | None]]]) -> list[asyncio.Future[V | None]]:
    """Those whose callers have not gone away."""
    return [future for futures in batch.values() for future in futures if not future.done()]
