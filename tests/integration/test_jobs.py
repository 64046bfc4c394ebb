"""A job ends: done, or in the dead letters with the name of its reason."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import BigInteger, Boolean, Uuid, bindparam, literal, select

from sage_server.adapters.postgres.database import Database, PoolOptions, Statement, Transaction
from sage_server.adapters.postgres.jobs import PostgresJobQueue, enqueue_in, enqueued, metadata
from sage_server.adapters.postgres.jobs_pgqueuer import WatchedDriver, WatchedQueries, settings
from sage_server.adapters.postgres.jobs_runner import PostgresJobRunner, RunnerOptions, connect_for_jobs
from sage_server.domain.errors import Reason, SageError, database_unavailable, not_found, user_erased
from sage_server.domain.jobs import WORKER_LOST, Job, JobKind, JobQueueStats, RetryPolicy
from sage_server.workers.job_metrics import JobMetrics
from sage_server.workers.jobs import Allowed, Handler, JobWorkers

INDEX = JobKind.INDEX_ITEMS
SECRET = "maria told us about the blue heron"
FAST = RunnerOptions(
    poll=timedelta(milliseconds=100), heartbeat=timedelta(seconds=1), grace=timedelta(seconds=5)
)
QUICK = RetryPolicy(attempts=3, patient_attempts=5, first=timedelta(milliseconds=20))


def a_job(kind: JobKind = INDEX) -> Job:
    return Job(kind, uuid4(), uuid4(), 1, 2)


async def eventually(true: Callable[[], Awaitable[bool]], within: float = 20) -> None:
    async with asyncio.timeout(within):
        while not await true():  # noqa: ASYNC110 (the database says so, and it has no event)
            await asyncio.sleep(0.02)


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    opened = await Database.open(dsn, PoolOptions(1, 4, 10, 30))
    yield opened
    await opened.close()


@pytest.fixture
def queue(database: Database) -> PostgresJobQueue:
    return PostgresJobQueue(database)


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@dataclass
class Recorder:
    """A handler that remembers its jobs, and may wait, or fail as often as it is told."""

    failures: list[Exception] = field(default_factory=list)
    gate: asyncio.Event | None = None
    started: list[Job] = field(default_factory=list)
    finished: list[Job] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self, job: Job) -> None:
        self.started.append(job)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
        finally:
            self.at_once -= 1
        self.finished.append(job)


@dataclass
class Working:
    workers: JobWorkers
    registry: CollectorRegistry
    task: asyncio.Task[None]


async def always() -> bool:
    return True


@asynccontextmanager
async def working(
    dsn: str,
    handlers: Mapping[JobKind, Handler],
    options: RunnerOptions = FAST,
    policy: RetryPolicy = QUICK,
    longest: timedelta = timedelta(minutes=1),
    *,
    allowed: Allowed = always,
) -> AsyncIterator[Working]:
    database = await Database.open(dsn, PoolOptions(1, 1, 10, 30))
    registry = CollectorRegistry()
    workers = JobWorkers(
        runner=PostgresJobRunner(partial(connect_for_jobs, dsn), options),
        handlers=handlers,
        metrics=JobMetrics(registry, PostgresJobQueue(database)),
        allowed=allowed,
        policy=policy,
        longest=longest,
    )
    task = asyncio.create_task(workers.run())
    try:
        yield Working(workers, registry, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await database.close()


async def stats_of(queue: PostgresJobQueue, kind: JobKind = INDEX) -> JobQueueStats:
    return next(stats for stats in await queue.stats() if stats.kind is kind)


async def is_empty(queue: PostgresJobQueue) -> bool:
    return all((s.queued, s.running, s.dead) == (0, 0, 0) for s in await queue.stats())


async def has_dead(queue: PostgresJobQueue, count: int = 1) -> bool:
    return (await stats_of(queue)).dead == count


async def test_a_job_runs_with_what_was_enqueued_and_is_gone(dsn: str, queue: PostgresJobQueue) -> None:
    handler = Recorder()
    jobs = [Job(INDEX, uuid4(), uuid4(), 2**40, 2**40 + 7), Job(INDEX, uuid4())]
    for job in jobs:
        await queue.enqueue(job)
    async with working(dsn, {INDEX: handler}) as running:
        await eventually(lambda: is_empty(queue))
        assert running.workers.is_alive()
    assert sorted(handler.finished, key=str) == sorted(jobs, key=str)
    assert running.registry.get_sample_value(
        "sage_jobs_done_total", {"kind": "index_items", "outcome": "done"}
    ) == len(jobs)


async def test_a_job_is_there_if_and_only_if_its_transaction_commits(
    database: Database, queue: PostgresJobQueue
) -> None:
    async def refused(transaction: Transaction) -> None:
        await enqueue_in(transaction, a_job())
        raise not_found("conversation")

    async def accepted(transaction: Transaction) -> None:
        await enqueue_in(transaction, a_job())

    with pytest.raises(SageError):
        await database.transact(refused)
    assert (await stats_of(queue)).queued == 0
    await database.transact(accepted)
    assert (await stats_of(queue)).queued == 1


async def test_a_statement_enqueues_with_numbers_that_it_hands_out(
    database: Database, sql: asyncpg.Connection
) -> None:
    """As an append does: the payload that SQL makes is the one that `Job.unpack` reads."""
    base = select(
        literal(41, BigInteger()).label("base"), bindparam("private", type_=Boolean()).label("private")
    ).cte("grown")
    job = enqueued(
        INDEX,
        user_id=bindparam("user_id", type_=Uuid()),
        subject=bindparam("conversation_id", type_=Uuid()),
        first=base.c.base + 1,
        last=base.c.base + bindparam("count", type_=BigInteger()),
        source=base,
        where=[~base.c.private],
        delay=timedelta(hours=1),
    )
    statement = Statement(select(base.c.base).add_cte(job.cte("job")))
    user_id, conversation_id = uuid4(), uuid4()
    for private in (True, False):
        row = await database.fetchrow(
            statement, user_id=user_id, conversation_id=conversation_id, count=3, private=private
        )
        assert row is not None
        assert row["base"] == 41
    rows = await sql.fetch("SELECT *, execute_after - created AS delay FROM pgqueuer")
    assert [Job.unpack(JobKind(row["entrypoint"]), row["payload"]) for row in rows] == [
        Job(INDEX, user_id, conversation_id, 42, 44)
    ]
    assert rows[0]["payload"] == Job(INDEX, user_id, conversation_id, 42, 44).pack()
    assert rows[0]["delay"] == timedelta(hours=1)


async def test_a_job_with_the_same_key_is_not_added_twice(dsn: str, queue: PostgresJobQueue) -> None:
    key = f"reembed:{UUID(int=7)}"
    for _ in range(2):
        await queue.enqueue(a_job(), dedupe=key)
    assert (await stats_of(queue)).queued == 1
    handler = Recorder()
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: is_empty(queue))
    await queue.enqueue(a_job(), dedupe=key)
    assert (await stats_of(queue)).queued == 1


async def test_a_delayed_job_waits(dsn: str, queue: PostgresJobQueue) -> None:
    handler = Recorder()
    await queue.enqueue(a_job(), delay=timedelta(hours=1))
    now = a_job()
    await queue.enqueue(now)
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: asyncio.sleep(0, handler.finished == [now]))
    assert (await stats_of(queue)).queued == 1


async def test_a_poison_job_is_tried_with_growing_delays_and_then_dead_with_its_reason(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder(failures=[ValueError(SECRET) for _ in range(3)])
    job = a_job()
    await queue.enqueue(job)
    async with working(dsn, {INDEX: handler}) as running:
        await eventually(lambda: has_dead(queue))
        (dead,) = (await queue.dead(None, 10, None)).rows
        assert (dead.kind, dead.attempts, dead.error_type) == (INDEX, 3, "ValueError")
        assert handler.started == [job] * 3
        assert (await stats_of(queue)).queued == 0
        # Revived, it is as good as new.
        await queue.retry(dead.id)
        await eventually(lambda: is_empty(queue))
    assert handler.finished == [job]
    count = partial(running.registry.get_sample_value, "sage_jobs_done_total")
    assert [count({"kind": "index_items", "outcome": o}) for o in ("again", "dead", "done")] == [2, 1, 1]
    with pytest.raises(SageError) as refused:
        await queue.retry(dead.id)
    assert refused.value.reason is Reason.NOT_FOUND
    # Nothing of the exception but its name is stored or logged by the library.
    stored = await sql.fetchval("SELECT string_agg(l::text, ' ') FROM pgqueuer_log l")
    assert "ValueError" in stored
    assert SECRET not in stored
    assert "Traceback" not in stored
    library = [record for record in caplog.records if record.name == "pgqueuer"]
    assert SECRET not in " ".join(logging.Formatter().format(record) for record in library)


def test_delays_grow_up_to_a_limit_and_outages_are_given_more_time() -> None:
    policy = RetryPolicy(
        attempts=4, patient_attempts=100, first=timedelta(seconds=1), longest=timedelta(seconds=3)
    )
    tries = [policy.after(number, "ValueError") for number in (1, 2, 3, 4)]
    assert [getattr(outcome, "delay", None) for outcome in tries] == [
        *(timedelta(seconds=seconds) for seconds in (1, 2, 3)),
        None,
    ]
    waiting = policy.after(99, "DATABASE_UNAVAILABLE", timedelta(seconds=9))
    assert getattr(waiting, "delay", None) == timedelta(seconds=9)
    assert not hasattr(policy.after(100, "DATABASE_UNAVAILABLE", timedelta(seconds=9)), "delay")


async def test_the_delay_before_a_retry_is_the_policys(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    handler = Recorder(failures=[ValueError(SECRET)])
    await queue.enqueue(a_job())
    async with working(dsn, {INDEX: handler}, policy=RetryPolicy(first=timedelta(minutes=4))):
        await eventually(lambda: asyncio.sleep(0, bool(handler.started)))
        await eventually(lambda: _is_queued(queue))
    row = await sql.fetchrow("SELECT attempts, execute_after - updated AS delay FROM pgqueuer")
    assert row is not None
    assert (row["attempts"], row["delay"]) == (1, timedelta(minutes=4))


async def _is_queued(queue: PostgresJobQueue) -> bool:
    stats = await stats_of(queue)
    return (stats.queued, stats.running) == (1, 0)


@pytest.mark.parametrize("error", [user_erased(), not_found("conversation")])
async def test_a_job_about_what_is_gone_is_done(dsn: str, queue: PostgresJobQueue, error: SageError) -> None:
    handler = Recorder(failures=[error])
    await queue.enqueue(a_job())
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: asyncio.sleep(0, bool(handler.started)))
        await eventually(lambda: is_empty(queue))
    assert len(handler.started) == 1


async def test_an_outage_costs_a_job_no_ordinary_attempts(dsn: str, queue: PostgresJobQueue) -> None:
    outages = [
        SageError(Reason.EMBEDDING_UNAVAILABLE, "later", retry_after=timedelta(milliseconds=1))
        for _ in range(QUICK.attempts + 1)
    ]
    handler = Recorder(failures=list(outages))
    await queue.enqueue(a_job())
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: is_empty(queue))
    assert len(handler.started) == len(outages) + 1


async def test_an_outage_that_does_not_end_kills_a_job_with_its_reason(
    dsn: str, queue: PostgresJobQueue
) -> None:
    policy = RetryPolicy(attempts=1, patient_attempts=2, first=timedelta(0))
    handler = Recorder(failures=[_outage(), _outage()])
    await queue.enqueue(a_job())
    async with working(dsn, {INDEX: handler}, policy=policy):
        await eventually(lambda: has_dead(queue))
    (dead,) = (await queue.dead(INDEX, 10, None)).rows
    assert dead.error_type == "DATABASE_UNAVAILABLE"


def _outage() -> SageError:
    error = database_unavailable()
    error.retry_after = timedelta(milliseconds=1)
    return error


async def test_a_job_that_hangs_fails(dsn: str, queue: PostgresJobQueue) -> None:
    handler = Recorder(gate=asyncio.Event())
    await queue.enqueue(a_job())
    async with working(
        dsn, {INDEX: handler}, policy=RetryPolicy(attempts=1), longest=timedelta(milliseconds=50)
    ):
        await eventually(lambda: has_dead(queue))
    (dead,) = (await queue.dead(None, 10, None)).rows
    assert dead.error_type == "TimeoutError"


async def test_a_job_that_cannot_be_read_is_dead(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    await queue.enqueue(a_job())
    await sql.execute("UPDATE pgqueuer SET payload = 'x'")
    handler = Recorder()
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: has_dead(queue))
    (dead,) = (await queue.dead(None, 10, None)).rows
    assert (dead.error_type, handler.started) == ("MalformedPayload", [])


async def test_dead_jobs_are_listed_by_kind_and_page_the_newest_first(
    queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    for kind in (INDEX, JobKind.INGEST_DOCUMENT, INDEX, INDEX):
        await queue.enqueue(a_job(kind))
    await sql.execute("UPDATE pgqueuer SET status = 'failed'")
    everything = await queue.dead(None, 10, None)
    ids = [job.id for job in everything.rows]
    assert (ids, everything.next) == (sorted(ids, reverse=True), None)
    first = await queue.dead(INDEX, 2, None)
    second = await queue.dead(INDEX, 2, first.next)
    assert [job.id for job in (*first.rows, *second.rows)] == [ids[0], ids[1], ids[3]]
    assert second.next is None


async def test_a_dead_job_whose_work_is_queued_again_is_not_queued_twice(
    queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    await queue.enqueue(a_job(), dedupe="one")
    await sql.execute("UPDATE pgqueuer SET status = 'failed'")
    await queue.enqueue(a_job(), dedupe="one")
    (dead,) = (await queue.dead(None, 10, None)).rows
    await queue.retry(dead.id)
    stats = await stats_of(queue)
    assert (stats.queued, stats.dead) == (1, 0)


async def test_a_job_is_found_by_polling(dsn: str, queue: PostgresJobQueue) -> None:
    handler = Recorder()
    async with working(dsn, {INDEX: handler}) as running:
        await eventually(lambda: asyncio.sleep(0, running.workers.is_alive()))
        job = a_job()
        await queue.enqueue(job)
        await eventually(lambda: is_empty(queue))
    assert handler.finished == [job]


async def test_two_workers_never_run_one_job_at_the_same_time(dsn: str, queue: PostgresJobQueue) -> None:
    """Jobs that take longer than the heartbeat's patience, so that only heartbeats hold them."""
    gate = asyncio.Event()
    handler = Recorder(gate=gate)
    jobs = [a_job() for _ in range(6)]
    for job in jobs:
        await queue.enqueue(job)
    async with working(dsn, {INDEX: handler}), working(dsn, {INDEX: handler}):
        await eventually(lambda: asyncio.sleep(0, len(handler.started) == len(jobs)))
        await asyncio.sleep(3 * FAST.heartbeat.total_seconds())
        gate.set()
        await eventually(lambda: is_empty(queue))
    assert sorted(handler.started, key=str) == sorted(jobs, key=str)


