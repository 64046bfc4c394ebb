"""The queue of background jobs, and what takes jobs out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol, TypeAlias

from sage_server.domain.jobs import Attempt, Backlog, DeadJob, Job, JobKind, JobQueueStats, Outcome
from sage_server.domain.paging import Page

NOW = timedelta(0)
Work: TypeAlias = Callable[[Attempt], Awaitable[Outcome]]
"""Tries a job. Must not raise: how it ended is its answer."""


class JobQueue(Protocol):
    """Jobs that wait, run, or are dead. A job that is done is gone.

    What belongs to a write of a store is enqueued by that store, in the same transaction.
    """

    async def enqueue(self, job: Job, delay: timedelta = NOW, dedupe: str | None = None) -> None:
        """Add a job that is due after `delay`.

        Nothing is added while a job with the same `dedupe` waits or runs. It may hold ids only.
        """
        ...

    async def stats(self) -> Sequence[JobQueueStats]:
        """One for every kind, in the order of JobKind."""
        ...

    async def dead(self, kind: JobKind | None, size: int, after: int | None) -> Page[DeadJob, int]:
        """A page of the dead jobs, the newest first; `after` is the id of the last one seen."""
        ...

    async def retry(self, job_id: int) -> None:
        """Queue a dead job again, as if it had never been tried. Must raise NOT_FOUND if it is not dead."""
        ...

    async def backlog(self, overdue_after: timedelta) -> Backlog:
        """The jobs that have been due for longer than `overdue_after`."""
        ...

    async def prune(self, kept: timedelta) -> int:
        """Forget what is older than `kept` and belongs to no dead job; answers with how many rows."""
        ...


class JobRunner(Protocol):
    """Takes jobs out of the queue, as many at once as its limits allow.

    A job must be in the hands of one runner at a time, and must come back to the queue if its runner dies.
    """

    @property
    def last_seen(self) -> float | None:
        """When the queue last answered, by `time.monotonic`. None before the first time."""
        ...

    async def run(self, kinds: Collection[JobKind], work: Work) -> None:
        """Try jobs of these kinds until cancelled, through losses of the database.

        Cancelled, it must let running jobs finish for a while, and then give them back.
        """
        ...
