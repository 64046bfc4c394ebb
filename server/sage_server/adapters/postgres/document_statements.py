"""The statements of documents and of the chunks that they became."""

from __future__ import annotations

from functools import cache

from sqlalchemy import (
    ARRAY,
    BigInteger,
    DateTime,
    LargeBinary,
    Select,
    SmallInteger,
    Text,
    Uuid,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    null,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Statement
from sage_server.adapters.postgres.document_rows import DOCUMENT_COLUMNS
from sage_server.adapters.postgres.memory_rows import GIVEN, MEMORY_COLUMNS, MODEL_COLUMNS, VECTOR_COLUMNS
from sage_server.adapters.postgres.memory_statements import (
    IN_SPACE,
    OWNED,
    TAKES_SPACE,
    advanced,
    inserted,
    removed,
    removed_at,
)
from sage_server.adapters.postgres.schema import IS_LIVE, documents, heads, memories, user_keys
from sage_server.domain.documents import DocumentStatus
from sage_server.domain.memories import MemoryState

CHUNK_BATCH = 2_000
_SLOTS = (0, 1)
_d, _m = documents.c, memories.c
_USER = bindparam("user_id", type_=Uuid())
_THIS = (_d.user_id == _USER) & (_d.id == bindparam("document_id", type_=Uuid()))
_OF_THIS = _m.document_id == bindparam("document_id", type_=Uuid())
_AS_ACCEPTED = (_d.status == int(DocumentStatus.PROCESSING)) & (
    _d.version == bindparam("version", type_=BigInteger())
)

LOCK = Statement(select(heads.c.memory_revision).where(heads.c.user_id == _USER).with_for_update())
STATE = Statement(select(*DOCUMENT_COLUMNS, _d.content_enc).where(_THIS))
GET = Statement(select(*DOCUMENT_COLUMNS).where(_THIS))
PENDING = Statement(select(*DOCUMENT_COLUMNS).where(_THIS, _AS_ACCEPTED).with_for_update())

# Read together with the rows: a cipher that is older may not know the labels that they have.
_newest = (
    select(func.max(user_keys.c.key_version).label("newest")).where(user_keys.c.user_id == _USER).subquery()
)
_in_memory = select(_m.id).where(OWNED, IS_LIVE, _m.document_id == _d.id).correlate(documents).exists()


def _found(which: ColumnElement[bool]) -> Statement:
    known = _newest.outerjoin(documents, (_d.user_id == _USER) & which)
    found = select(_newest.c.newest, _in_memory.label("in_memory"), *DOCUMENT_COLUMNS).select_from(known)
    return Statement(found.order_by(_d.created_at, _d.id).limit(1))


_FORMS = func.any(bindparam("forms", type_=ARRAY(LargeBinary())))
BY_EXTERNAL_ID = _found(_d.external_tag == _FORMS)
BY_CONTENT = _found(
    _d.external_tag.is_(None)
    & (_d.content_tag == _FORMS)
    & _d.agent_id.is_not_distinct_from(bindparam("of_agent", type_=Uuid()))
)

_LATER = {"chunk_count", "version"}
_GIVEN = {
    column.name: bindparam(f"new_{column.name}", type_=column.type)
    for column in documents.c
    if column.name not in _LATER
}
_FIXED = {"user_id", "id", "created_at"}
INSERT = Statement(insert(documents).values(_GIVEN))
REPLACE = Statement(
    update(documents)
    .where(_THIS)
    .values({name: value for name, value in _GIVEN.items() if name not in _FIXED})
    .values(version=_d.version + 1)
)
COMPLETE = Statement(
    update(documents)
    .where(_THIS)
    .values(
        status=int(DocumentStatus.READY),
        content_enc=null(),
        chunk_count=bindparam("chunk_count", type_=_d.chunk_count.type),
    )
)
FAIL = Statement(
    update(documents)
    .where(_THIS, _AS_ACCEPTED)
    .values(status=int(DocumentStatus.FAILED), failure=bindparam("reason", type_=Text()), content_enc=null())
)
DELETE = Statement(delete(documents).where(_THIS))

ADVANCE = Statement(select(advanced(*IN_SPACE, **TAKES_SPACE).c.memory_revision))
_REVISION = bindparam("revision", type_=BigInteger())


def _upsert(slot: int) -> Statement:
    """New chunks, and new values of those that are there; ones that were deleted meanwhile stay so.

    A row has one key, so the vector of the other place goes: it may be sealed with an older one.
    """
    new = inserted(select(_REVISION.label("memory_revision")).subquery("head"), slot)
    names = [*GIVEN, "revision", "key_version", "tags", MODEL_COLUMNS[slot].name, VECTOR_COLUMNS[slot].name]
    other = 1 - slot
    return Statement(
        new.on_conflict_do_update(
            index_elements=[_m.user_id, _m.id],
            set_={name: new.excluded[name] for name in names}
            | {"version": _m.version + 1}
            | {MODEL_COLUMNS[other].name: null(), VECTOR_COLUMNS[other].name: null()},
            where=_m.state == int(MemoryState.LIVE),
        )
    )


UPSERT = [_upsert(slot) for slot in _SLOTS]
REMOVE_CHUNKS = Statement(
    removed_at(_REVISION, _OF_THIS & (_m.id == func.any(bindparam("ids", type_=ARRAY(Uuid())))))
)
REMOVE_ALL = Statement(removed(_OF_THIS))


def _chunks(slot: int) -> Statement:
    vector = (MODEL_COLUMNS[slot].label("model"), VECTOR_COLUMNS[slot].label("vector_enc"))
    rows = select(*MEMORY_COLUMNS, *vector).where(OWNED, IS_LIVE, _OF_THIS)
    return Statement(
        rows.where(_m.id > bindparam("after", type_=Uuid()))
        .order_by(_m.id)
        .limit(literal_column(str(CHUNK_BATCH)))
    )


CHUNKS = [_chunks(slot) for slot in _SLOTS]
_TESTS: dict[str, ColumnElement[bool]] = {
    "external_forms": _d.external_tag == func.any(bindparam("external_forms", type_=ARRAY(LargeBinary()))),
    "tags": _d.tags.bool_op("&&")(bindparam("tags", type_=ARRAY(LargeBinary()))),
    "agent_id": _d.agent_id == bindparam("agent_id", type_=Uuid()),
    "statuses": _d.status == func.any(bindparam("statuses", type_=ARRAY(SmallInteger()))),
    "at": tuple_(_d.created_at, _d.id)
    < tuple_(bindparam("at", type_=DateTime(timezone=True)), bindparam("last_id", type_=Uuid())),
}


@cache
def listed(names: frozenset[str]) -> Statement:
    """A page of documents, the newest first; `names` are the conditions that its parameters give."""
    page: Select[tuple[object, ...]] = select(*DOCUMENT_COLUMNS).where(_d.user_id == _USER)
    page = page.where(*(test for name, test in _TESTS.items() if name in names))
    return Statement(page.order_by(_d.created_at.desc(), _d.id.desc()).limit(bindparam("limit")))
