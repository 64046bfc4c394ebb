"""Takes jobs out of the queue with pgqueuer: polling, heartbeats, limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import asyncpg
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.domain.models import Job as Row
from pgqueuer.domain.types import Channel

from sage_server.adapters.postgres.jobs_pgqueuer import (
    CONNECTION_LOST,
    HandedBack,
    JobFailedError,
    WatchedDriver,
    WatchedQueries,
    settings,
)
from sage_server.domain.jobs import MALFORMED, Again, Attempt, Dead, Job, JobKind, Outcome
from sage_server.ports.jobs import Work

Connect: TypeAlias = Callable[[], Awaitable[asyncpg.Connection]]
_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 10.0
_LAST_WORDS = 2.0
_SHORTEST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_NEVER = timedelta(0)
_log = logging.getLogger("sage.jobs")


def _no_limits() -> Mapping[JobKind, int]:
    return {}


@dataclass(frozen=True)
class RunnerOptions:
    """How much at once, and how patient.

    `limits` are for a kind, on all replicas together; a kind without one has none. `running` is for this
    process. A job whose worker is silent for `heartbeat` is taken by another. `poll` is how long a job may
    lie unseen. Running jobs get `grace` when the server stops.
    """

    limits: Mapping[JobKind, int] = field(default_factory=_no_limits)
    running: int = 16
    poll: timedelta = timedelta(seconds=0.5)
    heartbeat: timedelta = timedelta(seconds=30)
    grace: timedelta = timedelta(seconds=10)


async def connect_for_jobs(dsn: str) -> asyncpg.Connection:
    """A connection of its own: it listens, and must not wait for one of the pool."""
    return await asyncpg.connect(
        dsn,
        timeout=_CONNECT_SECONDS,
        command_timeout=_STATEMENT_SECONDS,
        server_settings={"application_name": "sage-jobs"},
    )


class PostgresJobRunner:
    """Implements JobRunner. One connection; lost, it is made again."""

    def __init__(self, connect: Connect, options: RunnerOptions | None = None) -> None:
        self._connect = connect
        self._options = options or RunnerOptions()
        self._last_seen: float | None = None

    @property
    def last_seen(self) -> float | None:
        """When the queue last answered, by `time.monotonic`."""
        return self._last_seen

    async def run(self, kinds: Collection[JobKind], work: Work) -> None:
        """Session after session. The first failure of a row is logged; the pause grows with each."""
        failures = 0
        while True:
            seen = self._last_seen
            try:
                await self._session(kinds, work)
            except CONNECTION_LOST as error:
                if failures == 0:
                    _log.warning("the job queue is out of reach", exc_info=error)
            failures = failures + 1 if self._last_seen == seen else 0
            await asyncio.sleep(min(_SHORTEST_PAUSE * 2 ** min(failures, 10), _LONGEST_PAUSE))

    async def _session(self, kinds: Collection[JobKind], work: Work) -> None:
        """Work on one connection until it fails, or until cancelled."""
        connection = await self._connect()
        let_go = asyncio.Event()
        try:
            queue = self._queue(connection, kinds, work, let_go)
            running = asyncio.create_task(self._serve(queue), name="jobs")
            lost = asyncio.create_task(let_go.wait())
            try:
                await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                lost.cancel()
                await self._wind_down(queue, running, let_go)
            if running.done() and not running.cancelled():
                running.result()
        finally:
            with contextlib.suppress(*CONNECTION_LOST):
                await connection.close(timeout=_LAST_WORDS)

    def _queue(
        self,
        connection: asyncpg.Connection,
        kinds: Collection[JobKind],
        work: Work,
        let_go: asyncio.Event,
    ) -> QueueManager:
        driver = WatchedDriver(connection, self._seen, let_go.set)
        queries = WatchedQueries.over(driver)
        queue = QueueManager(queries=queries, channel=Channel(settings().channel))
        queries.owner = queue.queue_manager_id
        for kind in kinds:
            register = queue.entrypoint(
                kind.value,
                concurrency_limit=self._options.limits.get(kind, 0),
                accepts_context=False,
                on_failure="hold",
            )
            register(partial(_attempt, kind, work, queries, let_go))
        return queue

    def _seen(self) -> None:
        self._last_seen = time.monotonic()

    async def _serve(self, queue: QueueManager) -> None:
        options = self._options
        await queue.run(
            dequeue_timeout=options.poll,
            batch_size=max(1, min(10, options.running // 2)),
            max_concurrent_tasks=max(2, options.running),
            heartbeat_timeout=options.heartbeat,
            # Nobody reads pgqueuer's statistics, and nothing would ever delete them.
            log_aggregation_interval=_NEVER,
        )

    async def _wind_down(
        self, queue: QueueManager, running: asyncio.Task[None], let_go: asyncio.Event
    ) -> None:
        """Take no more jobs, let those that run finish for a while, then give them back."""
        queue.shutdown.set()
        await asyncio.wait({running}, timeout=self._options.grace.total_seconds())
        let_go.set()
        await asyncio.wait({running}, timeout=2 * _LAST_WORDS)
        if not running.done():
            running.cancel()
            await asyncio.wait({running}, timeout=_LAST_WORDS)


async def _attempt(
    kind: JobKind, work: Work, queries: WatchedQueries, let_go: asyncio.Event, row: Row
) -> None:
    """Try a job, and say how it ended in the way that pgqueuer understands.

    What is raised here is ours and holds names only: pgqueuer writes exceptions into its log.
    """
    try:
        job = Job.unpack(kind, row.payload or b"")
    except ValueError:
        raise JobFailedError(MALFORMED) from None
    try:
        lost = await queries.times_lost(row.id)
    except CONNECTION_LOST:
        raise HandedBack from None
    outcome = await _unless_let_go(work(Attempt(row.id, job, row.attempts + 1, lost)), let_go)
    if isinstance(outcome, Again):
        raise RetryRequested(outcome.delay, outcome.error_type)
    if isinstance(outcome, Dead):
        raise JobFailedError(outcome.error_type)


async def _unless_let_go(work: Awaitable[Outcome], let_go: asyncio.Event) -> Outcome:
    """The outcome; raises HandedBack if the job is let go before there is one."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(let_go.wait())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HandedBack
        return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            # Whoever never asks how it ended would have asyncio print it, message and all.
            working.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            working.cancel()
            await asyncio.wait({working}, timeout=_LAST_WORDS)
