"""The queue of background jobs on the tables of pgqueuer. `jobs_runner.py` takes jobs out of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    DateTime,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    Select,
    Table,
    Text,
    Uuid,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.selectable import FromClause

from sage_server.adapters.postgres.database import Database, Statement, Transaction
from sage_server.domain.errors import not_found
from sage_server.domain.jobs import Backlog, DeadJob, Job, JobKind, JobQueueStats
from sage_server.domain.paging import Page
from sage_server.ports.jobs import NOW

_LAST = 2**63 - 1
_PRUNED = 5000
_UNKNOWN = "Unknown"

metadata = MetaData()
"""Tables that pgqueuer owns, apart from ours: they belong to no user and hold no sealed cells."""
_STATUS = postgresql.ENUM(
    *("queued", "picked", "successful", "exception", "canceled", "deleted", "failed"),
    name="pgqueuer_status",
    create_type=False,
)
_TIME = DateTime(timezone=True)
jobs = Table(
    "pgqueuer",
    metadata,
    Column("id", BigInteger(), primary_key=True),
    Column("priority", Integer(), nullable=False),
    Column("queue_manager_id", Uuid()),
    Column("created", _TIME, nullable=False, server_default=func.now()),
    Column("updated", _TIME, nullable=False, server_default=func.now()),
    Column("heartbeat", _TIME, nullable=False, server_default=func.now()),
    Column("execute_after", _TIME, nullable=False, server_default=func.now()),
    Column("status", _STATUS, nullable=False),
    Column("entrypoint", Text(), nullable=False),
    Column("dedupe_key", Text()),
    Column("payload", LargeBinary()),
    Column("attempts", Integer(), nullable=False, server_default="0"),
)
log = Table(
    "pgqueuer_log",
    metadata,
    Column("id", BigInteger(), primary_key=True),
    Column("created", _TIME, nullable=False, server_default=func.now()),
    Column("job_id", BigInteger(), nullable=False),
    Column("status", _STATUS, nullable=False),
    Column("priority", Integer(), nullable=False),
    Column("entrypoint", Text(), nullable=False),
    Column("traceback", postgresql.JSONB()),
)
_j = jobs.c
_l = log.c


def _status(name: str) -> ColumnElement[str]:
    """A literal: the partial indexes need one."""
    return literal_column(f"'{name}'::pgqueuer_status")


QUEUED, PICKED, FAILED = (_status(name) for name in ("queued", "picked", "failed"))


OF_USER = func.substring(_j.payload, 1, 16) == func.uuid_send(bindparam("user_id", type_=Uuid()))
"""The user comes first in a payload; Job.pack says so."""


def has_job(kind: JobKind, user_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the user of a row has a job of a kind, be it that it waits, runs or is dead."""
    of_user = func.substring(_j.payload, 1, 16) == func.uuid_send(user_id)
    return select(_j.id).where(_j.entrypoint == literal(kind.value, Text()), of_user).exists()


def enqueued(
    kind: JobKind,
    *,
    user_id: ColumnElement[Any],
    subject: ColumnElement[Any],
    first: ColumnElement[int],
    last: ColumnElement[int],
    source: FromClause | None = None,
    where: Sequence[ColumnElement[bool]] = (),
    delay: timedelta = NOW,
) -> Insert:
    """Insert a job for every row of `source` that `where` lets through, or one job without `source`.

    Made to be a CTE of the statement that writes what the job is about. The payload is put together by the
    database, as `Job.pack` does it, so it can hold numbers that the same statement hands out.
    """
    payload = _joined(
        func.uuid_send(user_id),
        func.uuid_send(subject),
        func.int8send(cast(first, BigInteger())),
        func.int8send(cast(last, BigInteger())),
    )
    rows = _rows(literal(kind.value, Text()), payload, literal(delay, Interval()), null())
    if source is not None:
        rows = rows.select_from(source)
    return _inserted(rows.where(*where))


def _joined(*parts: ColumnElement[Any]) -> ColumnElement[Any]:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.op("||", return_type=LargeBinary())(part)
    return whole


def _rows(
    kind: ColumnElement[Any],
    payload: ColumnElement[Any],
    delay: ColumnElement[Any],
    dedupe: ColumnElement[Any],
) -> Select[Any]:
    return select(literal_column("0"), QUEUED, kind, payload, func.now() + delay, dedupe)


def _inserted(rows: Select[Any]) -> postgresql.Insert:
    columns = ["priority", "status", "entrypoint", "payload", "execute_after", "dedupe_key"]
    return postgresql.insert(jobs).from_select(columns, rows, include_defaults=False)


