"""Usage records on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Select, Uuid, bindparam, func, select, true
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.selectable import FromClause

from sage_server.adapters.postgres.database import Database, Record, Statement
from sage_server.adapters.postgres.schema import usage_records, user_keys
from sage_server.domain.usage import (
    UsageCounts,
    UsageEntry,
    UsageKey,
    UsagePeriod,
    UsagePurpose,
    UsageRecord,
)

_u = usage_records.c
_COUNTS = ("calls", "prompt_tokens", "completion_tokens", "embedding_tokens")
_arrays: list[ColumnElement[Any]] = [
    bindparam(f"new_{column.name}", type_=ARRAY(column.type)) for column in usage_records.c
]
_new = func.unnest(*_arrays).table_valued(*(c.name for c in usage_records.c), name="new").render_derived()
# An erasure locks these rows before its last deletions: it waits for this statement and deletes what it
# wrote, or this statement waits and finds no key.
_living = (
    select(user_keys.c.user_id)
    .where(user_keys.c.user_id == func.any(bindparam("users", type_=ARRAY(Uuid()))))
    .order_by(user_keys.c.user_id, user_keys.c.key_version)
    .with_for_update(read=True, key_share=True)
    .cte("living")
)


def _added(rows: Select[Any]) -> Insert:
    """Add to what is counted, in one order, so that replicas that write at the same time do not wait for each
    other in a circle."""
    ordered = rows.order_by(*(_new.c[column.name] for column in usage_records.primary_key.columns))
    row = insert(usage_records).from_select([column.name for column in usage_records.c], ordered)
    return row.on_conflict_do_update(
        index_elements=list(usage_records.primary_key.columns),
        set_={name: _u[name] + row.excluded[name] for name in _COUNTS},
    )


_everything = select(*(_new.c[column.name] for column in usage_records.c))
_ADD = Statement(_added(_everything.where(_new.c.user_id.in_(select(_living.c.user_id)))))


def added_usage(source: FromClause) -> Insert:
    """Add the usage of the parameters if `source` has a row: for statements of which it is a part."""
    return _added(_everything.select_from(source.join(_new, true())))


def usage_values(entries: Sequence[UsageEntry]) -> dict[str, list[Any]]:
    """The parameters of `added_usage`."""
    rows = [_values(entry) for entry in entries]
    return {f"new_{column.name}": [row[column.name] for row in rows] for column in usage_records.c}


def _list(*, one_purpose: bool) -> Statement:
    found = select(*(column for column in usage_records.c if column is not _u.user_id)).where(
        _u.user_id == bindparam("user_id"), _u.day >= bindparam("first"), _u.day <= bindparam("last")
    )
    if one_purpose:
        found = found.where(_u.purpose == bindparam("purpose"))
    return Statement(found.order_by(_u.day.desc(), _u.model, _u.purpose))


_LIST = {one_purpose: _list(one_purpose=one_purpose) for one_purpose in (False, True)}


class PostgresUsageStore:
    """Implements UsageStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entries: Sequence[UsageEntry]) -> None:
        """One statement for any number of them."""
        users = list({entry.user_id for entry in entries})
        await self._database.execute(_ADD, users=users, **usage_values(entries))

    async def list(
        self, user_id: UUID, period: UsagePeriod, purpose: UsagePurpose | None
    ) -> Sequence[UsageRecord]:
        """By primary key."""
        values = {} if purpose is None else {"purpose": purpose}
        rows = await self._database.fetch(
            _LIST[purpose is not None], user_id=user_id, first=period.first, last=period.last, **values
        )
        return [_record(row) for row in rows]


def _values(entry: UsageEntry) -> dict[str, Any]:
    key, counts = entry.record.key, entry.record.counts
    return {
        "user_id": entry.user_id,
        "day": key.day,
        "model": key.model,
        "purpose": key.purpose,
        "calls": counts.calls,
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "embedding_tokens": counts.embedding_tokens,
    }


def _record(row: Record) -> UsageRecord:
    return UsageRecord(
        UsageKey(row["day"], row["model"], UsagePurpose(row["purpose"])),
        UsageCounts(*(row[name] for name in _COUNTS)),
    )
