"""Vectors of the next model, beside those in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    Uuid,
    bindparam,
    false,
    func,
    null,
    select,
    update,
)
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Database, Statement, Transaction
from sage_server.adapters.postgres.memory_rows import (
    MODEL_COLUMNS,
    VECTOR_COLUMNS,
    opened_text,
    sealed_vector,
)
from sage_server.adapters.postgres.memory_statements import OWNED
from sage_server.adapters.postgres.schema import IS_LIVE, heads, memories
from sage_server.ports.keys import KeyRing
from sage_server.ports.memories import Space
from sage_server.ports.reembedding import NextVector, Unembedded

_SLOTS = (0, 1)
_m, _h = memories.c, heads.c
_MODEL = bindparam("model", type_=Text())
_DIMENSIONS = bindparam("dimensions", type_=Integer())
_CELL = 33  # what sealing adds: header, nonce and tag
_CURRENT_KEY = _m.key_version == bindparam("key_version", type_=Integer())
_BESIDE = Statement(
    select(_h.user_id)
    .where(
        _h.embedding_model.is_not(None),
        (_h.embedding_model != _MODEL) | (_h.dimensions != _DIMENSIONS),
    )
    .limit(bindparam("limit"))
)


def _missing(slot: int) -> ColumnElement[bool]:
    """Without a vector of the model, or with one of other dimensions, which an earlier setting asked for."""
    other_model = MODEL_COLUMNS[slot].is_distinct_from(_MODEL)
    other_length = func.octet_length(VECTOR_COLUMNS[slot]) != 4 * _DIMENSIONS + _CELL
    return OWNED & IS_LIVE & (other_model | func.coalesce(other_length, false()))


_UNEMBEDDED = [
    Statement(
        select(_m.id, _m.version, _m.content_enc)
        .where(_missing(slot), _CURRENT_KEY)
        .limit(bindparam("limit"))
    )
    for slot in _SLOTS
]


def _fill(slot: int) -> Statement:
    arrays: list[ColumnElement[Any]] = [
        bindparam("ids", type_=ARRAY(Uuid())),
        bindparam("versions", type_=ARRAY(BigInteger())),
        bindparam("vectors", type_=ARRAY(LargeBinary())),
    ]
    new = func.unnest(*arrays).table_valued("row_id", "row_version", "vector", name="new").render_derived()
    return Statement(
        update(memories)
        .where(OWNED, IS_LIVE, _CURRENT_KEY, _m.id == new.c.row_id, _m.version == new.c.row_version)
        .values({MODEL_COLUMNS[slot].name: _MODEL, VECTOR_COLUMNS[slot].name: new.c.vector})
    )


_FILL = [_fill(slot) for slot in _SLOTS]
_LOCK = Statement(
    select(_h.embedding_model, _h.dimensions, _h.vector_slot)
    .where(_h.user_id == bindparam("user_id"))
    .with_for_update()
)
_INCOMPLETE = [Statement(select(_m.id).where(_missing(slot)).limit(1)) for slot in _SLOTS]
_SWITCH = Statement(
    update(heads)
    .where(_h.user_id == bindparam("user_id"))
    .values(
        embedding_model=_MODEL,
        dimensions=_DIMENSIONS,
        vector_slot=bindparam("slot", type_=SmallInteger()),
        memory_revision=_h.memory_revision + 1,
    )
)


def _clear(slot: int) -> Statement:
    unused = select(_h.user_id).where(_h.user_id == bindparam("user_id"), _h.vector_slot != slot).exists()
    held = select(_m.id).where(OWNED, MODEL_COLUMNS[slot].is_not(None), unused).limit(bindparam("limit"))
    nothing = {MODEL_COLUMNS[slot].name: null(), VECTOR_COLUMNS[slot].name: null()}
    return Statement(update(memories).where(OWNED, _m.id.in_(held)).values(nothing))


_CLEAR = [_clear(slot) for slot in _SLOTS]


class PostgresReembeddingStore:
    """Implements ReembeddingStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def users_beside(self, model: str, dimensions: int, limit: int) -> Sequence[UUID]:
        """A scan of the counters, one short row a user."""
        rows = await self._database.fetch(_BESIDE, model=model, dimensions=dimensions, limit=limit)
        return [row["user_id"] for row in rows]

    async def unembedded(self, user_id: UUID, space: Space, limit: int) -> Sequence[Unembedded]:
        """Rows of older keys wait until the rotation has sealed them again: a row has one key."""
        cipher = await self._keys.cipher(user_id)
        rows = await self._database.fetch(
            _UNEMBEDDED[space.slot],
            user_id=user_id,
            model=space.model,
            dimensions=space.dimensions,
            key_version=cipher.key_version,
            limit=limit,
        )
        return [
            Unembedded(row["id"], row["version"], opened_text(cipher, row["id"], row["content_enc"]))
            for row in rows
        ]

    async def fill(self, user_id: UUID, space: Space, vectors: Sequence[NextVector]) -> None:
        """One statement. Search does not look there yet, so it takes no revision."""
        cipher = await self._keys.cipher(user_id)
        await self._database.execute(
            _FILL[space.slot],
            user_id=user_id,
            model=space.model,
            key_version=cipher.key_version,
            ids=[one.memory_id for one in vectors],
            versions=[one.version for one in vectors],
            vectors=[sealed_vector(cipher, space.slot, one.memory_id, one.vector) for one in vectors],
        )

    async def switch(self, user_id: UUID, old: Space, new: Space) -> bool:
        """Writers wait for the counters' lock, so nothing is written between the look and the switch."""

        async def switch(transaction: Transaction) -> bool:
            head = await transaction.fetchrow(_LOCK, user_id=user_id)
            if head is None or Space(*head) != old:
                return False
            wanted = {"model": new.model, "dimensions": new.dimensions}
            missing = await transaction.fetchrow(_INCOMPLETE[new.slot], user_id=user_id, **wanted)
            if missing is not None:
                return False
            await transaction.execute(_SWITCH, user_id=user_id, slot=new.slot, **wanted)
            return True

        return await self._database.transact(switch)

    async def clear(self, user_id: UUID, space: Space, limit: int) -> int:
        """One statement."""
        return await self._database.execute(_CLEAR[space.slot], user_id=user_id, limit=limit)