_ENQUEUE = Statement(
    _inserted(
        _rows(
            bindparam("kind", type_=Text()),
            bindparam("payload", type_=LargeBinary()),
            bindparam("delay", type_=Interval()),
            bindparam("dedupe", type_=Text()),
        )
    ).on_conflict_do_nothing()  # one with the same dedupe key waits or runs
)
_waiting = func.count().filter(_j.status == QUEUED)
_STATS = Statement(
    select(
        _j.entrypoint,
        _waiting.label("queued"),
        func.count().filter(_j.status == PICKED).label("running"),
        func.count().filter(_j.status == FAILED).label("dead"),
        func.extract("epoch", func.now() - func.min(_j.created).filter(_j.status == QUEUED)).label("lag"),
    ).group_by(_j.entrypoint)
)
_reason = (
    select(_l.traceback["exception_type"].astext)
    .where(_l.job_id == _j.id, _l.status == FAILED)
    .order_by(_l.created.desc(), _l.id.desc())
    .limit(1)
    .correlate(jobs)
    .scalar_subquery()
)
_DEAD = Statement(
    select(_j.id, _j.entrypoint, _j.attempts, _j.created, _j.updated, _reason.label("error_type"))
    .where(
        _j.status == FAILED,
        _j.id < bindparam("after", type_=BigInteger()),
        _j.entrypoint == func.any(bindparam("kinds", type_=ARRAY(Text()))),
    )
    .order_by(_j.id.desc())
    .limit(bindparam("limit"))
)
_this_dead = (_j.id == bindparam("job_id", type_=BigInteger())) & (_j.status == FAILED)
_RETRY = Statement(
    update(jobs)
    .where(_this_dead)
    .values(status=QUEUED, attempts=0, execute_after=func.now(), updated=func.now(), queue_manager_id=null())
)
_DROP = Statement(delete(jobs).where(_this_dead))
_due_at = case((_j.status == QUEUED, _j.execute_after), else_=_j.heartbeat)
_last_taken = select(func.max(_l.created)).where(_l.status == PICKED).scalar_subquery()
_last_beat = select(func.max(_j.heartbeat)).where(_j.status == PICKED).scalar_subquery()
_BACKLOG = Statement(
    select(
        func.count().label("overdue"),
        func.extract("epoch", func.now() - func.min(_due_at)).label("age"),
        func.extract("epoch", func.now() - func.greatest(_last_taken, _last_beat)).label("idle"),
    ).where(
        _j.status.in_([QUEUED, PICKED]),
        _due_at < func.now() - bindparam("overdue_after", type_=Interval()),
    )
)
_kept_for_the_dead = (_l.status == FAILED) & _l.job_id.in_(select(_j.id).where(_j.status == FAILED))
_PRUNE = Statement(
    delete(log).where(
        _l.id.in_(
            select(_l.id)
            .where(_l.created < func.now() - bindparam("kept", type_=Interval()), ~_kept_for_the_dead)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )
    )
)


async def enqueue_in(
    transaction: Transaction, job: Job, delay: timedelta = NOW, dedupe: str | None = None
) -> None:
    """Enqueue a job that is there if and only if the transaction commits. See JobQueue.enqueue."""
    await transaction.execute(_ENQUEUE, **_values(job, delay, dedupe))


class PostgresJobQueue:
    """Implements JobQueue. A dead job is one that pgqueuer holds as `failed`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def enqueue(self, job: Job, delay: timedelta = NOW, dedupe: str | None = None) -> None:
        """One statement."""
        await self._database.execute(_ENQUEUE, **_values(job, delay, dedupe))

    async def stats(self) -> Sequence[JobQueueStats]:
        """One pass over the queue, which holds what is not done."""
        found = {row["entrypoint"]: row for row in await self._database.fetch(_STATS)}
        return [
            JobQueueStats(kind, row["queued"], row["running"], row["dead"], float(row["lag"] or 0))
            if (row := found.get(kind.value)) is not None
            else JobQueueStats(kind, 0, 0, 0, 0.0)
            for kind in JobKind
        ]

    async def dead(self, kind: JobKind | None, size: int, after: int | None) -> Page[DeadJob, int]:
        """A stretch of the index of dead jobs, each with the reason that the log has last."""
        rows = await self._database.fetch(
            _DEAD,
            kinds=[each.value for each in JobKind if kind in (None, each)],
            after=_LAST if after is None else after,
            limit=size + 1,
        )
        page = [_dead_job(row) for row in rows[:size]]
        return Page(page, page[-1].id if len(rows) > size else None)

    async def retry(self, job_id: int) -> None:
        """If the same work is queued already, the dead job has nothing left to do and goes."""
        try:
            changed = await self._database.execute(_RETRY, job_id=job_id)
        except asyncpg.UniqueViolationError:
            changed = await self._database.execute(_DROP, job_id=job_id)
        if not changed:
            raise not_found("job")

    async def backlog(self, overdue_after: timedelta) -> Backlog:
        """Also counts what a worker took and no longer speaks of."""
        row = await self._database.fetchrow(_BACKLOG, overdue_after=overdue_after)
        assert row is not None
        idle = None if row["idle"] is None else float(row["idle"])
        return Backlog(row["overdue"], float(row["age"] or 0), idle)

    async def prune(self, kept: timedelta) -> int:
        """In batches, so that no lock is held for long."""
        pruned = 0
        while batch := await self._database.execute(_PRUNE, kept=kept, limit=_PRUNED):
            pruned += batch
        return pruned


def _values(job: Job, delay: timedelta, dedupe: str | None) -> dict[str, object]:
    return {"kind": job.kind.value, "payload": job.pack(), "delay": delay, "dedupe": dedupe}


def _dead_job(row: asyncpg.Record) -> DeadJob:
    return DeadJob(
        id=row["id"],
        kind=JobKind(row["entrypoint"]),
        attempts=row["attempts"] + 1,
        error_type=row["error_type"] or _UNKNOWN,
        created_at=row["created"],
        failed_at=row["updated"],
    )