async def test_a_kind_runs_no_more_at_once_than_its_limit_on_all_workers_together(
    dsn: str, queue: PostgresJobQueue
) -> None:
    handler = Recorder(gate=asyncio.Event())
    for _ in range(8):
        await queue.enqueue(a_job())
    other = Recorder()
    await queue.enqueue(a_job(JobKind.REEMBED_USER))
    options = RunnerOptions(limits={INDEX: 2}, poll=FAST.poll)
    handlers = {INDEX: handler, JobKind.REEMBED_USER: other}
    async with working(dsn, handlers, options), working(dsn, handlers, options):
        # A kind at its limit does not hold up another.
        await eventually(lambda: asyncio.sleep(0, len(other.finished) == 1 and handler.at_once == 2))
        assert handler.gate is not None
        handler.gate.set()
        await eventually(lambda: is_empty(queue))
    assert (handler.most_at_once, len(handler.finished)) == (2, 8)


async def test_a_job_of_a_killed_worker_is_taken_by_another(dsn: str, queue: PostgresJobQueue) -> None:
    job = a_job()
    await queue.enqueue(job)
    async with doomed_worker(dsn):
        pass
    assert (await stats_of(queue)).running == 1
    handler = Recorder()
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: is_empty(queue))
    assert handler.finished == [job]


