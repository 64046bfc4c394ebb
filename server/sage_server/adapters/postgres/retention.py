"""Removing what is no longer kept."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ARRAY, Table, Uuid, bindparam, delete, func, select, tuple_, update
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Database, Statement, Transaction
from sage_server.adapters.postgres.memory_statements import trace
from sage_server.adapters.postgres.replicas import LIVE_FOR
from sage_server.adapters.postgres.schema import (
    IS_GONE,
    IS_LIVE,
    IS_THREAD,
    conversations,
    events,
    heads,
    memories,
    replicas,
    requests,
    signals,
)
from sage_server.domain.memories import MemoryState
from sage_server.ports.stores import RetentionPolicy

_LOCK = 0x5A6E0001
_SIGNALS_KEPT = timedelta(days=1)
_THREADS = 50
_TRACES_KEPT = timedelta(days=7)
_LOCKED = Statement(select(func.pg_try_advisory_xact_lock(bindparam("lock"))))
_c, _m, _h, _e = conversations.c, memories.c, heads.c, events.c


def _batch(table: Table, keys: tuple[str, ...], due: ColumnElement[bool]) -> Statement:
    """Delete some of what is due."""
    columns = [table.c[name] for name in keys]
    some = select(*columns).where(due).limit(bindparam("limit"))
    which = tuple_(*columns).in_(some) if len(columns) > 1 else columns[0].in_(some)
    return Statement(delete(table).where(which))


def _due(due: ColumnElement[bool]) -> Statement:
    """Lock some threads that are due: whoever undeletes, appends or indexes at this moment either comes
    first, and is seen by the statement that deletes, or finds the thread gone."""
    return Statement(select(_c.user_id, _c.id).where(due).limit(_THREADS).with_for_update(skip_locked=True))


def _delete_threads() -> Statement:
    """Delete threads that are locked, their items with them, and what search knew of them."""
    arrays = (bindparam("user_ids", type_=ARRAY(Uuid())), bindparam("ids", type_=ARRAY(Uuid())))
    locked = func.unnest(*arrays).table_valued("user_id", "id", name="locked").render_derived()
    gone = (
        delete(conversations)
        .where(tuple_(_c.user_id, _c.id).in_(select(locked.c.user_id, locked.c.id)))
        .returning(_c.user_id, _c.id)
        .cte("gone")
    )
    theirs = (_m.user_id == gone.c.user_id) & (_m.conversation_id == gone.c.id) & IS_LIVE
    head = (
        update(heads)
        .where(_h.user_id.in_(select(_m.user_id).where(theirs)))
        .values(memory_revision=_h.memory_revision + 1)
        .returning(_h.user_id, _h.memory_revision)
        .cte("head")
    )
    forgotten = (
        update(memories)
        .where(theirs, _m.user_id == head.c.user_id)
        .values(trace(head.c.memory_revision, MemoryState.DELETED))
    )
    return Statement(select(gone.c.id).add_cte(forgotten.cte("forgotten")))


def _traces() -> Statement:
    """Forget some deletions that every replica has seen. The trace of a message that the user deleted stays
    as long as its conversation: it keeps the message from being indexed again."""
    known = select(_c.id).where(_c.user_id == _m.user_id, _c.id == _m.conversation_id).exists()
    kept = (_m.state == int(MemoryState.DELETED)) & _m.conversation_id.is_not(None) & known
    due = select(_m.user_id, _m.id).where(IS_GONE, _m.updated_at < bindparam("traces_before"), ~kept)
    gone = (
        delete(memories)
        .where(tuple_(_m.user_id, _m.id).in_(due.limit(bindparam("limit"))))
        .returning(_m.user_id, _m.revision)
        .cte("gone")
    )
    latest = select(gone.c.user_id, func.max(gone.c.revision).label("revision")).group_by(gone.c.user_id)
    newest = latest.cte("newest")
    pruned = (
        update(heads)
        .where(_h.user_id == newest.c.user_id)
        .values(pruned_revision=func.greatest(_h.pruned_revision, newest.c.revision))
    )
    return Statement(select(gone.c.revision).add_cte(pruned.cte("pruned")))


def _expired_events() -> Statement:
    """Remove some events that are no longer kept, and note up to which number some are gone."""
    due = select(_e.user_id, _e.seq).where(_e.expires_at < bindparam("now")).order_by(_e.expires_at)
    gone = (
        delete(events)
        .where(tuple_(_e.user_id, _e.seq).in_(due.limit(bindparam("limit"))))
        .returning(_e.user_id, _e.seq)
        .cte("gone")
    )
    newest = select(gone.c.user_id, func.max(gone.c.seq).label("seq")).group_by(gone.c.user_id).cte("newest")
    pruned = (
        update(heads)
        .where(_h.user_id == newest.c.user_id)
        .values(pruned_event=func.greatest(_h.pruned_event, newest.c.seq))
    )
    return Statement(select(gone.c.seq).add_cte(pruned.cte("pruned")))


_DELETED = _due(IS_THREAD & (_c.deleted_at < bindparam("before")))
_INACTIVE = _due(IS_THREAD & (_c.active_at < bindparam("before")))
_DELETE_THREADS = _delete_threads()
_TRACES = _traces()
_EVENTS = _expired_events()
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
            pruned = await _pruned(transaction, _DELETED, policy.deleted_before, now)
            if policy.inactive_before is not None:
                pruned += await _pruned(transaction, _INACTIVE, policy.inactive_before, now)
            pruned += await transaction.execute(_TRACES, traces_before=now - _TRACES_KEPT, limit=limit)
            pruned += await transaction.execute(_REQUESTS, now=now, limit=limit)
            pruned += await transaction.execute(_SIGNALS, signals_before=now - _SIGNALS_KEPT, limit=limit)
            pruned += await transaction.execute(_REPLICAS, limit=limit)
            # Last, since whoever stores events waits for the counters that this changes.
            return pruned + await transaction.execute(_EVENTS, now=now, limit=limit)

        return await self._database.transact(prune_all)


async def _pruned(transaction: Transaction, due: Statement, before: datetime, now: datetime) -> int:
    """Delete some threads that are due."""
    locked = await transaction.fetch(due, before=before)
    if not locked:
        return 0
    return await transaction.execute(
        _DELETE_THREADS,
        user_ids=[row["user_id"] for row in locked],
        ids=[row["id"] for row in locked],
        now=now,
    )
