"""The log of events on Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Uuid, bindparam, func, select

from sage_server.adapters.postgres.database import Database, Record, Statement
from sage_server.adapters.postgres.event_rows import EVENT_COLUMNS, opened_event
from sage_server.adapters.postgres.schema import events, heads, users
from sage_server.adapters.postgres.sealed_rows import cipher_for
from sage_server.domain.errors import user_erased
from sage_server.domain.events import Event, EventRange
from sage_server.ports.keys import KeyRing, UserCipher

_FEW = 32
"""Rows that are opened on the event loop; more of them go to a thread."""
_e, _h = events.c, heads.c
# The rows of somebody who is being erased are still there for a while; their numbers are not.
_living = select(_h.user_id, _h.last_event, _h.pruned_event).join(users).where(users.c.erased_at.is_(None))
_RANGE = Statement(_living.where(_h.user_id == bindparam("user_id")))
_LAST = Statement(_living.where(_h.user_id == func.any(bindparam("user_ids", type_=ARRAY(Uuid())))))
_next = (
    select(*EVENT_COLUMNS)
    .where(_e.user_id == bindparam("user_id"), _e.seq > bindparam("seq", type_=BigInteger()))
    .order_by(_e.seq)
    .limit(bindparam("limit"))
)
_AFTER = Statement(_next)
_OF_TURN = Statement(_next.where(_e.turn_id == bindparam("turn_id")))


class PostgresEventStore:
    """Implements EventStore. Writers store events themselves, with what the events tell of."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def range(self, user_id: UUID) -> EventRange:
        """The user's counters."""
        row = await self._database.fetchrow(_RANGE, user_id=user_id)
        if row is None:
            raise user_erased()
        return EventRange(row["pruned_event"] + 1, row["last_event"])

    async def after(self, user_id: UUID, seq: int, limit: int) -> Sequence[Event]:
        """A stretch of the primary key."""
        return await self._read(_AFTER, user_id, seq=seq, limit=limit)

    async def of_turn(self, user_id: UUID, turn_id: UUID, seq: int, limit: int) -> Sequence[Event]:
        """A stretch of the index by turn."""
        return await self._read(_OF_TURN, user_id, turn_id=turn_id, seq=seq, limit=limit)

    async def last(self, user_ids: Sequence[UUID]) -> dict[UUID, int]:
        """One statement for all; without those who are erased."""
        rows = await self._database.fetch(_LAST, user_ids=list(user_ids))
        return {row["user_id"]: row["last_event"] for row in rows}

    async def _read(self, statement: Statement, user_id: UUID, **values: Any) -> list[Event]:
        before = await self._keys.cipher(user_id)
        rows = await self._database.fetch(statement, user_id=user_id, **values)
        cipher = await cipher_for(self._keys, user_id, rows, before)
        if len(rows) <= _FEW:
            return _opened(cipher, rows)
        return await asyncio.to_thread(_opened, cipher, rows)


def _opened(cipher: UserCipher, rows: Sequence[Record]) -> list[Event]:
    return [opened_event(cipher, row) for row in rows]