async def test_a_job_that_kills_its_workers_is_dead_in_the_end(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    """Nobody is left to count its failures, so those who take it after them do."""
    await queue.enqueue(a_job())
    for _ in range(QUICK.attempts):
        async with doomed_worker(dsn):
            pass
        await sql.execute("UPDATE pgqueuer SET heartbeat = now() - interval '1 hour'")
    handler = Recorder()
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: has_dead(queue))
        (dead,) = (await queue.dead(None, 10, None)).rows
        assert (dead.error_type, handler.started) == (WORKER_LOST, [])
        await queue.retry(dead.id)
        await eventually(lambda: is_empty(queue))
    assert len(handler.finished) == 1


async def test_a_worker_that_loses_its_connection_gives_up_its_jobs_and_comes_back(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    handler = Recorder(gate=asyncio.Event())
    job = a_job()
    await queue.enqueue(job)
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: asyncio.sleep(0, handler.at_once == 1))
        killed = await sql.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = 'sage-jobs' AND datname = current_database()"
        )
        assert killed == 1
        await eventually(lambda: asyncio.sleep(0, handler.at_once == 0))
        assert handler.gate is not None
        handler.gate.set()
        await eventually(lambda: is_empty(queue))
    assert (handler.started, handler.finished) == ([job] * 2, [job])


