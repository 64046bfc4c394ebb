"""The items of threads on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import (
    ARRAY,
    BigInteger,
    DateTime,
    SmallInteger,
    Uuid,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.selectable import CTE, FromClause

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.conversation_rows import (
    GIVEN,
    ITEM_COLUMNS,
    new_items,
    opened_item,
    sealed_items,
)
from sage_server.adapters.postgres.database import Database, Statement, Transaction
from sage_server.adapters.postgres.jobs import enqueued
from sage_server.adapters.postgres.memory_statements import removed
from sage_server.adapters.postgres.schema import IS_THREAD, conversations, items, memories, requests
from sage_server.adapters.postgres.sealed_rows import cipher_for, write_sealed
from sage_server.domain.conversations import (
    AppendedItem,
    DraftItem,
    Item,
    ItemFilter,
    conversation_deleted,
)
from sage_server.domain.errors import SageError, not_found
from sage_server.domain.idempotency import Once
from sage_server.domain.jobs import JobKind
from sage_server.domain.paging import Page
from sage_server.ports.clock import Clock
from sage_server.ports.keys import KeyRing, UserCipher

_BATCH = 500
END = 2**63 - 1
"""Beyond every position."""
_c = conversations.c
_i = items.c
THIS_THREAD = (_c.user_id == bindparam("user_id")) & (_c.id == bindparam("conversation_id")) & IS_THREAD
# An agent's own thread is not one of these: its items are neither shown nor deleted here.
_IS_THREAD = select(_c.id).where(THIS_THREAD).correlate(None).exists()
_ITEMS = (
    (_i.user_id == bindparam("user_id")) & (_i.conversation_id == bindparam("conversation_id")) & _IS_THREAD
)


def grown(*which: ColumnElement[bool]) -> CTE:
    """Make room at the end of a thread: the row's lock, held until commit, lines writers up, so
    positions have no gaps and counts are right."""
    count = bindparam("count", type_=BigInteger())
    return (
        update(conversations)
        .where(_c.user_id == bindparam("user_id"), _c.id == bindparam("conversation_id"), *which)
        .values(
            last_seq=_c.last_seq + count,
            message_count=_c.message_count + count,
            total_tokens=_c.total_tokens + bindparam("tokens", type_=BigInteger()),
            last_item_at=bindparam("at", type_=DateTime(timezone=True)),
            active_at=func.greatest(_c.active_at, bindparam("at", type_=DateTime(timezone=True))),
        )
        .returning((_c.last_seq - count).label("base"), _c.private)
        .cte("grown")
    )


def indexed_later(new: CTE, *where: ColumnElement[bool], since: ColumnElement[Any] | None = None) -> CTE:
    """Have the new items of a thread that has grown indexed for recall, with those from the position `since`
    on, if there is one; a private conversation is never."""
    first = new.c.base + 1
    return enqueued(
        JobKind.INDEX_ITEMS,
        user_id=bindparam("user_id", type_=Uuid()),
        subject=bindparam("conversation_id", type_=Uuid()),
        first=first if since is None else func.coalesce(since, first),
        last=new.c.base + bindparam("count", type_=BigInteger()),
        source=new,
        where=[~new.c.private, *where],
    ).cte("job")


def inserted_items(base: FromClause) -> Insert:
    """Insert the items of the parameters, in their order, after the position `base`."""
    new = new_items()
    rows = select(
        bindparam("user_id", type_=Uuid()),
        bindparam("conversation_id", type_=Uuid()),
        base.c.base + new.c.n,
        bindparam("key_version", type_=_i.key_version.type),
        *(new.c[name] for name in GIVEN),
    ).select_from(base.join(new, true()))
    return insert(items).from_select(
        ["user_id", "conversation_id", "seq", "key_version", *GIVEN], rows, include_defaults=False
    )


def _append(*, once: bool) -> Statement:
    """One statement, and so one round trip and one transaction, for everything that an append does."""
    new = grown(IS_THREAD, _c.deleted_at.is_(None))
    statement = select(new.c.base).add_cte(inserted_items(new).cte("inserted"), indexed_later(new))
    if once:
        kept = select(*replays.VALUES.values(), new.c.base)
        columns = [*replays.VALUES, "ordinal"]
        statement = statement.add_cte(insert(requests).from_select(columns, kept).cte("kept"))
    return Statement(statement)


_APPEND = {once: _append(once=once) for once in (False, True)}
_restored = grown(IS_THREAD)
_RESTORE = Statement(
    select(_restored.c.base).add_cte(inserted_items(_restored).cte("inserted"), indexed_later(_restored))
)
_STATE = Statement(select(_c.deleted_at).where(THIS_THREAD))
# A deletion waits here for whoever indexes messages, so that its own statement sees what they stored.
_LOCK = Statement(select(_c.id).where(THIS_THREAD).with_for_update())
_EXISTING = Statement(
    select(_i.id).where(
        _i.user_id == bindparam("user_id"), _i.id == func.any(bindparam("ids", type_=ARRAY(Uuid())))
    )
)


def items_page(which: ColumnElement[bool], *, newest_first: bool) -> Statement:
    """Some of the items of a thread by position."""
    position = bindparam("after", type_=BigInteger())
    kinds = bindparam("kinds", type_=ARRAY(SmallInteger()))
    shown = (bindparam("show_hidden") | ~_i.hidden) & (
        (func.cardinality(kinds) == 0) | (_i.kind == func.any(kinds))
    )
    return Statement(
        select(*ITEM_COLUMNS)
        .where(which, _i.seq < position if newest_first else _i.seq > position, shown)
        .order_by(_i.seq.desc() if newest_first else _i.seq)
        .limit(bindparam("limit"))
    )


ITEMS_PAGE = {order: items_page(_ITEMS, newest_first=order) for order in (False, True)}
_removed = delete(items).where(_ITEMS, _i.id == bindparam("item_id")).returning(_i.token_count).cte("removed")
_DELETE = Statement(
    update(conversations)
    .where(THIS_THREAD, exists(select(_removed.c.token_count)))
    .values(
        message_count=_c.message_count - 1,
        total_tokens=_c.total_tokens - select(_removed.c.token_count).scalar_subquery(),
    )
    .add_cte(
        removed(
            exists(select(_removed.c.token_count))
            & (memories.c.conversation_id == bindparam("conversation_id"))
            & (memories.c.item_id == bindparam("item_id", type_=Uuid()))
        ).cte("forgotten")
    )
)


class PostgresItemStore:
    """Implements ItemStore."""

    def __init__(self, database: Database, keys: KeyRing, clock: Clock) -> None:
        self._database = database
        self._keys = keys
        self._clock = clock

    async def append(
        self, user_id: UUID, conversation_id: UUID, items: Sequence[DraftItem], once: Once | None
    ) -> Sequence[AppendedItem]:
        """One statement. Its positions are not known before it runs, so a kept answer holds them apart."""

        async def write(cipher: UserCipher) -> asyncpg.Record | None:
            kept = {}
            if once is not None:
                answer = [(str(i.id), i.token_count, i.created_at.isoformat()) for i in items]
                kept = replays.values(cipher, user_id, once, answer, self._clock.now())
            return await self._database.fetchrow(
                _APPEND[once is not None],
                **_growth(items),
                **sealed_items(cipher, items),
                **kept | {"user_id": user_id, "key_version": cipher.key_version},
                conversation_id=conversation_id,
            )

        try:
            row = await write_sealed(self._keys, user_id, write)
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            first = await replays.replayed(self._database, self._keys, user_id, once)
            return _answered(first)
        if row is None:
            earlier = await replays.find(self._database, self._keys, user_id, once)
            if earlier is not None:
                return _answered(earlier)
            raise await self._refusal(user_id, conversation_id)
        return [
            AppendedItem(item.id, row["base"] + n, item.token_count, item.created_at)
            for n, item in enumerate(items, 1)
        ]

    async def list(
        self, user_id: UUID, conversation_id: UUID, which: ItemFilter, size: int, after: int | None
    ) -> Page[Item, int]:
        """A stretch of the index by position."""
        before = await self._keys.cipher(user_id)
        rows = await self._database.fetch(
            ITEMS_PAGE[which.newest_first],
            user_id=user_id,
            conversation_id=conversation_id,
            **page_values(which, after, size),
        )
        if not rows:
            await self._require(user_id, conversation_id)
        cipher = await cipher_for(self._keys, user_id, rows, before)
        page = [opened_item(cipher, row) for row in rows[:size]]
        return Page(page, page[-1].seq if len(rows) > size else None)

    async def delete(self, user_id: UUID, conversation_id: UUID, item_id: UUID) -> None:
        """The item, the counts, and what search knew of it."""

        async def delete(transaction: Transaction) -> int:
            await transaction.fetchrow(_LOCK, user_id=user_id, conversation_id=conversation_id)
            return await transaction.execute(
                _DELETE,
                user_id=user_id,
                conversation_id=conversation_id,
                item_id=item_id,
                now=self._clock.now(),
            )

        deleted = await self._database.transact(delete)
        if not deleted:
            await self._require(user_id, conversation_id)
            raise not_found("item")

    async def restore(self, user_id: UUID, conversation_id: UUID, items: Sequence[DraftItem]) -> int:
        """Append what is not there, to a deleted conversation too; another import may do so at once."""
        given = {item.id: item for item in items}
        while True:
            rows = await self._database.fetch(_EXISTING, user_id=user_id, ids=list(given))
            known = {row["id"] for row in rows}
            missing = [item for item in given.values() if item.id not in known]
            if not missing:
                return 0

            async def write(
                cipher: UserCipher, missing: Sequence[DraftItem] = missing
            ) -> asyncpg.Record | None:
                return await self._database.fetchrow(
                    _RESTORE,
                    user_id=user_id,
                    conversation_id=conversation_id,
                    key_version=cipher.key_version,
                    **_growth(missing),
                    **sealed_items(cipher, missing),
                )

            try:
                row = await write_sealed(self._keys, user_id, write)
            except asyncpg.UniqueViolationError:
                continue
            if row is None:
                raise not_found("conversation")
            return len(missing)

    async def _require(self, user_id: UUID, conversation_id: UUID) -> asyncpg.Record:
        row = await self._database.fetchrow(_STATE, user_id=user_id, conversation_id=conversation_id)
        if row is None:
            raise not_found("conversation")
        return row

    async def _refusal(self, user_id: UUID, conversation_id: UUID) -> SageError:
        """Why an append found no live conversation."""
        await self._require(user_id, conversation_id)
        return conversation_deleted()


def page_values(which: ItemFilter, after: int | None, size: int) -> dict[str, object]:
    """The parameters of `items_page`. One row more than asked shows if there is more."""
    return {
        "after": after if after is not None else END if which.newest_first else 0,
        "kinds": list(which.kinds),
        "show_hidden": which.show_hidden,
        "limit": size + 1,
    }


def _growth(items: Sequence[DraftItem]) -> dict[str, object]:
    return {
        "count": len(items),
        "tokens": sum(item.token_count for item in items),
        "at": items[-1].created_at,
    }


def _answered(first: replays.Replay) -> list[AppendedItem]:
    assert first.ordinal is not None
    return [
        AppendedItem(UUID(item_id), first.ordinal + n, token_count, datetime.fromisoformat(created_at))
        for n, (item_id, token_count, created_at) in enumerate(first.answer, 1)
    ]
