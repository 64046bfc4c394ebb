"""Feature flags on Postgres."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ARRAY, Boolean, Text, bindparam, delete, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from sage_server.adapters.postgres.database import Database, Record, Statement
from sage_server.adapters.postgres.schema import flag_head, flags, users
from sage_server.domain.errors import not_found
from sage_server.domain.flags import Flag, FlagScope
from sage_server.domain.ids import INSTALLATION
from sage_server.domain.paging import Page
from sage_server.ports.flag_store import FlagCursor, FlagFilter, FlagPlace, SharedFlags, UserFlags

_f = flags.c
_u = users.c
_SHARED_LEVEL = _f.user_id == INSTALLATION
_ORDER = (_f.tenant, _f.user_id, _f.name)
# The lock on the counter's row is held until commit, so the order of revisions is the order of commits.
_bumped = update(flag_head).values(revision=flag_head.c.revision + 1).cte("bumped")
# Whose row it is: the installation has neither a tenant nor an external id.
_OWNER = (
    _u.tenant == bindparam("owner_tenant", type_=Text()),
    _u.external_id == bindparam("external_id", type_=Text()),
)

_REVISION = Statement(select(flag_head.c.revision))
_SHARED = Statement(select(_f.tenant, _f.name, _f.enabled).where(_SHARED_LEVEL))
_OF_USER = Statement(
    select(_u.tenant, _f.name, _f.enabled)
    .select_from(users.outerjoin(flags, _f.user_id == _u.id))
    .where(_u.id == bindparam("user_id"))
)
_row = insert(flags).from_select(
    ["user_id", "tenant", "name", "enabled", "updated_at"],
    select(
        _u.id,
        bindparam("tenant", type_=Text()),
        bindparam("name", type_=Text()),
        bindparam("enabled", type_=Boolean()),
        bindparam("now", type_=_f.updated_at.type),
    )
    .where(*_OWNER, _u.erased_at.is_(None))
    # An erasure begins with this row: it waits for this statement and deletes what it wrote, or this
    # statement waits and finds nobody.
    .with_for_update(read=True),
)
_SET = Statement(
    _row.on_conflict_do_update(
        index_elements=list(flags.primary_key.columns),
        set_={"enabled": _row.excluded.enabled, "updated_at": _row.excluded.updated_at},
    )
    .returning(_f.enabled, _f.updated_at)
    .add_cte(_bumped)
)
_CLEAR = Statement(
    delete(flags)
    .where(
        _f.user_id == select(_u.id).where(*_OWNER).scalar_subquery(),
        _f.tenant == bindparam("tenant"),
        _f.name == bindparam("name"),
    )
    .add_cte(_bumped)
)


def _list(*, following: bool) -> Statement:
    found = (
        select(*_ORDER, _f.enabled, _f.updated_at, _u.external_id)
        .join(users, _u.id == _f.user_id)
        .where(
            _f.tenant == func.any(bindparam("tenants", type_=ARRAY(Text()))),
            (_SHARED_LEVEL & bindparam("shared", type_=Boolean()))
            | (~_SHARED_LEVEL & bindparam("of_users", type_=Boolean())),
        )
    )
    if following:
        after = (bindparam(f"after_{column.name}", type_=column.type) for column in _ORDER)
        found = found.where(tuple_(*_ORDER) > tuple_(*after))
    return Statement(found.order_by(*_ORDER).limit(bindparam("limit")))


_LIST = {following: _list(following=following) for following in (False, True)}


class PostgresFlagStore:
    """Implements FlagStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def revision(self) -> int:
        """The counter."""
        row = await self._database.fetchrow(_REVISION)
        assert row is not None
        return int(row["revision"])

    async def shared(self) -> SharedFlags:
        """By primary key."""
        tenants: dict[str, dict[str, bool]] = {}
        for row in await self._database.fetch(_SHARED):
            tenants.setdefault(row["tenant"], {})[row["name"]] = row["enabled"]
        return SharedFlags(tenants.pop("", {}), tenants)

    async def of_user(self, user_id: UUID) -> UserFlags:
        """By primary key."""
        rows = await self._database.fetch(_OF_USER, user_id=user_id)
        if not rows:
            raise not_found("user")
        own = {row["name"]: row["enabled"] for row in rows if row["name"] is not None}
        return UserFlags(user_id, rows[0]["tenant"], own)

    async def list(self, which: FlagFilter, size: int, after: FlagCursor | None) -> Page[Flag, FlagCursor]:
        """By the index on tenant, user and name."""
        cursor = {}
        if after is not None:
            cursor = {
                "after_tenant": after.tenant,
                "after_user_id": after.user_id,
                "after_name": after.name,
            }
        inner = bool(which.scopes & {FlagScope.TENANT, FlagScope.USER})
        rows = await self._database.fetch(
            _LIST[after is not None],
            tenants=[""] * (FlagScope.GLOBAL in which.scopes) + [which.tenant] * inner,
            shared=which.scopes != {FlagScope.USER},
            of_users=FlagScope.USER in which.scopes,
            limit=size + 1,
            **cursor,
        )
        page = rows[:size]
        last = page[-1] if len(rows) > size else None
        return Page(
            [_flag(row) for row in page],
            None if last is None else FlagCursor(last["tenant"], last["user_id"], last["name"]),
        )

    async def set(self, place: FlagPlace, name: str, enabled: bool, now: datetime) -> Flag:  # noqa: FBT001
        """One statement."""
        row = await self._database.fetchrow(_SET, enabled=enabled, now=now, **_values(place, name))
        if row is None:
            raise not_found("user")
        return Flag(name, place.scope, place.tenant, place.external_id, row["enabled"], row["updated_at"])

    async def clear(self, place: FlagPlace, name: str) -> None:
        """One statement."""
        await self._database.execute(_CLEAR, **_values(place, name))


def _values(place: FlagPlace, name: str) -> dict[str, str]:
    of_user = place.scope is FlagScope.USER
    return {
        "owner_tenant": place.tenant if of_user else "",
        "external_id": place.external_id,
        "tenant": place.tenant,
        "name": name,
    }


def _flag(row: Record) -> Flag:
    scope = FlagScope.USER
    if row["user_id"] == INSTALLATION:
        scope = FlagScope.TENANT if row["tenant"] else FlagScope.GLOBAL
    return Flag(
        name=row["name"],
        scope=scope,
        tenant=row["tenant"],
        external_id=row["external_id"] or "",
        enabled=row["enabled"],
        updated_at=row["updated_at"],
    )
