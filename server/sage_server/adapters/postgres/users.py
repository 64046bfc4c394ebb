"""Users, their keys, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
from sqlalchemy import Select, Table, bindparam, delete, func, insert, null, select, tuple_, update

from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.jobs import OF_USER, jobs
from sage_server.adapters.postgres.replicas import SIGNAL
from sage_server.adapters.postgres.schema import (
    ERASING,
    conversations,
    heads,
    items,
    user_keys,
    user_tables,
    users,
)
from sage_server.domain.errors import user_erased
from sage_server.domain.identity import User, UserOverview
from sage_server.domain.ids import INSTALLATION, new_id
from sage_server.ports.clock import Clock
from sage_server.ports.keys import NewKey, WrappedKey

_ERASE_BATCH = 5000
_k = user_keys.c
_MINE = _k.user_id == bindparam("user_id")

_FIND = Statement(
    select(users.c.id, users.c.tenant, users.c.external_id, users.c.created_at, users.c.erased_at).where(
        users.c.tenant == bindparam("tenant"), users.c.external_id == bindparam("external_id")
    )
)
_user = insert(users).values(
    id=bindparam("user_id"),
    tenant=bindparam("tenant"),
    external_id=bindparam("external_id"),
    created_at=bindparam("now"),
)
_head = insert(heads).values(user_id=bindparam("user_id"))
_key = insert(user_keys).values(
    user_id=bindparam("user_id"),
    key_version=bindparam("key_version"),
    root_key_id=bindparam("root_key_id"),
    wrapped_key=bindparam("wrapped_key"),
    created_at=bindparam("now"),
)
_CREATE = Statement(_key.add_cte(_user.cte("new_user")).add_cte(_head.cte("new_head")))
_superseded = (
    update(user_keys)
    .where(_MINE, _k.superseded_at.is_(None))
    .values(superseded_at=bindparam("now"))
    .cte("superseded")
)
_living = (
    select(
        *(
            bindparam(name, type_=user_keys.c[column].type)
            for name, column in (
                ("user_id", "user_id"),
                ("key_version", "key_version"),
                ("root_key_id", "root_key_id"),
                ("wrapped_key", "wrapped_key"),
                ("now", "created_at"),
            )
        )
    )
    .select_from(users)
    .where(users.c.id == bindparam("user_id"), users.c.erased_at.is_(None))
    .with_for_update(read=True)
)
_ADD_KEY = Statement(
    insert(user_keys)
    .from_select(["user_id", "key_version", "root_key_id", "wrapped_key", "created_at"], _living)
    .add_cte(_superseded)
)
_ERASING = Statement(select(users.c.id).where(ERASING).limit(bindparam("limit")))
_KEYS = Statement(
    select(_k.key_version, _k.root_key_id, _k.wrapped_key)
    .where(_MINE, _k.wrapped_key.is_not(None))
    .order_by(_k.key_version)
)
_WRAPPED_OTHERWISE = Statement(
    select(_k.user_id, _k.key_version, _k.root_key_id, _k.wrapped_key)
    .where(
        _k.root_key_id != bindparam("root_key_id"),
        _k.wrapped_key.is_not(None),
        tuple_(_k.user_id, _k.key_version)
        > tuple_(
            bindparam("after_user", type_=_k.user_id.type),
            bindparam("after_version", type_=_k.key_version.type),
        ),
    )
    .order_by(_k.user_id, _k.key_version)
    .limit(bindparam("limit"))
)
_REWRAP = Statement(
    update(user_keys)
    .where(_MINE, _k.key_version == bindparam("version"), _k.wrapped_key == bindparam("old_wrapped"))
    .values(root_key_id=bindparam("root_key_id"), wrapped_key=bindparam("wrapped"))
)
_DESTROY_KEYS = Statement(update(user_keys).where(_MINE).values(wrapped_key=null()))
_ERASED = Statement(
    update(users)
    .where(users.c.id == bindparam("user_id"))
    .values(erased_at=func.coalesce(users.c.erased_at, bindparam("now")))
    .returning(users.c.erased_at)
)
_FORGET_NAME = Statement(update(users).where(users.c.id == bindparam("user_id")).values(external_id=null()))
_LOCK_KEYS = Statement(select(_k.key_version).where(_MINE).with_for_update())


def _delete_all(table: Table) -> Statement:
    return Statement(delete(table).where(table.c.user_id == bindparam("user_id")))


def _count(table: Table) -> Select[int]:
    return select(func.count()).select_from(table).where(table.c.user_id == bindparam("user_id"))


def _delete_some(table: Table) -> Statement:
    key = list(table.primary_key.columns)
    some = select(*key).where(table.c.user_id == bindparam("user_id")).limit(_ERASE_BATCH)
    return Statement(delete(table).where(tuple_(*key).in_(some)))


_ERASE = {table.name: _delete_all(table) for table in user_tables()}
_ERASE_JOBS = Statement(delete(jobs).where(OF_USER))
_ERASE_SOME = {table.name: _delete_some(table) for table in user_tables() if table is not user_keys}
_OVERVIEW = Statement(
    select(
        select(func.max(_k.key_version)).where(_MINE).scalar_subquery().label("key_version"),
        select(func.count()).where(_MINE).scalar_subquery().label("keys"),
        _count(conversations).scalar_subquery().label("conversations"),
        _count(items).scalar_subquery().label("items"),
    )
)


class PostgresUserStore:
    """Implements UserStore."""

    def __init__(self, database: Database, clock: Clock, new_key: NewKey) -> None:
        self._database = database
        self._clock = clock
        self._new_key = new_key

    async def resolve(self, tenant: str, external_id: str) -> UUID:
        """Find, or create with a key and counters in one statement; whoever comes second finds."""
        while True:
            found = await self._row(tenant, external_id)
            if found is not None:
                if found["erased_at"] is not None:
                    raise user_erased()
                found_id: UUID = found["id"]
                return found_id
            now = self._clock.now()
            user_id = new_id(now)
            key = await self._new_key(user_id, 1)
            try:
                await self._database.execute(
                    _CREATE, tenant=tenant, external_id=external_id, **_key_values(user_id, key, now)
                )
            except asyncpg.UniqueViolationError:
                continue
            return user_id

    async def find(self, tenant: str, external_id: str) -> User | None:
        """By tenant and external id."""
        row = await self._row(tenant, external_id)
        return None if row is None else User(row["id"], row["tenant"], row["external_id"], row["created_at"])

    async def _row(self, tenant: str, external_id: str) -> Record | None:
        row = await self._database.fetchrow(_FIND, tenant=tenant, external_id=external_id)
        return None if row is None or row["id"] == INSTALLATION else row

    async def overview(self, user: User) -> UserOverview:
        """Counted now."""
        row = await self._database.fetchrow(_OVERVIEW, user_id=user.id)
        assert row is not None
        return UserOverview(
            user=user,
            key_version=row["key_version"] or 0,
            key_rotation_pending=row["keys"] > 1,
            conversation_count=row["conversations"],
            item_count=row["items"],
        )


class PostgresKeyStore:
    """Implements KeyStore."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def load(self, user_id: UUID) -> Sequence[WrappedKey]:
        """By primary key."""
        return [_wrapped(row) for row in await self._database.fetch(_KEYS, user_id=user_id)]

    async def add(self, user_id: UUID, key: WrappedKey) -> bool:
        """Insert, unless the version is taken, and mark the older ones. The lock on the user's row keeps an
        erasure out until this is committed, and one that came first is seen."""
        try:
            added = await self._database.execute(_ADD_KEY, **_key_values(user_id, key, self._clock.now()))
        except asyncpg.UniqueViolationError:
            return False
        if not added:
            raise user_erased()
        return True

    async def not_wrapped_by(
        self, root_key_id: str, after: tuple[UUID, int], limit: int
    ) -> Sequence[tuple[UUID, WrappedKey]]:
        """By primary key."""
        rows = await self._database.fetch(
            _WRAPPED_OTHERWISE,
            root_key_id=root_key_id,
            after_user=after[0],
            after_version=after[1],
            limit=limit,
        )
        return [(row["user_id"], _wrapped(row)) for row in rows]

    async def rewrap(self, user_id: UUID, old: WrappedKey, new: WrappedKey) -> bool:
        """Compare and set."""
        written = await self._database.execute(
            _REWRAP,
            user_id=user_id,
            version=old.version,
            old_wrapped=old.wrapped,
            root_key_id=new.root_key_id,
            wrapped=new.wrapped,
        )
        return written == 1


