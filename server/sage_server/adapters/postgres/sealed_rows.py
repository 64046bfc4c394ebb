"""What the stores of sealed rows share."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
from sqlalchemy import ARRAY, LargeBinary, Text, bindparam, cast, func, select
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Database, Record, Statement
from sage_server.adapters.postgres.schema import user_keys
from sage_server.ports.keys import Cell, KeyRing, UserCipher

T = TypeVar("T")
_log = logging.getLogger("sage.keys")
_NEWEST_KEY = Statement(
    select(func.max(user_keys.c.key_version)).where(user_keys.c.user_id == bindparam("user_id"))
)


async def write_sealed(keys: KeyRing, user_id: UUID, write: Callable[[UserCipher], Awaitable[T]]) -> T:
    """Seal and write; a key that was rotated away in the meantime is loaded again, once.

    Raises USER_ERASED if the user's key is gone for good.
    """
    try:
        return await write(await keys.cipher(user_id))
    except asyncpg.ForeignKeyViolationError as error:
        if not is_stale_key(error):
            raise
    _log.info("a key was replaced while a row was written", extra={"user": user_id})
    keys.forget(user_id)
    return await write(await keys.cipher(user_id))


def is_stale_key(error: asyncpg.ForeignKeyViolationError) -> bool:
    """Whether a row was sealed with a key version that is no longer there."""
    return (error.constraint_name or "").endswith("_user_keys")


async def cipher_for(
    keys: KeyRing, user_id: UUID, rows: Collection[Record], before: UserCipher | None = None
) -> UserCipher:
    """A cipher that knows every key version that the rows use.

    A reader gives the cipher that it took before it read: that one knows the keys of then, also one that a
    rotation has dropped since.
    """
    if before is not None and knows(before, rows):
        return before
    return await keys.cipher(user_id, at_least=_newest(rows))


def knows(cipher: UserCipher, rows: Collection[Record]) -> bool:
    """Whether a cipher that was taken before the rows were read can open all of them."""
    return _newest(rows) <= cipher.key_version


async def newest_cipher(database: Database, keys: KeyRing, user_id: UUID) -> UserCipher:
    """A cipher with the user's newest key: a look-up by labels must know the labels of every stored row."""
    row = await database.fetchrow(_NEWEST_KEY, user_id=user_id)
    return await keys.cipher(user_id, at_least=0 if row is None else row[0] or 0)


def seal_text(cipher: UserCipher, cell: Cell, row_id: UUID, text: str) -> bytes:
    """Seal a text."""
    return cipher.seal(cell, row_id, text.encode())


def open_text(cipher: UserCipher, cell: Cell, row_id: UUID, sealed: bytes) -> str:
    """The text of a cell."""
    return cipher.open(cell, row_id, sealed).decode()


def _newest(rows: Collection[Record]) -> int:
    return max((row["key_version"] for row in rows), default=0)


def labels_literal(labels: Iterable[bytes] | None) -> str | None:
    """Labels as the text of a Postgres array: `unnest` would flatten an array of arrays.

    Cast it with `labels_of` where it is used.
    """
    if labels is None:
        return None
    return "{" + ",".join(f'"\\\\x{label.hex()}"' for label in labels) + "}"


def labels_of(literal: ColumnElement[str]) -> ColumnElement[Any]:
    """The array that `labels_literal` wrote."""
    return cast(cast(literal, Text), ARRAY(LargeBinary))


def seal_json(cipher: UserCipher, cell: Cell, row_id: UUID, value: object) -> bytes:
    """Seal a value as compact JSON."""
    return cipher.seal(cell, row_id, json.dumps(value, separators=(",", ":")).encode())
