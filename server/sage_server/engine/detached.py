"""Work that goes on when whoever asked for it goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import Any, Generic, TypeVar

from sage_server.domain.errors import Reason, SageError

Event = TypeVar("Event")
Result = TypeVar("Result")
_log = logging.getLogger("sage.work")


class Detached(Generic[Event, Result]):
    """A running task that tells events to any number of listeners."""

    def __init__(
        self, work: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Result]], name: str
    ) -> None:
        self._listeners: list[asyncio.Queue[Event | None]] = []
        self._task = asyncio.create_task(work(self._tell), name=name)
        self._task.add_done_callback(self._ended)

    def events(self) -> AsyncIterator[Event]:
        """What is told from now on, until the work ends."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        if not self._task.done():
            self._listeners.append(queue)
        else:
            queue.put_nowait(None)
        return self._heard(queue)

    async def result(self) -> Result:
        """What the work answered, or raised. Going away does not stop it. SHUTTING_DOWN if `stop` did."""
        await asyncio.wait([self._task])
        if self._task.cancelled():
            raise SageError(
                Reason.SHUTTING_DOWN, "The server is shutting down.", retry_after=timedelta(seconds=1)
            )
        return self._task.result()

    def when_done(self, then: Callable[[], object]) -> None:
        """Call `then` at the end, however it ends."""
        self._task.add_done_callback(lambda _: then())

    async def stop(self) -> None:
        """Cancel the work and wait until it is over."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def _tell(self, event: Event) -> None:
        for queue in self._listeners:
            queue.put_nowait(event)

    def _ended(self, task: asyncio.Task[Result]) -> None:
        """Nobody may be left to ask how it ended."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("detached work failed", exc_info=error, extra={"work": task.get_name()})
        for queue in self._listeners:
            queue.put_nowait(None)

    async def _heard(self, queue: asyncio.Queue[Event | None]) -> AsyncIterator[Event]:
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            if queue in self._listeners:
                self._listeners.remove(queue)