async def test_a_worker_that_stops_lets_its_jobs_finish(dsn: str, queue: PostgresJobQueue) -> None:
    handler = Recorder(gate=asyncio.Event())
    await queue.enqueue(a_job())
    async with working(dsn, {INDEX: handler}) as running:
        await eventually(lambda: asyncio.sleep(0, handler.at_once == 1))
        running.task.cancel()
        await asyncio.sleep(0.2)
        assert handler.at_once == 1
        assert handler.gate is not None
        handler.gate.set()
        await asyncio.wait({running.task})
    assert len(handler.finished) == 1
    assert await is_empty(queue)


async def test_a_worker_that_stops_gives_back_jobs_that_take_too_long(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    handler = Recorder(gate=asyncio.Event())
    await queue.enqueue(a_job())
    options = RunnerOptions(poll=FAST.poll, grace=timedelta(milliseconds=100))
    for _ in range(QUICK.attempts + 1):
        async with working(dsn, {INDEX: handler}, options):
            await eventually(lambda: asyncio.sleep(0, handler.at_once == 1))
        assert handler.at_once == 0
        assert await _is_queued(queue)
    # Being interrupted is no failure: it is neither counted nor a reason to die.
    assert await sql.fetchval("SELECT attempts FROM pgqueuer") == 0
    handler.gate = None
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: is_empty(queue))
    assert len(handler.finished) == 1


