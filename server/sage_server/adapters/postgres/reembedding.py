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
    case,
    false,
    func,
    null,
    select,
    update,
)
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.jobs import has_job
from sage_server.adapters.postgres.memory_rows import (
    MODEL_COLUMNS,
    TAGS,
    VECTOR_COLUMNS,
    opened_text,
    sealed_vector,
)
from sage_server.adapters.postgres.memory_statements import OWNED
from sage_server.adapters.postgres.schema import IS_LIVE, cell, heads, memories, sealed_columns
from sage_server.adapters.postgres.sealed_rows import knows
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.jobs import JobKind
from sage_server.domain.paging import Page
from sage_server.ports.keys import KeyRing, UserCipher
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
        ~has_job(JobKind.REEMBED_USER, _h.user_id),
    )
    .order_by(_h.user_id)
    .limit(bindparam("limit"))
)


def _missing(slot: int) -> ColumnElement[bool]:
    """Without a vector of the model, or with one of other dimensions, which an earlier setting asked for."""
    other_model = MODEL_COLUMNS[slot].is_distinct_from(_MODEL)
    other_length = func.octet_length(VECTOR_COLUMNS[slot]) != 4 * _DIMENSIONS + _CELL
    return OWNED & IS_LIVE & (other_model | func.coalesce(other_length, false()))


_CELLS = tuple(column for column in sealed_columns(memories) if column is not _m.content_enc)
# What the rotation has to open, of rows that wait for it.
_OLD_CELLS = [case((_CURRENT_KEY, null()), else_=column).label(column.name) for column in (*_CELLS, _m.tags)]
_UNEMBEDDED = [
    Statement(
        select(_m.id, _m.version, _m.key_version, _m.content_enc, *_OLD_CELLS)
        .where(_missing(slot), _m.id > bindparam("after", type_=Uuid()))
        .order_by(_m.id)
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
    # A row has one key, which does not matter where there is nothing to seal.
    sealable = _CURRENT_KEY | new.c.vector.is_(None)
    return Statement(
        update(memories)
        .where(OWNED, IS_LIVE, sealable, _m.id == new.c.row_id, _m.version == new.c.row_version)
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
        """A scan of the counters, one short row a user, beside one of the queue."""
        rows = await self._database.fetch(_BESIDE, model=model, dimensions=dimensions, limit=limit)
        return [row["user_id"] for row in rows]

    async def unembedded(
        self, user_id: UUID, space: Space, limit: int, after: UUID
    ) -> Page[Unembedded, UUID]:
        """Rows of older keys wait until the rotation has sealed them again: a row has one key. Those that do
        not open it leaves alone."""
        while True:
            cipher = await self._keys.cipher(user_id)
            rows = await self._database.fetch(
                _UNEMBEDDED[space.slot],
                user_id=user_id,
                model=space.model,
                dimensions=space.dimensions,
                key_version=cipher.key_version,
                after=after,
                limit=limit,
            )
            # Only a cipher from before the rows were read can tell that one of them does not open.
            if knows(cipher, rows):
                break
            self._keys.forget(user_id)
        found = [(row["key_version"], _unembedded(cipher, row)) for row in rows]
        page = [one for version, one in found if one.text is None or version == cipher.key_version]
        return Page(page, rows[-1]["id"] if len(rows) == limit else None)

    async def fill(self, user_id: UUID, space: Space, vectors: Sequence[NextVector]) -> int:
        """One statement. Search does not look there yet, so it takes no revision."""
        cipher = await self._keys.cipher(user_id)
        return await self._database.execute(
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


def _unembedded(cipher: UserCipher, row: Record) -> Unembedded:
    """The cipher says in the log what does not open."""
    row_id: UUID = row["id"]
    try:
        for column in _CELLS:
            if row[column.name] is not None:
                cipher.open(cell(column), row_id, row[column.name])
        for label in row[_m.tags.name] or ():
            cipher.open_tag(TAGS, label)
        text = opened_text(cipher, row_id, row["content_enc"])
    except SageError as error:
        if error.reason is not Reason.DATA_LOSS:
            raise
        return Unembedded(row_id, row["version"], None)
    return Unembedded(row_id, row["version"], text)
