"""Threads on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import (
    ARRAY,
    BigInteger,
    DateTime,
    Uuid,
    bindparam,
    func,
    insert,
    literal,
    null,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.selectable import CTE

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.conversation_rows import (
    SHOWN_COLUMNS,
    SHOWN_CONVERSATIONS,
    answered_conversation,
    conversation_answer,
    opened_conversation,
    sealed_conversation,
)
from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.jobs import enqueued
from sage_server.adapters.postgres.memory_statements import removed
from sage_server.adapters.postgres.schema import IS_THREAD, conversations, memories, requests
from sage_server.adapters.postgres.sealed_rows import cipher_for, write_sealed
from sage_server.domain.conversations import (
    Conversation,
    ConversationChange,
    ConversationKind,
    ConversationOrder,
)
from sage_server.domain.errors import etag_mismatch, not_found
from sage_server.domain.idempotency import Once
from sage_server.domain.jobs import JobKind
from sage_server.domain.memories import MemoryState
from sage_server.domain.paging import Page, TimeCursor
from sage_server.ports.keys import KeyRing, UserCipher

_c = conversations.c
_OWNED = (_c.user_id == bindparam("user_id")) & IS_THREAD
_THIS = _OWNED & (_c.id == bindparam("conversation_id"))

INSERT_CONVERSATION = insert(conversations).values(
    {
        column.name: bindparam(column.name, type_=column.type)
        for column in conversations.c
        if column.server_default is None
    }
)
_CREATE = Statement(INSERT_CONVERSATION)
_CREATE_ONCE = Statement(insert(requests).values(replays.VALUES).add_cte(INSERT_CONVERSATION.cte("created")))
_GET = Statement(select(*SHOWN_COLUMNS).select_from(SHOWN_CONVERSATIONS).where(_THIS))
_COUNT = {
    deleted: Statement(select(func.count()).select_from(conversations).where(_OWNED, state))
    for deleted, state in ((False, _c.deleted_at.is_(None)), (True, _c.deleted_at.is_not(None)))
}
_UPDATE = Statement(
    update(conversations)
    .where(_THIS, _c.version == bindparam("expected_version"))
    .values(
        title_enc=bindparam("title_enc"),
        metadata_enc=bindparam("metadata_enc"),
        key_version=bindparam("key_version"),
        memory=bindparam("memory"),
        updated_at=bindparam("now"),
        version=_c.version + 1,
    )
)


def _set_deleted(which: ColumnElement[bool], deleted_at: ColumnElement[Any]) -> CTE:
    return (
        update(conversations)
        .where(_OWNED, which)
        .values(deleted_at=deleted_at, updated_at=_NOW, version=_c.version + 1)
        .returning(_c.id, _c.last_seq, _c.private)
        .cte("changed")
    )


def _delete(which: ColumnElement[bool]) -> Statement:
    """Delete threads softly, and take their messages out of what search finds."""
    deleted = _set_deleted(_c.deleted_at.is_(None) & which, _NOW)
    withdrawn = removed(memories.c.conversation_id.in_(select(deleted.c.id)), MemoryState.WITHDRAWN)
    return Statement(select(deleted.c.id).add_cte(withdrawn.cte("withdrawn")))


def _undelete(which: ColumnElement[bool]) -> Statement:
    """Bring threads back, and have their messages indexed again."""
    restored = _set_deleted(_c.deleted_at.is_not(None) & which, null())
    job = enqueued(
        JobKind.INDEX_ITEMS,
        user_id=bindparam("user_id", type_=Uuid()),
        subject=restored.c.id,
        first=literal(1, BigInteger()),
        last=restored.c.last_seq,
        source=restored,
        where=[~restored.c.private],
    )
    return Statement(select(restored.c.id).add_cte(job.cte("job")))


_NOW = bindparam("now", type_=DateTime(timezone=True))
_UNCHANGED = (_c.id == bindparam("conversation_id", type_=Uuid())) & (
    _c.version == bindparam("expected_version", type_=BigInteger())
)


def _locked(which: ColumnElement[bool]) -> Statement:
    """A deletion waits here for whoever indexes messages, so that its own statement sees what they stored."""
    return Statement(select(_c.id).where(_OWNED, which).order_by(_c.id).with_for_update())


_SOME = _c.id == func.any(bindparam("ids", type_=ARRAY(Uuid())))
_LOCK_SOME = _locked(_SOME)
_LOCK_ALL = _locked(_c.deleted_at.is_(None))
_DELETE = _delete(_UNCHANGED)
_UNDELETE = _undelete(_UNCHANGED)
_DELETE_SOME = _delete(_SOME)
_DELETE_ALL = _delete(true())
_RESERVED = Statement(
    select(_c.id).where(
        _c.user_id == bindparam("user_id"),
        _c.id == func.any(bindparam("ids", type_=ARRAY(Uuid()))),
        ~IS_THREAD,
    )
)


def _list(order: ConversationOrder, *, deleted: bool, following: bool) -> Statement:
    by = _c.active_at if order is ConversationOrder.ACTIVE else _c.created_at
    state = _c.deleted_at.is_not(None) if deleted else _c.deleted_at.is_(None)
    page = select(*SHOWN_COLUMNS).select_from(SHOWN_CONVERSATIONS).where(_OWNED, state)
    if following:
        last = tuple_(bindparam("at", type_=by.type), bindparam("id", type_=_c.id.type))
        page = page.where(tuple_(by, _c.id) < last)
    return Statement(page.order_by(by.desc(), _c.id.desc()).limit(bindparam("limit")))


_LIST = {
    (order, deleted, following): _list(order, deleted=deleted, following=following)
    for order in ConversationOrder
    for deleted in (False, True)
    for following in (False, True)
}


class PostgresConversationStore:
    """Implements ConversationStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def create(self, user_id: UUID, conversation: Conversation, once: Once | None) -> Conversation:
        """One statement, with the kept answer in it if there is a request id."""

        async def write(cipher: UserCipher) -> None:
            row = conversation_values(cipher, user_id, conversation)
            if once is None:
                await self._database.execute(_CREATE, **row)
                return
            answer = conversation_answer(conversation)
            kept = replays.values(cipher, user_id, once, answer, conversation.created_at)
            await self._database.execute(_CREATE_ONCE, **row | kept)

        try:
            await write_sealed(self._keys, user_id, write)
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            first = await replays.replayed(self._database, self._keys, user_id, once)
            return answered_conversation(first.answer)
        return conversation

    async def get(self, user_id: UUID, conversation_id: UUID) -> Conversation:
        """By primary key."""
        before = await self._keys.cipher(user_id)
        row = await self._database.fetchrow(_GET, user_id=user_id, conversation_id=conversation_id)
        if row is None:
            raise not_found("conversation")
        return opened_conversation(await cipher_for(self._keys, user_id, [row], before), row)

    async def list(
        self,
        user_id: UUID,
        *,
        order: ConversationOrder,
        deleted: bool,
        size: int,
        after: TimeCursor | None,
    ) -> Page[Conversation, TimeCursor]:
        """A stretch of the index that has this order; one row more than asked shows if there is more."""
        cursor = {} if after is None else {"at": after.at, "id": after.id}
        statement = _LIST[order, deleted, after is not None]
        before = await self._keys.cipher(user_id)
        rows = await self._database.fetch(statement, user_id=user_id, limit=size + 1, **cursor)
        cipher = await cipher_for(self._keys, user_id, rows, before)
        page = rows[:size]
        return Page(
            [opened_conversation(cipher, row) for row in page],
            _cursor(page[-1], order) if len(rows) > size else None,
        )

    async def update(
        self, user_id: UUID, conversation_id: UUID, change: ConversationChange, etag: str, now: datetime
    ) -> Conversation:
        """Read, change, and write if nobody else has; repeated for a caller who gave no etag."""
        while True:
            current = await self.get(user_id, conversation_id)
            current.check_etag(etag)
            changed = replace(
                current,
                title=current.title if change.title is None else change.title,
                metadata=current.metadata if change.metadata is None else change.metadata,
                memory=current.memory if change.memory is None else change.memory,
                updated_at=now,
                version=current.version + 1,
            )
            if await self._write(user_id, changed, current.version, now):
                return changed
            if etag:
                raise etag_mismatch("conversation")

    async def set_deleted(
        self, user_id: UUID, conversation_id: UUID, deleted_at: datetime | None, etag: str, now: datetime
    ) -> Conversation | None:
        """As `update`."""
        while True:
            current = await self.get(user_id, conversation_id)
            current.check_etag(etag)
            if (current.deleted_at is None) == (deleted_at is None):
                return None
            changed = await self._after_lock(
                _LOCK_SOME,
                {"user_id": user_id, "ids": [conversation_id]},
                _UNDELETE if deleted_at is None else _DELETE,
                {
                    "user_id": user_id,
                    "conversation_id": conversation_id,
                    "expected_version": current.version,
                    "now": now,
                },
            )
            if changed:
                return replace(current, deleted_at=deleted_at, updated_at=now, version=current.version + 1)

    async def delete_many(
        self, user_id: UUID, conversation_ids: Sequence[UUID] | None, now: datetime
    ) -> Sequence[UUID]:
        """One transaction."""
        owner: dict[str, Any] = {"user_id": user_id}
        if conversation_ids is None:
            rows = await self._after_lock(_LOCK_ALL, owner, _DELETE_ALL, owner | {"now": now})
        else:
            owner["ids"] = list(conversation_ids)
            rows = await self._after_lock(_LOCK_SOME, owner, _DELETE_SOME, owner | {"now": now})
        return [row["id"] for row in rows]

    async def _after_lock(
        self, lock: Statement, locked: dict[str, Any], statement: Statement, values: dict[str, Any]
    ) -> Sequence[Record]:
        async def act(transaction: Transaction) -> Sequence[Record]:
            await transaction.fetch(lock, **locked)
            return await transaction.fetch(statement, **values)

        return await self._database.transact(act)

    async def count(self, user_id: UUID, *, deleted: bool) -> int:
        """Counted, not estimated."""
        row = await self._database.fetchrow(_COUNT[deleted], user_id=user_id)
        assert row is not None
        return int(row[0])

    async def reserved(self, user_id: UUID, ids: Sequence[UUID]) -> set[UUID]:
        """By primary key."""
        return {row["id"] for row in await self._database.fetch(_RESERVED, user_id=user_id, ids=list(ids))}

    async def restore(self, user_id: UUID, conversation: Conversation) -> bool:
        """Insert; what is there already wins."""

        async def write(cipher: UserCipher) -> None:
            await self._database.execute(_CREATE, **conversation_values(cipher, user_id, conversation))

        try:
            await write_sealed(self._keys, user_id, write)
        except asyncpg.UniqueViolationError:
            await self.get(user_id, conversation.id)
            return False
        return True

    async def _write(
        self, user_id: UUID, changed: Conversation, expected_version: int, now: datetime
    ) -> bool:
        async def write(cipher: UserCipher) -> int:
            return await self._database.execute(
                _UPDATE,
                user_id=user_id,
                conversation_id=changed.id,
                expected_version=expected_version,
                memory=changed.memory,
                now=now,
                **sealed_conversation(cipher, changed),
            )

        return await write_sealed(self._keys, user_id, write) == 1


def conversation_values(cipher: UserCipher, user_id: UUID, conversation: Conversation) -> dict[str, Any]:
    """The parameters of INSERT_CONVERSATION."""
    return {
        "user_id": user_id,
        "id": conversation.id,
        "kind": ConversationKind.THREAD,
        "private": conversation.private,
        "memory": conversation.memory,
        "last_item_at": conversation.last_item_at,
        "active_at": conversation.last_item_at or conversation.created_at,
        "created_at": conversation.created_at,
        "updated_at": conversation.updated_at,
        "deleted_at": conversation.deleted_at,
        **sealed_conversation(cipher, conversation),
    }


def _cursor(row: Record, order: ConversationOrder) -> TimeCursor:
    return TimeCursor(row["active_at" if order is ConversationOrder.ACTIVE else "created_at"], row["id"])