async def test_a_job_that_is_cancelled_is_not_lost(dsn: str, queue: PostgresJobQueue) -> None:
    """The library deletes a job whose task is cancelled, as at the end of a process that is in a hurry."""
    handler = Recorder(gate=asyncio.Event())
    job = a_job()
    await queue.enqueue(job)
    async with working(dsn, {INDEX: handler}):
        await eventually(lambda: asyncio.sleep(0, handler.at_once == 1))
        (dispatch,) = (task for task in asyncio.all_tasks() if "_dispatch" in repr(task.get_coro()))
        dispatch.cancel()
        await eventually(lambda: asyncio.sleep(0, len(handler.started) == 2))
        assert handler.gate is not None
        handler.gate.set()
        await eventually(lambda: is_empty(queue))
    assert handler.finished == [job]


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_worker_that_lost_its_job_to_another_cannot_fail_it(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection, attempts: int
) -> None:
    """It was away too long, like a machine that slept. One attempt would make it dead, two queue it."""
    handler = Recorder(gate=asyncio.Event(), failures=[ValueError(SECRET)])
    await queue.enqueue(a_job())
    async with working(dsn, {INDEX: handler}, policy=RetryPolicy(attempts=attempts, first=timedelta(0))):
        await eventually(lambda: asyncio.sleep(0, handler.at_once == 1))
        await sql.execute(
            "UPDATE pgqueuer SET queue_manager_id = gen_random_uuid(), heartbeat = now() + interval '1 hour'"
        )
        assert handler.gate is not None
        handler.gate.set()
        await eventually(lambda: asyncio.sleep(0, handler.at_once == 0))
    assert await sql.fetchval("SELECT status::text FROM pgqueuer") == "picked"
    assert len(handler.started) == 1


