"""Copies of threads on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import asyncpg
from sqlalchemy import BigInteger, bindparam, literal, select, update

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.conversation_rows import (
    CONVERSATION_COLUMNS,
    answered_conversation,
    conversation_answer,
    opened_conversation,
    opened_item,
    sealed_items,
)
from sage_server.adapters.postgres.conversations import INSERT_CONVERSATION, conversation_values
from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.items import END, ITEMS_PAGE, THIS_THREAD, inserted_items
from sage_server.adapters.postgres.jobs import enqueued
from sage_server.adapters.postgres.schema import conversations
from sage_server.adapters.postgres.sealed_rows import knows, write_sealed
from sage_server.domain.conversations import Conversation, DraftItem, Fork, Item, conversation_deleted
from sage_server.domain.errors import not_found
from sage_server.domain.idempotency import Once
from sage_server.domain.ids import new_id
from sage_server.domain.jobs import JobKind
from sage_server.ports.keys import KeyRing, UserCipher

_BATCH = 500
_c = conversations.c

_SOURCE = Statement(select(*CONVERSATION_COLUMNS, _c.last_seq).where(THIS_THREAD).with_for_update(read=True))
_INSERT = Statement(INSERT_CONVERSATION)
_COPY = Statement(
    inserted_items(select(bindparam("base", type_=BigInteger()).label("base")).subquery("start"))
)
_COUNT = Statement(
    update(conversations)
    .where(THIS_THREAD)
    .values(
        last_seq=bindparam("count"),
        message_count=bindparam("count"),
        total_tokens=bindparam("tokens"),
        last_item_at=bindparam("at"),
    )
)


_INDEX = Statement(
    enqueued(
        JobKind.INDEX_ITEMS,
        user_id=_c.user_id,
        subject=_c.id,
        first=literal(1, BigInteger()),
        last=_c.last_seq,
        source=conversations,
        where=[THIS_THREAD, ~_c.private, _c.last_seq > 0],
    )
)


class _OldKeysError(Exception):
    """The cipher does not know the key of a row."""


class PostgresForkStore:
    """Implements ForkStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def fork(self, user_id: UUID, fork: Fork, once: Once | None) -> Conversation:
        """Every item is opened and sealed again for its new row, batch by batch in one transaction. It is
        tried again if the keys at hand are too old to open what is there: no transaction waits for keys."""
        earlier = await replays.find(self._database, self._keys, user_id, once)
        if earlier is not None:
            return answered_conversation(earlier.answer)

        async def write(cipher: UserCipher) -> Conversation | None:
            async def copy_all(transaction: Transaction) -> Conversation:
                copy = await self._start_fork(transaction, user_id, fork, cipher)
                copy = await self._copy_items(transaction, user_id, fork, copy, cipher)
                await transaction.execute(_INDEX, user_id=user_id, conversation_id=copy.id)
                if once is not None:
                    answer = conversation_answer(copy)
                    kept = replays.values(cipher, user_id, once, answer, fork.created_at)
                    await transaction.execute(replays.INSERT, **kept)
                return copy

            try:
                return await self._database.transact(copy_all)
            except _OldKeysError:
                return None

        try:
            while (copy := await write_sealed(self._keys, user_id, write)) is None:
                self._keys.forget(user_id)
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            first = await replays.replayed(self._database, self._keys, user_id, once)
            return answered_conversation(first.answer)
        return copy

    async def _start_fork(
        self, transaction: Transaction, user_id: UUID, fork: Fork, cipher: UserCipher
    ) -> Conversation:
        row = await transaction.fetchrow(_SOURCE, user_id=user_id, conversation_id=fork.source_id)
        if row is None:
            raise not_found("conversation")
        _require_keys(cipher, [row])
        source = opened_conversation(cipher, row)
        if source.deleted_at is not None:
            raise conversation_deleted()
        copy = Conversation(
            id=fork.new_id,
            title=source.title if fork.title is None else fork.title,
            metadata=source.metadata,
            private=source.private,
            memory=source.memory,
            created_at=fork.created_at,
            updated_at=fork.created_at,
        )
        await transaction.execute(_INSERT, **conversation_values(cipher, user_id, copy))
        return copy

    async def _copy_items(
        self,
        transaction: Transaction,
        user_id: UUID,
        fork: Fork,
        copy: Conversation,
        cipher: UserCipher,
    ) -> Conversation:
        last = END if fork.up_to_seq is None else fork.up_to_seq
        after = 0
        while True:
            rows = await transaction.fetch(
                ITEMS_PAGE[False],
                user_id=user_id,
                conversation_id=fork.source_id,
                after=after,
                kinds=[],
                show_hidden=True,
                limit=_BATCH,
            )
            _require_keys(cipher, rows)
            batch = [item for item in (opened_item(cipher, row) for row in rows) if item.seq <= last]
            if batch:
                drafts = [_draft(item) for item in batch]
                await transaction.execute(
                    _COPY,
                    user_id=user_id,
                    conversation_id=copy.id,
                    base=copy.message_count,
                    key_version=cipher.key_version,
                    **sealed_items(cipher, drafts),
                )
                copy = replace(
                    copy,
                    message_count=copy.message_count + len(batch),
                    total_tokens=copy.total_tokens + sum(item.token_count for item in batch),
                    last_item_at=batch[-1].created_at,
                )
            if len(batch) < _BATCH:
                break
            after = batch[-1].seq
        await transaction.execute(
            _COUNT,
            user_id=user_id,
            conversation_id=copy.id,
            count=copy.message_count,
            tokens=copy.total_tokens,
            at=copy.last_item_at,
        )
        return copy


def _require_keys(cipher: UserCipher, rows: Sequence[Record]) -> None:
    if not knows(cipher, rows):
        raise _OldKeysError


def _draft(item: Item) -> DraftItem:
    """A copy of an item, to be stored under an id of its own. Its turn was one of the original's."""
    return DraftItem(
        id=new_id(item.created_at),
        kind=item.kind,
        text=item.text,
        author=item.author,
        token_count=item.token_count,
        created_at=item.created_at,
        hidden=item.hidden,
        tool=item.tool,
        agent_id=item.agent_id,
        recalled=item.recalled,
    )
