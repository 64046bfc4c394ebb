"""Background jobs, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from sage_server.domain.jobs import JobKind, Outcome
from sage_server.ports.jobs import JobQueue


class JobMetrics:
    """Jobs by kind and state, the age of the oldest that waits, and tries that ended.

    The first two are of the whole installation and as old as the last refresh: a scrape asks no database.
    """

    def __init__(self, registry: CollectorRegistry, queue: JobQueue) -> None:
        self._queue = queue
        self._jobs = Gauge(
            "sage_jobs", "Background jobs that wait, run or are dead", ["kind", "state"], registry=registry
        )
        self._lag = Gauge(
            "sage_job_lag_seconds", "Age of the oldest job that waits", ["kind"], registry=registry
        )
        self._done = Counter(
            "sage_jobs_done",
            "Tries of background jobs that ended here",
            ["kind", "outcome"],
            registry=registry,
        )

    def ended(self, kind: JobKind, outcome: Outcome) -> None:
        """A try ended: `done`, `again` or `dead`."""
        self._done.labels(kind.value, type(outcome).__name__.lower()).inc()

    async def refresh(self) -> None:
        """Read the queue's numbers."""
        for stats in await self._queue.stats():
            kind = stats.kind.value
            self._jobs.labels(kind, "queued").set(stats.queued)
            self._jobs.labels(kind, "running").set(stats.running)
            self._jobs.labels(kind, "dead").set(stats.dead)
            self._lag.labels(kind).set(stats.lag_seconds)
