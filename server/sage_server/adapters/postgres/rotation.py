"""Sealing rows again with a user's current key. Which tables and columns, the schema knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import ARRAY, LargeBinary, Table, Uuid, bindparam, delete, func, select, update
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.schema import SUPERSEDED, cell, sealed_columns, sealed_tables, user_keys
from sage_server.adapters.postgres.sealed_rows import cipher_for
from sage_server.ports.keys import Cell, KeyRing

_k = user_keys.c
_PENDING = Statement(select(_k.user_id).where(SUPERSEDED).distinct().limit(bindparam("limit")))
_OLD_VERSIONS = Statement(
    select(_k.key_version)
    .where(_k.user_id == bindparam("user_id"), _k.key_version < bindparam("current"))
    .order_by(_k.key_version)
)
_DROP = Statement(
    delete(user_keys).where(_k.user_id == bindparam("user_id"), _k.key_version == bindparam("key_version"))
)


@dataclass(frozen=True)
class _Resealing:
    """The statements of one table."""

    cells: tuple[Cell, ...]
    select: Statement
    update: Statement

    @classmethod
    def of(cls, table: Table) -> _Resealing:
        columns = sealed_columns(table)
        mine = table.c.user_id == bindparam("user_id")
        arrays: list[ColumnElement[Any]] = [bindparam("ids", type_=ARRAY(Uuid()))]
        arrays += [bindparam(f"new_{column.name}", type_=ARRAY(LargeBinary())) for column in columns]
        names = ["row_id", *(f"new_{column.name}" for column in columns)]
        new = func.unnest(*arrays).table_valued(*names, name="new").render_derived()
        return cls(
            cells=tuple(cell(column) for column in columns),
            select=Statement(
                select(table.c.id, table.c.key_version, *columns)
                .where(mine, table.c.key_version < bindparam("current"))
                .limit(bindparam("limit"))
                # A row that somebody is changing now is left for the next round.
                .with_for_update(skip_locked=True)
            ),
            update=Statement(
                update(table)
                .where(mine, table.c.id == new.c.row_id)
                .values(
                    key_version=bindparam("current", type_=table.c.key_version.type),
                    **{column.name: new.c[f"new_{column.name}"] for column in columns},
                )
            ),
        )


_TABLES = [_Resealing.of(table) for table in sealed_tables()]


class PostgresRotationStore:
    """Implements RotationStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def pending(self, limit: int) -> Sequence[UUID]:
        """By a partial index that is empty but for them."""
        return [row["user_id"] for row in await self._database.fetch(_PENDING, limit=limit)]

    async def reseal(self, user_id: UUID, limit: int) -> int:
        """A batch of each table, each in a transaction that holds the rows' locks."""
        done = 0
        for table in _TABLES:
            reseal = partial(self._reseal_table, table=table, user_id=user_id, limit=limit)
            done += await self._database.transact(reseal)
        return done

    async def drop_unused(self, user_id: UUID) -> int:
        """Try to delete each older version: the foreign keys refuse while a row needs it."""
        current = (await self._keys.cipher(user_id)).key_version
        left = 0
        for row in await self._database.fetch(_OLD_VERSIONS, user_id=user_id, current=current):
            try:
                await self._database.execute(_DROP, user_id=user_id, key_version=row["key_version"])
            except asyncpg.ForeignKeyViolationError:
                left += 1
        return left

    async def _reseal_table(
        self, transaction: Transaction, table: _Resealing, user_id: UUID, limit: int
    ) -> int:
        current = (await self._keys.cipher(user_id)).key_version
        rows = await transaction.fetch(table.select, user_id=user_id, current=current, limit=limit)
        if not rows:
            return 0
        cipher = await cipher_for(self._keys, user_id, rows)

        def resealed(place: Cell, row: Record) -> bytes | None:
            sealed = row[place.column]
            if sealed is None:
                return None
            return cipher.seal(place, row["id"], cipher.open(place, row["id"], sealed))

        values = {f"new_{place.column}": [resealed(place, row) for row in rows] for place in table.cells}
        ids = [row["id"] for row in rows]
        return await transaction.execute(table.update, user_id=user_id, current=current, ids=ids, **values)
