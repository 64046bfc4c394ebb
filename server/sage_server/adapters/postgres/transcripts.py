"""Threads of users and of agents on Postgres, as agents and background work read them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import bindparam, exists, select

from sage_server.adapters.postgres.conversation_rows import ITEM_COLUMNS, opened_item
from sage_server.adapters.postgres.database import Database, Record, Statement
from sage_server.adapters.postgres.items import items_page, page_values
from sage_server.adapters.postgres.schema import agents, conversations, items, turns
from sage_server.adapters.postgres.sealed_rows import cipher_for
from sage_server.domain.agents import MemoryMode
from sage_server.domain.conversations import ConversationMemory, Item, ItemFilter
from sage_server.domain.errors import not_found
from sage_server.domain.paging import Page
from sage_server.ports.keys import KeyRing
from sage_server.ports.transcripts import Thread

_c, _i, _a = conversations.c, items.c, agents.c
_owning = (_a.user_id == _c.user_id) & (_a.conversation_id == _c.id)
_THREAD = Statement(
    select(
        _c.id,
        _c.private,
        _c.deleted_at,
        _c.memory,
        _c.last_seq,
        _c.message_count,
        _a.id.label("agent_id"),
        _a.memory_mode,
        exists(
            select(turns.c.id).where(
                turns.c.user_id == _c.user_id, turns.c.conversation_id == _c.id, turns.c.tainted
            )
        ).label("tainted"),
    )
    .select_from(conversations.outerjoin(agents, _owning))
    .where(_c.user_id == bindparam("user_id"), _c.id == bindparam("conversation_id"))
)
_ITEMS = (_i.user_id == bindparam("user_id")) & (_i.conversation_id == bindparam("conversation_id"))
_PAGE = {order: items_page(_ITEMS, newest_first=order) for order in (False, True)}
_ITEM = Statement(select(*ITEM_COLUMNS).where(_ITEMS, _i.id == bindparam("item_id")))
_NEWEST = Statement(
    select(*ITEM_COLUMNS)
    .where(_ITEMS, _i.seq > bindparam("after"))
    .order_by(_i.seq.desc())
    .limit(bindparam("limit"))
)


class PostgresTranscriptStore:
    """Implements TranscriptStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def thread(self, user_id: UUID, conversation_id: UUID) -> Thread:
        """By primary key."""
        row = await self._database.fetchrow(_THREAD, user_id=user_id, conversation_id=conversation_id)
        if row is None:
            raise not_found("conversation")
        mode = row["memory_mode"]
        return Thread(
            id=row["id"],
            private=row["private"],
            deleted=row["deleted_at"] is not None,
            memory=ConversationMemory(row["memory"]),
            last_seq=row["last_seq"],
            message_count=row["message_count"],
            agent_id=row["agent_id"],
            memory_mode=None if mode is None else MemoryMode(mode),
            tainted=row["tainted"],
        )

    async def items(
        self, user_id: UUID, conversation_id: UUID, which: ItemFilter, size: int, after: int | None
    ) -> Page[Item, int]:
        """A stretch of the index by position."""
        found = await self._opened(
            _PAGE[which.newest_first], user_id, conversation_id, **page_values(which, after, size)
        )
        page = found[:size]
        return Page(page, page[-1].seq if len(found) > size else None)

    async def item(self, user_id: UUID, conversation_id: UUID, item_id: UUID) -> Item | None:
        """By primary key."""
        found = await self._opened(_ITEM, user_id, conversation_id, item_id=item_id)
        return found[0] if found else None

    async def newest(self, user_id: UUID, conversation_id: UUID, after: int, limit: int) -> Sequence[Item]:
        """The end of the index by position, read backwards."""
        found = await self._opened(_NEWEST, user_id, conversation_id, after=after, limit=limit)
        return found[::-1]

    async def _opened(
        self, statement: Statement, user_id: UUID, conversation_id: UUID, **values: object
    ) -> list[Item]:
        before = await self._keys.cipher(user_id)
        rows: list[Record] = await self._database.fetch(
            statement, user_id=user_id, conversation_id=conversation_id, **values
        )
        cipher = await cipher_for(self._keys, user_id, rows, before)
        return [opened_item(cipher, row) for row in rows]