async def test_work_without_a_worker_is_seen(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    minute = timedelta(minutes=1)
    assert not (await queue.backlog(minute)).is_stuck(minute)
    await queue.enqueue(a_job())
    assert (await queue.backlog(minute)).overdue == 0
    await sql.execute("UPDATE pgqueuer SET execute_after = now() - interval '2 minutes'")
    backlog = await queue.backlog(minute)
    assert (backlog.overdue, backlog.idle_seconds, backlog.is_stuck(minute)) == (1, None, True)
    assert backlog.age_seconds >= 120
    async with doomed_worker(dsn):
        pass
    assert not (await queue.backlog(minute)).is_stuck(minute)
    await sql.execute("UPDATE pgqueuer SET heartbeat = now() - interval '2 minutes'")
    await sql.execute("UPDATE pgqueuer_log SET created = now() - interval '2 minutes'")
    assert (await queue.backlog(minute)).is_stuck(minute)


@dataclass
class Switch:
    on: bool = True

    async def __call__(self) -> bool:
        return self.on


async def test_while_jobs_are_not_allowed_none_is_begun_and_none_counts_as_tried(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    """The job comes while workers still look for one, before they have noticed."""

    async def workers_have_left() -> bool:
        return not await sql.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name = 'sage-jobs' AND datname = current_database()"
        )

    handler, switch, job = Recorder(), Switch(), a_job()

    async with working(dsn, {INDEX: handler}, allowed=switch) as running:
        await eventually(lambda: _true(running.workers.is_alive()))
        switch.on = False
        await queue.enqueue(job)
        await eventually(workers_have_left)
        assert handler.started == []
        assert (await stats_of(queue)).queued == 1
        assert await sql.fetchval("SELECT attempts FROM pgqueuer") == 0
        assert running.workers.is_alive(within=timedelta(0))
        switch.on = True
        await eventually(lambda: is_empty(queue))
    assert handler.started == [job]


async def _true(value: bool) -> bool:
    return value


async def test_a_worker_without_a_database_is_not_alive() -> None:
    async def refuse() -> asyncpg.Connection:
        raise OSError

    runner = PostgresJobRunner(refuse, FAST)
    workers = JobWorkers(
        runner=runner,
        handlers={},
        metrics=JobMetrics(CollectorRegistry(), None),  # type: ignore[arg-type]
        allowed=always,
    )
    task = asyncio.create_task(workers.run())
    await asyncio.sleep(0.05)
    assert not workers.is_alive()
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_log_is_pruned_but_for_the_reasons_of_dead_jobs(
    dsn: str, queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    await queue.enqueue(a_job())
    await queue.enqueue(a_job())
    async with working(dsn, {INDEX: Recorder(failures=[ValueError(SECRET)])}, policy=RetryPolicy(attempts=1)):
        await eventually(lambda: has_dead(queue))
        await eventually(lambda: _settled(queue))
    day = timedelta(days=1)
    assert await queue.prune(day) == 0
    await sql.execute("UPDATE pgqueuer_log SET created = now() - interval '2 days'")
    assert await queue.prune(day) == 3
    (dead,) = (await queue.dead(None, 10, None)).rows
    assert dead.error_type == "ValueError"
    assert await sql.fetchval("SELECT count(*) FROM pgqueuer_statistics") == 0


async def _settled(queue: PostgresJobQueue) -> bool:
    stats = await stats_of(queue)
    return (stats.queued, stats.running) == (0, 0)


async def test_metrics_show_the_numbers_of_the_last_refresh(
    queue: PostgresJobQueue, sql: asyncpg.Connection
) -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, queue)
    for _ in range(3):
        await queue.enqueue(a_job())
    await sql.execute("UPDATE pgqueuer SET created = now() - interval '90 seconds'")
    await sql.execute("UPDATE pgqueuer SET status = 'failed' WHERE id = (SELECT min(id) FROM pgqueuer)")
    await metrics.refresh()
    value = registry.get_sample_value
    assert value("sage_jobs", {"kind": "index_items", "state": "queued"}) == 2
    assert value("sage_jobs", {"kind": "index_items", "state": "dead"}) == 1
    assert (value("sage_job_lag_seconds", {"kind": "index_items"}) or 0) >= 90
    assert value("sage_job_lag_seconds", {"kind": "ingest_document"}) == 0


async def test_the_library_finds_its_schema_as_it_wants_it(sql: asyncpg.Connection) -> None:
    """A newer version that needs another schema fails here, and needs a migration."""
    queries = WatchedQueries.over(WatchedDriver(sql, lambda: None, lambda: None))
    assert list((await queries.plan_upgrade()).statements) == []


async def test_the_environment_cannot_rename_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = settings().model_dump()
    for name in expected:
        monkeypatch.setenv(f"PGQUEUER_{name.upper()}", "other")
        monkeypatch.setenv(name.upper(), "other")
    monkeypatch.setenv("PGQUEUER_SCHEMA", "other")
    assert settings().model_dump() == expected
    assert {settings().queue_table, settings().queue_table_log} == set(metadata.tables)


@asynccontextmanager
async def doomed_worker(dsn: str) -> AsyncIterator[None]:
    """A worker in a process of its own that takes a job, and is killed without a word."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__)), dsn),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"at it\n"
        yield
    finally:
        process.kill()
        await process.wait()


async def hold_a_job(dsn: str) -> None:
    async def for_ever(_job: Job) -> None:
        os.write(1, b"at it\n")
        await asyncio.Event().wait()

    async with working(dsn, {INDEX: for_ever}) as running:
        await running.task


if __name__ == "__main__":
    asyncio.run(hold_a_job(sys.argv[1]))
