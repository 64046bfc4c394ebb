"""Sealing rows again with a user's current key. Which tables and columns, the schema knows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import ARRAY, LargeBinary, Table, Text, Uuid, bindparam, delete, func, select, update
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.schema import (
    SUPERSEDED,
    cell,
    label_columns,
    sealed_columns,
    sealed_tables,
    user_keys,
)
from sage_server.adapters.postgres.sealed_rows import labels_literal, labels_of
from sage_server.domain.errors import SageError
from sage_server.ports.keys import Cell, KeyRing, UserCipher

_log = logging.getLogger("sage.keys")
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
    labels: tuple[Cell, ...]
    select: Statement
    update: Statement

    @classmethod
    def of(cls, table: Table) -> _Resealing:
        sealed, labels = sealed_columns(table), label_columns(table)
        columns = [*sealed, *labels]
        several = {column.name for column in labels if isinstance(column.type, ARRAY)}
        mine = table.c.user_id == bindparam("user_id")
        arrays: list[ColumnElement[Any]] = [bindparam("ids", type_=ARRAY(Uuid()))]
        for column in columns:
            element = Text() if column.name in several else LargeBinary()
            arrays.append(bindparam(f"new_{column.name}", type_=ARRAY(element)))
        names = ["row_id", *(f"new_{column.name}" for column in columns)]
        new = func.unnest(*arrays).table_valued(*names, name="new").render_derived()
        values: dict[str, ColumnElement[Any]] = {}
        for column in columns:
            value = new.c[f"new_{column.name}"]
            values[column.name] = labels_of(value) if column.name in several else value
        return cls(
            cells=tuple(cell(column) for column in sealed),
            labels=tuple(cell(column) for column in labels),
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
                    **values,
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
        cipher = await self._keys.cipher(user_id)
        done = 0
        for table in _TABLES:
            reseal = partial(_reseal, table=table, user_id=user_id, cipher=cipher, limit=limit)
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


async def _reseal(
    transaction: Transaction, table: _Resealing, user_id: UUID, cipher: UserCipher, limit: int
) -> int:
    """Rows that do not open stay as they are, and keep the key that they name."""
    current = cipher.key_version
    rows = await transaction.fetch(table.select, user_id=user_id, current=current, limit=limit)
    resealed = [cells for row in rows if (cells := _resealed(cipher, table, row)) is not None]
    if not resealed:
        return 0
    places = (*table.cells, *table.labels)
    columns = {f"new_{place.column}": [cells[place.column] for _, cells in resealed] for place in places}
    ids = [row_id for row_id, _ in resealed]
    return await transaction.execute(table.update, user_id=user_id, current=current, ids=ids, **columns)


def _resealed(
    cipher: UserCipher, table: _Resealing, row: Record
) -> tuple[UUID, dict[str, bytes | str | None]] | None:
    row_id: UUID = row["id"]
    try:
        cells: dict[str, bytes | str | None] = {}
        for place in table.cells:
            sealed = row[place.column]
            opened = None if sealed is None else cipher.open(place, row_id, sealed)
            cells[place.column] = None if opened is None else cipher.seal(place, row_id, opened)
        for place in table.labels:
            cells[place.column] = _relabelled(cipher, place, row[place.column])
    except SageError:
        _log.error("a row is not sealed again", extra={"row": row_id})
        return None
    return row_id, cells


def _relabelled(cipher: UserCipher, place: Cell, found: bytes | list[bytes] | None) -> bytes | str | None:
    if isinstance(found, list):
        return labels_literal(cipher.tag(place, cipher.open_tag(place, label)) for label in found)
    return None if found is None else cipher.tag(place, cipher.open_tag(place, found))
