"""Statements on memories that several stores take part in: what is stored and deleted with something else."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    DateTime,
    Integer,
    SmallInteger,
    Text,
    Update,
    Uuid,
    bindparam,
    exists,
    func,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.selectable import CTE, FromClause

from sage_server.adapters.postgres.memory_rows import GIVEN, MODEL_COLUMNS, VECTOR_COLUMNS, new_memories
from sage_server.adapters.postgres.schema import IS_LIVE, conversation_summaries, heads, items, memories
from sage_server.adapters.postgres.sealed_rows import labels_of
from sage_server.domain.memories import MemoryState
from sage_server.ports.memories import Space

_m, _h = memories.c, heads.c
OWNED = _m.user_id == bindparam("user_id")
_GONE = (
    "content_enc",
    "origin_enc",
    "metadata_enc",
    "tags",
    "model_0",
    "vector_0_enc",
    "model_1",
    "vector_1_enc",
)
_MODEL = bindparam("model", type_=Text())
_DIMENSIONS = bindparam("dimensions", type_=Integer())
IN_SPACE = (
    func.coalesce(_h.embedding_model, _MODEL) == _MODEL,
    func.coalesce(_h.dimensions, _DIMENSIONS) == _DIMENSIONS,
    _h.vector_slot == bindparam("slot", type_=SmallInteger()),
)
"""The vectors that a statement brings are of the space that search uses, or begin the first one."""
TAKES_SPACE = {"embedding_model": _MODEL, "dimensions": _DIMENSIONS}
"""What the first vectors of a user set in `heads`."""


def space_values(space: Space) -> dict[str, Any]:
    """The parameters of IN_SPACE."""
    return {"model": space.model, "dimensions": space.dimensions, "slot": space.slot}


def advanced(*where: ColumnElement[bool], **values: Any) -> CTE:
    """The user's next revision. The row's lock, held until commit, makes the order of revisions the order
    of commits."""
    return (
        update(heads)
        .where(_h.user_id == bindparam("user_id"), *where)
        .values(memory_revision=_h.memory_revision + 1, **values)
        .returning(_h.memory_revision)
        .cte("head")
    )


def inserted(head: FromClause, slot: int, *, of_items: bool = False) -> postgresql.Insert:
    """Store the memories of the parameters with the revision of `head`, if that has a row; with `of_items`
    only those whose item, or summary, is still there."""
    new = new_memories()
    columns = ["user_id", "state", "revision", "key_version", *GIVEN, "tags"]
    columns += [MODEL_COLUMNS[slot].name, VECTOR_COLUMNS[slot].name]
    rows = select(
        bindparam("user_id", type_=Uuid()),
        bindparam("state", int(MemoryState.LIVE), type_=SmallInteger()),
        head.c.memory_revision,
        bindparam("key_version", type_=_m.key_version.type),
        *(new.c[name] for name in GIVEN),
        labels_of(new.c.tags),
        new.c.model,
        new.c.vector_enc,
    ).select_from(head.join(new, true()))
    if of_items:
        found = ((items, new.c.item_id), (conversation_summaries, new.c.id))
        rows = rows.where(
            or_(
                *(
                    exists(select(t.c.id).where(t.c.user_id == bindparam("user_id"), t.c.id == wanted))
                    for t, wanted in found
                )
            )
        )
    return postgresql.insert(memories).from_select(columns, rows, include_defaults=False)


def removed(which: ColumnElement[bool], state: MemoryState = MemoryState.DELETED) -> Update:
    """Take live memories of the user away. A trace with the new revision stays, for replicas to learn of it;
    if nothing matches, there is no new revision.

    `which` may depend on what the statement has written before, but not on `now`, the time of removal.
    """
    head = advanced(exists(select(_m.id).where(OWNED, IS_LIVE, which)))
    return removed_at(select(head.c.memory_revision).scalar_subquery(), which, state)


def removed_at(
    revision: ColumnElement[int], which: ColumnElement[bool], state: MemoryState = MemoryState.DELETED
) -> Update:
    """As `removed`, at a revision that the same transaction has taken."""
    return (
        update(memories)
        .where(OWNED, IS_LIVE, which)
        .values(trace(revision, state))
        .returning(_m.id, _m.revision)
    )


def never_again(which: ColumnElement[bool]) -> CTE:
    """Messages that were taken away with their conversation do not come back with it either. No index holds
    them, so it takes no revision."""
    withdrawn = _m.state == int(MemoryState.WITHDRAWN)
    return (
        update(memories)
        .where(OWNED, withdrawn, which)
        .values(state=int(MemoryState.DELETED))
        .cte("never_again")
    )


def trace(revision: ColumnElement[int], state: MemoryState) -> dict[str, Any]:
    """What is left of a memory that is taken away."""
    return {name: null() for name in _GONE} | {
        "state": int(state),
        "revision": revision,
        "updated_at": bindparam("now", type_=DateTime(timezone=True)),
        "version": _m.version + 1,
    }
