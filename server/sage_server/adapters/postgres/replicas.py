"""What replicas tell each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from sage_server.adapters.postgres.database import Database, Statement
from sage_server.adapters.postgres.schema import replicas, signal_head, signals
from sage_server.ports.clock import Clock
from sage_server.ports.stores import Replica, Signal

LIVE_FOR = timedelta(seconds=15)
"""A replica that has not reported for this long counts as gone."""

_next = (
    update(signal_head)
    .values(last_seq=signal_head.c.last_seq + 1)
    .returning(signal_head.c.last_seq)
    .cte("next")
)
SIGNAL = Statement(
    insert(signals)
    .from_select(
        ["seq", "subject", "created_at"],
        select(
            _next.c.last_seq,
            bindparam("subject", type_=signals.c.subject.type),
            bindparam("now", type_=signals.c.created_at.type),
        ),
    )
    .returning(signals.c.seq)
)
"""The counter's row lock, held until commit, makes the order of numbers the order of commits: a replica
that goes on after the last number it saw misses none."""

_HEAD = Statement(select(signal_head.c.last_seq))
_report = upsert(replicas).values(
    id=bindparam("id"),
    version=bindparam("version"),
    applied=bindparam("applied"),
    started_at=bindparam("started_at"),
    seen_at=func.now(),  # the database's clock: replicas' clocks may disagree
)
_REPORT = Statement(
    _report.on_conflict_do_update(
        index_elements=[replicas.c.id],
        set_={"applied": _report.excluded.applied, "seen_at": _report.excluded.seen_at},
    )
)
_AFTER = Statement(
    select(signals.c.seq, signals.c.subject)
    .where(signals.c.seq > bindparam("applied"))
    .order_by(signals.c.seq)
)
_LEAVE = Statement(delete(replicas).where(replicas.c.id == bindparam("id")))
_LIVE = Statement(
    select(replicas.c.id, replicas.c.started_at, replicas.c.seen_at, replicas.c.version)
    .where(replicas.c.seen_at > func.now() - LIVE_FOR)
    .order_by(replicas.c.started_at)
)
_applied = replicas.c.applied >= bindparam("signal", type_=replicas.c.applied.type)
_BEHIND = Statement(
    select(
        func.count().filter(_applied).label("confirmed"), func.count().filter(~_applied).label("behind")
    ).where(replicas.c.seen_at > func.now() - LIVE_FOR)
)


class PostgresReplicaStore:
    """Implements ReplicaStore."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def head(self) -> int:
        """The counter."""
        row = await self._database.fetchrow(_HEAD)
        assert row is not None
        return int(row["last_seq"])

    async def signal(self, user_id: UUID) -> int:
        """Append to the log."""
        row = await self._database.fetchrow(SIGNAL, subject=user_id, now=self._clock.now())
        assert row is not None
        return int(row["seq"])

    async def report(self, replica: Replica, applied: int) -> Sequence[Signal]:
        """Upsert the replica's row and read the log."""
        await self._database.execute(
            _REPORT,
            id=replica.id,
            version=replica.version,
            applied=applied,
            started_at=replica.started_at,
        )
        rows = await self._database.fetch(_AFTER, applied=applied)
        return [Signal(row["seq"], row["subject"]) for row in rows]

    async def leave(self, replica_id: UUID) -> None:
        """Delete the replica's row."""
        await self._database.execute(_LEAVE, id=replica_id)

    async def live(self) -> Sequence[Replica]:
        """Those that reported lately, the oldest first."""
        rows = await self._database.fetch(_LIVE)
        return [Replica(row["id"], row["started_at"], row["seen_at"], row["version"]) for row in rows]

    async def behind(self, signal: int) -> tuple[int, int]:
        """Counted over those that reported lately."""
        row = await self._database.fetchrow(_BEHIND, signal=signal)
        assert row is not None
        return row["confirmed"], row["behind"]
