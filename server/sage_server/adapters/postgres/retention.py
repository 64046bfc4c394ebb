"""Removing what is no longer kept."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Table, bindparam, delete, func, select, tuple_
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Database, Statement, Transaction
from sage_server.adapters.postgres.replicas import LIVE_FOR
from sage_server.adapters.postgres.schema import (
    IS_THREAD,
    conversations,
    replicas,
    requests,
    signals,
)
from sage_server.ports.stores import RetentionPolicy

_LOCK = 0x5A6E0001
_SIGNALS_KEPT = timedelta(days=1)
_THREADS = 50
_LOCKED = Statement(select(func.pg_try_advisory_xact_lock(bindparam("lock"))))
_c = conversations.c


def _batch(table: Table, keys: tuple[str, ...], due: ColumnElement[bool]) -> Statement:
    """Delete some of what is due."""
    columns = [table.c[name] for name in keys]
    some = select(*columns).where(due).limit(bindparam("limit"))
    which = tuple_(*columns).in_(some) if len(columns) > 1 else columns[0].in_(some)
    return Statement(delete(table).where(which))


def _threads(due: ColumnElement[bool]) -> Statement:
    """Delete some threads that are due, and their items with them.

    Their rows are locked first: whoever undeletes or appends at this moment either comes first, and the
    thread is no longer due, or finds it gone.
    """
    locked = select(_c.user_id, _c.id).where(due).limit(_THREADS).with_for_update(skip_locked=True)
    return Statement(delete(conversations).where(tuple_(_c.user_id, _c.id).in_(locked)))


_DELETED = _threads(IS_THREAD & (_c.deleted_at < bindparam("before")))
_INACTIVE = _threads(IS_THREAD & (_c.active_at < bindparam("before")))
_REQUESTS = _batch(requests, ("user_id", "id"), requests.c.expires_at < bindparam("now"))
_SIGNALS = _batch(signals, ("seq",), signals.c.created_at < bindparam("signals_before"))
_REPLICAS = _batch(replicas, ("id",), replicas.c.seen_at < func.now() - 20 * LIVE_FOR)


class PostgresRetentionStore:
    """Implements RetentionStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def prune(self, policy: RetentionPolicy, now: datetime, limit: int) -> int:
        """A batch of each, in one transaction under an advisory lock: one replica at a time."""

        async def prune_all(transaction: Transaction) -> int:
            locked = await transaction.fetchrow(_LOCKED, lock=_LOCK)
            if locked is None or not locked[0]:
                return 0
            pruned = await transaction.execute(_DELETED, before=policy.deleted_before)
            if policy.inactive_before is not None:
                pruned += await transaction.execute(_INACTIVE, before=policy.inactive_before)
            pruned += await transaction.execute(_REQUESTS, now=now, limit=limit)
            pruned += await transaction.execute(_SIGNALS, signals_before=now - _SIGNALS_KEPT, limit=limit)
            return pruned + await transaction.execute(_REPLICAS, limit=limit)

        return await self._database.transact(prune_all)
