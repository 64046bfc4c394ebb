"""Statements with a filter of memories, compiled once for every combination of conditions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    DateTime,
    LargeBinary,
    SmallInteger,
    Uuid,
    bindparam,
    case,
    func,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Statement
from sage_server.adapters.postgres.memory_rows import MEMORY_COLUMNS, MODEL_COLUMNS, TAGS
from sage_server.adapters.postgres.memory_statements import OWNED, never_again, removed
from sage_server.adapters.postgres.schema import IS_LIVE, heads, memories
from sage_server.domain.memories import MemoryFilter, TagMatch
from sage_server.ports.keys import UserCipher

_m, _h = memories.c, heads.c
_TIME = DateTime(timezone=True)
_SLOT = select(_h.vector_slot).where(_h.user_id == bindparam("user_id")).scalar_subquery()
USED_MODEL = case((_SLOT == 0, MODEL_COLUMNS[0]), else_=MODEL_COLUMNS[1]).label("model")
"""The model of the vectors that search uses."""


@cache
def _conditions(names: frozenset[str], match: TagMatch, versions: int) -> tuple[ColumnElement[bool], ...]:
    """The SQL of a filter; `names` are the conditions that it has."""
    tests: dict[str, ColumnElement[bool]] = {
        "sources": _m.source == func.any(bindparam("sources", type_=ARRAY(SmallInteger()))),
        "agent_id": _m.agent_id == bindparam("agent_id", type_=Uuid()),
        "conversation_id": _m.conversation_id == bindparam("conversation_id", type_=Uuid()),
        "document_id": _m.document_id == bindparam("document_id", type_=Uuid()),
        "start": _m.created_at >= bindparam("start", type_=_TIME),
        "end": _m.created_at < bindparam("end", type_=_TIME),
    }
    found = [test for name, test in tests.items() if name in names]
    if "tags" in names:
        # Rows hold labels of their own key version, so each version is asked for by itself.
        forms = [bindparam(f"tags_{n}", type_=ARRAY(LargeBinary())) for n in range(versions)]
        compare = _m.tags.bool_op("@>" if match is TagMatch.ALL else "&&")
        found.append(or_(*(compare(labels) for labels in forms)))
    return tuple(found)


def filter_values(cipher: UserCipher, which: MemoryFilter) -> dict[str, Any]:
    """The values of a filter."""
    given: dict[str, Any] = {
        "sources": [int(source) for source in which.sources] or None,
        "agent_id": which.agent_id,
        "conversation_id": which.conversation_id,
        "document_id": which.document_id,
        "start": which.start,
        "end": which.end,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if which.tags:
        forms = [cipher.tag_forms(TAGS, tag) for tag in which.tags]
        values |= {f"tags_{n}": list(labels) for n, labels in enumerate(zip(*forms, strict=True))}
    return values


def filter_shape(values: Mapping[str, Any], which: MemoryFilter) -> tuple[frozenset[str], TagMatch, int]:
    """Which statement the values are for."""
    tags = sum(name.startswith("tags_") for name in values)
    names = frozenset(name for name in values if not name.startswith("tags_"))
    return (names | {"tags"} if tags else names), which.match, tags


@cache
def listed(names: frozenset[str], match: TagMatch, versions: int, *, following: bool) -> Statement:
    """A page of those that match, the newest first."""
    page = select(*MEMORY_COLUMNS, USED_MODEL).where(OWNED, IS_LIVE, *_conditions(names, match, versions))
    if following:
        last = tuple_(bindparam("at", type_=_TIME), bindparam("last_id", type_=Uuid()))
        page = page.where(tuple_(_m.created_at, _m.id) < last)
    return Statement(page.order_by(_m.created_at.desc(), _m.id.desc()).limit(bindparam("limit")))


@cache
def removed_matching(names: frozenset[str], match: TagMatch, versions: int) -> Statement:
    """Delete for good those that match."""
    tests = _conditions(names, match, versions)
    which = true() if not tests else tests[0]
    for test in tests[1:]:
        which &= test
    return Statement(removed(which).add_cte(never_again(which)))