class PostgresErasureStore:
    """Implements ErasureStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unfinished(self, limit: int) -> Sequence[UUID]:
        """By a partial index that is empty but for them."""
        return [row["id"] for row in await self._database.fetch(_ERASING, limit=limit)]

    async def destroy_keys(self, user_id: UUID, now: datetime) -> tuple[datetime, int]:
        """One transaction, with the signal that every replica must drop its copy."""

        async def destroy(transaction: Transaction) -> tuple[datetime, int]:
            row = await transaction.fetchrow(_ERASED, user_id=user_id, now=now)
            await transaction.execute(_DESTROY_KEYS, user_id=user_id)
            signal = await transaction.fetchrow(SIGNAL, subject=user_id, now=now)
            assert row is not None
            assert signal is not None
            return row["erased_at"], signal["seq"]

        return await self._database.transact(destroy)

    async def delete_rows(self, user_id: UUID) -> dict[str, int]:
        """In batches, however many there are. What is left then goes in one transaction that locks the key
        rows first: a writer's foreign key waits for that lock and then finds no key, so nothing can be
        written behind the deletion's back."""
        counts = dict.fromkeys(_ERASE, 0)
        for table, some in _ERASE_SOME.items():
            while deleted := await self._database.execute(some, user_id=user_id):
                counts[table] += deleted

        async def delete_rest(transaction: Transaction) -> dict[str, int]:
            await transaction.fetch(_LOCK_KEYS, user_id=user_id)
            rest = {
                table: await transaction.execute(statement, user_id=user_id)
                for table, statement in _ERASE.items()
            }
            await transaction.execute(_ERASE_JOBS, user_id=user_id)
            await transaction.execute(_FORGET_NAME, user_id=user_id)
            return rest

        rest = await self._database.transact(delete_rest)
        return {table: count + rest[table] for table, count in counts.items()}


def _key_values(user_id: UUID, key: WrappedKey, now: datetime) -> dict[str, object]:
    return {
        "user_id": user_id,
        "key_version": key.version,
        "root_key_id": key.root_key_id,
        "wrapped_key": key.wrapped,
        "now": now,
    }


def _wrapped(row: Record) -> WrappedKey:
    return WrappedKey(row["key_version"], row["root_key_id"], row["wrapped_key"])
