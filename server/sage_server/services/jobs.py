"""How the background jobs are doing."""

from __future__ import annotations

from collections.abc import Sequence

from sage_server.domain.jobs import DeadJob, JobKind, JobQueueStats
from sage_server.domain.paging import Page
from sage_server.ports.jobs import JobQueue


class Jobs:
    """For operators: numbers, dead jobs, and a second chance for them."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue

    async def stats(self) -> Sequence[JobQueueStats]:
        """One for every kind."""
        return await self._queue.stats()

    async def dead(self, kind: JobKind | None, size: int, after: int | None) -> Page[DeadJob, int]:
        """A page of what failed for good, the newest first."""
        return await self._queue.dead(kind, size, after)

    async def retry(self, job_id: int) -> None:
        """Queue a dead job again. Raises NOT_FOUND."""
        await self._queue.retry(job_id)
