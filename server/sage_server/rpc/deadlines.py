"""Calls that take longer than the server allows."""

from __future__ import annotations

import asyncio
import time

from sage_server.rpc.call import Call

_LOOK_EVERY = 0.1


class DeadlineWatch:
    """Cancels calls that are overdue, looking at all of them a few times a second.

    A timer for each call would be exact and cost more than the rest of the pipeline. The caller's own
    deadline is exact: gRPC holds that.
    """

    def __init__(self) -> None:
        self._running: dict[int, tuple[float, asyncio.Task[None]]] = {}
        self._expired: set[int] = set()
        self._looking = False

    def add(self, call: Call, seconds: float) -> None:
        """Watch the current task, which serves the call."""
        task = asyncio.current_task()
        assert task is not None
        self._running[id(call)] = (time.monotonic() + seconds, task)
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look)

    def remove(self, call: Call) -> None:
        """The call has ended."""
        self._running.pop(id(call), None)
        self._expired.discard(id(call))

    def expired(self, call: Call) -> bool:
        """Whether the call was cancelled because it was overdue, and not because its caller went away."""
        return id(call) in self._expired

    def _look(self) -> None:
        now = time.monotonic()
        for key, (deadline, task) in self._running.items():
            if deadline < now and key not in self._expired:
                self._expired.add(key)
                task.cancel()
        self._looking = bool(self._running)
        if self._looking:
            asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look)
