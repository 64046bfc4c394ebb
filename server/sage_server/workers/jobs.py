"""Doing background jobs: which handler, and what becomes of a job that fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TypeAlias

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.jobs import WORKER_LOST, Attempt, Dead, Done, Job, JobKind, Outcome, RetryPolicy
from sage_server.ports.jobs import JobRunner
from sage_server.workers.job_metrics import JobMetrics

Handler: TypeAlias = Callable[[Job], Awaitable[None]]
"""Does a job. It may be called again for the same job, also after it succeeded."""
_NOTHING_LEFT = frozenset({Reason.USER_ERASED, Reason.NOT_FOUND})
Allowed: TypeAlias = Callable[[], Awaitable[bool]]
"""Whether jobs may be done now."""
_LONGEST = timedelta(hours=1)
_ASK_EVERY = 0.5
_log = logging.getLogger("sage.jobs")


class JobWorkers:
    """Runs the handlers. Every job ends: done, or dead with the name of the reason.

    While jobs are not allowed none is begun, and those that wait stay in the queue.
    """

    def __init__(
        self,
        *,
        runner: JobRunner,
        handlers: Mapping[JobKind, Handler],
        metrics: JobMetrics,
        allowed: Allowed,
        policy: RetryPolicy | None = None,
        longest: timedelta = _LONGEST,
    ) -> None:
        self._runner = runner
        self._handlers = dict(handlers)
        self._metrics = metrics
        self._allowed = allowed
        self._paused = False
        self._policy = policy or RetryPolicy()
        self._longest = longest

    async def run(self) -> None:
        """Do jobs until cancelled; then running ones get the runner's grace. They get it as well when jobs
        are no longer allowed."""
        while True:
            await self._until(allowed=True)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(self._runner.run(self._handlers.keys(), self._attempt))
                await self._until(allowed=False)
                running.cancel()

    def is_alive(self, within: timedelta = timedelta(seconds=15)) -> bool:
        """Whether the queue answered the workers lately, or they were told to leave it alone."""
        seen = self._runner.last_seen
        return self._paused or (seen is not None and time.monotonic() - seen <= within.total_seconds())

    async def _until(self, *, allowed: bool) -> None:
        while await self._allowed() is not allowed:
            self._paused = allowed
            await asyncio.sleep(_ASK_EVERY)
        self._paused = not allowed

    async def _attempt(self, attempt: Attempt) -> Outcome:
        outcome = await self._tried(attempt)
        self._metrics.ended(attempt.job.kind, outcome)
        return outcome

    async def _tried(self, attempt: Attempt) -> Outcome:
        """The outermost boundary of a handler: whatever it raises becomes an outcome, and a name."""
        if attempt.lost >= self._policy.attempts:
            return self._failed(attempt, Dead(WORKER_LOST), None)
        try:
            # A job that was taken at the last moment waits here, until it may go on or is given back.
            await self._until(allowed=True)
            async with asyncio.timeout(self._longest.total_seconds()):
                await self._handlers[attempt.job.kind](attempt.job)
        except SageError as error:
            if error.reason in _NOTHING_LEFT:
                return Done()
            outcome = self._policy.after(attempt.number, error.reason.name, error.retry_after)
            return self._failed(attempt, outcome, error)
        except Exception as error:  # noqa: BLE001
            outcome = self._policy.after(attempt.number, type(error).__name__)
            return self._failed(attempt, outcome, error)
        return Done()

    def _failed(self, attempt: Attempt, outcome: Outcome, error: Exception | None) -> Outcome:
        _log.warning(
            "a job is dead" if isinstance(outcome, Dead) else "a job failed and is tried again",
            exc_info=error,
            extra={"job": attempt.id, "kind": attempt.job.kind.value, "attempt": attempt.number},
        )
        return outcome
