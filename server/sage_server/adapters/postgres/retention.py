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
    items,
    replicas,
    requests,
    signals,
)
from sage_server.ports.stores import RetentionPolicy

_LOCK = 0x5A6E0001
_SIGNALS_KEPT = timedelta(days=1)
_LOCKED = Statement(select(func.pg_try_advisory_xact_lock(bindparam("lock"))))
_c = conversations.c


def _batch(table: Table, keys: tuple[str, ...], due: ColumnElement[bool]) -> Statement:
    """Delete some of what is due."""
    columns = [table.c[name] for name in keys]
    some = select(*columns).where(due).limit(bindparam("limit"))
    which = tuple_(*columns).in_(some) if len(columns) > 1 else columns[0].in_(some)
    return Statement(delete(table).where(which))


def _threads(due: ColumnElement[bool]) -> tuple[Statement, Statement]:
    """The items of threads that are due, and the threads."""
    threads = select(_c.user_id, _c.id).where(due)
    of_threads = tuple_(items.c.user_id, items.c.conversation_id).in_(threads)
    return _batch(items, ("user_id", "id"), of_threads), _batch(conversations, ("user_id", "id"), due)


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
            pruned = await self._threads(transaction, _DELETED, policy.deleted_before, limit)
            if policy.inactive_before is not None:
                pruned += await self._threads(transaction, _INACTIVE, policy.inactive_before, limit)
            pruned += await transaction.execute(_REQUESTS, now=now, limit=limit)
            pruned += await transaction.execute(_SIGNALS, signals_before=now - _SIGNALS_KEPT, limit=limit)
            return pruned + await transaction.execute(_REPLICAS, limit=limit)

        return await self._database.transact(prune_all)

    async def _threads(
        self,
        transaction: Transaction,
        statements: tuple[Statement, Statement],
        before: datetime,
        limit: int,
    ) -> int:
        of_items, of_threads = statements
        pruned = await transaction.execute(of_items, before=before, limit=limit)
        if pruned < limit:
            # Every item is gone, so a thread's own deletion is small.
            pruned += await transaction.execute(of_threads, before=before, limit=limit)
        return pruned
