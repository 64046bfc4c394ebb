"""Our side of pgqueuer's interfaces: what it may store, and what happens when things go wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

import asyncpg
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.qb import (
    QueryBuilderEnvironment,
    QueryQueueBuilder,
    QuerySchedulerBuilder,
)
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.domain.models import Job, TracebackRecord
from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.domain.types import JOB_STATUS, Channel
from sqlalchemy import ARRAY, BigInteger, Uuid, bindparam, func, insert, null, select, update

from sage_server.adapters.postgres.database import Statement
from sage_server.adapters.postgres.jobs import PICKED, QUEUED, jobs, log
from sage_server.domain.ids import INSTALLATION

_Ended: TypeAlias = tuple[Job, JOB_STATUS, TracebackRecord | None]
CONNECTION_LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
_log = logging.getLogger("sage.jobs")
_j = jobs.c
_l = log.c
_ids = func.any(bindparam("ids", type_=ARRAY(BigInteger())))
_mine = (_j.id == _ids) & (_j.status == PICKED) & (_j.queue_manager_id == bindparam("owner", type_=Uuid()))
_MINE = Statement(select(_j.id).where(_mine))
_freed = (
    update(jobs)
    .where(_mine)
    .values(status=QUEUED, queue_manager_id=null(), updated=func.now())
    .returning(_j.id, _j.entrypoint, _j.priority)
    .cte("freed")
)
_HAND_BACK = Statement(
    insert(log).from_select(
        ["job_id", "entrypoint", "priority", "status"],
        select(_freed.c.id, _freed.c.entrypoint, _freed.c.priority, QUEUED),
        include_defaults=False,
    )
)
_job_id = bindparam("job_id", type_=BigInteger())
_last_word = (
    select(func.coalesce(func.max(_l.id), 0))
    .where(_l.job_id == _job_id, _l.status != PICKED)
    .scalar_subquery()
)
_TIMES_LOST = Statement(
    select(func.count().label("picks")).where(_l.job_id == _job_id, _l.status == PICKED, _l.id > _last_word)
)


class JobFailedError(Exception):
    """A job failed for good. The message is the name of what went wrong."""


class HandedBack(RetryRequested):
    """A job goes back to the queue as if it had never been taken."""


def settings() -> DBSettings:
    """The names in the migration. Every field is given: what is not, pgqueuer reads from the environment."""
    return DBSettings(
        prefix="",
        db_schema=None,
        channel=Channel("ch_pgqueuer"),
        function="fn_pgqueuer_changed",
        statistics_table="pgqueuer_statistics",
        queue_status_type="pgqueuer_status",
        queue_table="pgqueuer",
        queue_table_log="pgqueuer_log",
        trigger="tg_pgqueuer_changed",
        schedules_table="pgqueuer_schedules",
        durability=Durability.durable,
        widen_id=False,
    )


class WatchedDriver(AsyncpgDriver):
    """Says when the queue answered, and when it no longer does.

    pgqueuer waits for running jobs before it reports a lost connection, and meanwhile nobody can send their
    heartbeats. So they are let go at once, before another worker takes them.
    """

    def __init__(
        self, connection: asyncpg.Connection, answered: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        super().__init__(connection)
        self._answered = answered
        self._lost = lost

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        """As pgqueuer's."""
        try:
            rows = await super().fetch(query, *args)
        except (asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError):
            raise  # another worker took the last free place; pgqueuer knows
        except CONNECTION_LOST:
            self._lost()
            raise
        self._answered()
        return rows


@dataclass
class WatchedQueries(Queries):
    """pgqueuer's statements, but for how jobs end.

    Of an exception it stores the name only. A job that was cancelled goes back to the queue, where pgqueuer
    would delete it. Only the worker that holds a job may fail it or queue it again.
    """

    owner: UUID = INSTALLATION

    @classmethod
    def over(cls, driver: WatchedDriver) -> WatchedQueries:
        """With our names."""
        names = settings()
        return cls(
            driver,
            qbe=QueryBuilderEnvironment(names),
            qbq=QueryQueueBuilder(names),
            qbs=QuerySchedulerBuilder(names),
        )

    async def log_jobs(self, job_status: list[_Ended]) -> None:
        """How jobs ended."""
        await self._hand_back([job.id for job, status, _ in job_status if status == "canceled"])
        failed = [job.id for job, status, _ in job_status if status != "successful"]
        mine = await self._still_mine(failed) if failed else set()
        ended: list[_Ended] = [
            (job, status, _harmless(record))
            for job, status, record in job_status
            if status == "successful" or (status != "canceled" and job.id in mine)
        ]
        if ended:
            await super().log_jobs(ended)

    async def retry_job(self, job: Job, delay: timedelta, traceback_record: TracebackRecord | None) -> None:
        """Queue a job again. If that fails it stays taken, until its heartbeat is too old."""
        try:
            if traceback_record is not None and traceback_record.exception_type == HandedBack.__name__:
                await self._hand_back([job.id])
            elif job.id in await self._still_mine([job.id]):
                await super().retry_job(job, delay, _harmless(traceback_record))
        except CONNECTION_LOST as error:
            _log.warning("a job was left to its heartbeat", exc_info=error, extra={"job": job.id})

    async def times_lost(self, job_id: int) -> int:
        """How often in a row the job was taken without a word of how that ended, this time not counted."""
        rows = await self.driver.fetch(_TIMES_LOST.sql, *_TIMES_LOST.arguments({"job_id": job_id}))
        picks = rows[0]["picks"]
        assert isinstance(picks, int)
        return max(0, picks - 1)

    async def _still_mine(self, ids: Sequence[int]) -> set[object]:
        values = {"ids": list(ids), "owner": self.owner}
        return {row["id"] for row in await self.driver.fetch(_MINE.sql, *_MINE.arguments(values))}

    async def _hand_back(self, ids: Sequence[int]) -> None:
        if ids:
            values = {"ids": list(ids), "owner": self.owner}
            await self.driver.execute(_HAND_BACK.sql, *_HAND_BACK.arguments(values))


def _harmless(record: TracebackRecord | None) -> TracebackRecord | None:
    """The name of what went wrong: the message of our own exceptions, the class of others."""
    if record is None:
        return None
    ours = record.exception_type in {JobFailedError.__name__, RetryRequested.__name__}
    return TracebackRecord(
        job_id=record.job_id,
        timestamp=record.timestamp,
        exception_type=record.exception_message if ours else record.exception_type,
        exception_message="",
        traceback="",
        additional_context=None,
    )
