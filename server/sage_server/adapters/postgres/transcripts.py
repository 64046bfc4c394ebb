"""Threads of users and of agents on Postgres, as agents and background work read them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import BigInteger, Integer, Uuid, bindparam, case, exists, func, literal, or_, select, true

from sage_server.adapters.postgres.conversation_rows import ITEM_COLUMNS, opened_item
from sage_server.adapters.postgres.database import Database, Record, Statement
from sage_server.adapters.postgres.items import END, items_page, page_values
from sage_server.adapters.postgres.schema import agents, conversation_summaries, conversations, items, turns
from sage_server.adapters.postgres.sealed_rows import cipher_for
from sage_server.adapters.postgres.summaries import SUMMARY_COLUMNS, opened_summary
from sage_server.domain.agents import MemoryMode
from sage_server.domain.conversations import ConversationMemory, Item, ItemFilter, ItemKind
from sage_server.domain.errors import not_found
from sage_server.domain.paging import Page
from sage_server.domain.summaries import Summary
from sage_server.ports.keys import KeyRing
from sage_server.ports.transcripts import Reach, Recent, Thread

_c, _i, _a = conversations.c, items.c, agents.c
_owning = (_a.user_id == _c.user_id) & (_a.conversation_id == _c.id)
_LAST = 10
"""Items that are wanted whatever they hold: what is said next may go on with them."""
_COLUMNS = (
    _c.private,
    _c.deleted_at,
    _c.memory,
    _c.last_seq,
    _c.message_count.label("length"),  # a summary has a message_count, too
    _a.id.label("agent_id"),
    _a.memory_mode,
    exists(
        select(turns.c.id).where(
            turns.c.user_id == _c.user_id, turns.c.conversation_id == _c.id, turns.c.tainted
        )
    ).label("tainted"),
)
_IS_IT = (_c.user_id == bindparam("user_id")) & (_c.id == bindparam("conversation_id"))
_THREAD = Statement(select(*_COLUMNS).select_from(conversations.outerjoin(agents, _owning)).where(_IS_IT))
_s = conversation_summaries.c
_latest = (
    select(*SUMMARY_COLUMNS)
    .where(_s.user_id == _c.user_id, _s.conversation_id == _c.id)
    .order_by(_s.epoch.desc())
    .limit(1)
    .lateral("latest")
)
_OPENED = Statement(
    select(*_COLUMNS, *_latest.c)
    .select_from(conversations.outerjoin(agents, _owning).outerjoin(_latest, true()))
    .where(_IS_IT)
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


def _recent() -> Statement:
    """The database adds up what the newest take at least: most of a long thread is not even sent."""
    turn_id, each = bindparam("turn_id", type_=Uuid()), bindparam("each", type_=Integer())
    message = select(_i.seq).where(
        _i.user_id == bindparam("user_id"), _i.id == bindparam("input_item_id", type_=Uuid())
    )
    end = func.coalesce(message.scalar_subquery(), literal(END, BigInteger()))
    newest = (
        select(*ITEM_COLUMNS)
        .where(
            _ITEMS,
            _i.seq > bindparam("after", type_=BigInteger()),
            (_i.kind != int(ItemKind.USER)) | (_i.seq <= end),
        )
        .order_by(_i.seq.desc())
        .limit(bindparam("limit"))
        .subquery("newest")
    )
    n = newest.c
    takes = case((n.turn_id == turn_id, 0), else_=n.token_count + each)
    newer = n.seq.desc()
    added = select(
        *n,
        func.row_number().over(order_by=newer).label("place"),
        (func.sum(takes).over(order_by=newer, rows=(None, 0)) - takes).label("before_it"),
        func.count().over().label("count"),
        func.sum(n.token_count).over().label("tokens"),
    ).subquery("added")
    return Statement(
        select(added)
        .where(
            or_(
                added.c.turn_id == turn_id,
                added.c.place <= _LAST,
                added.c.before_it < bindparam("tokens", type_=BigInteger()),
            )
        )
        .order_by(added.c.seq)
    )


_RECENT = _recent()


class PostgresTranscriptStore:
    """Implements TranscriptStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def thread(self, user_id: UUID, conversation_id: UUID) -> Thread:
        """By primary key."""
        row = await self._database.fetchrow(_THREAD, user_id=user_id, conversation_id=conversation_id)
        return _thread(conversation_id, row)

    async def opened(self, user_id: UUID, conversation_id: UUID) -> tuple[Thread, Summary | None]:
        """One statement."""
        before = await self._keys.cipher(user_id)
        row = await self._database.fetchrow(_OPENED, user_id=user_id, conversation_id=conversation_id)
        thread = _thread(conversation_id, row)
        if row is None or row["epoch"] is None:
            return thread, None
        return thread, opened_summary(await cipher_for(self._keys, user_id, [row], before), row)

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

    async def recent(self, user_id: UUID, conversation_id: UUID, reach: Reach) -> Recent:
        """The end of the index by position, read backwards as far as it may matter."""
        before = await self._keys.cipher(user_id)
        rows = await self._database.fetch(
            _RECENT,
            user_id=user_id,
            conversation_id=conversation_id,
            after=reach.after,
            limit=reach.items,
            tokens=reach.tokens,
            each=reach.each,
            turn_id=reach.turn_id,
            input_item_id=reach.input_item_id,
        )
        if not rows:
            return Recent(())
        cipher = await cipher_for(self._keys, user_id, rows, before)
        found = [opened_item(cipher, row) for row in rows]
        sent = sum(item.token_count for item in found)
        return Recent(found, rows[0]["count"] - len(found), rows[0]["tokens"] - sent)

    async def _opened(
        self, statement: Statement, user_id: UUID, conversation_id: UUID, **values: object
    ) -> list[Item]:
        before = await self._keys.cipher(user_id)
        rows: list[Record] = await self._database.fetch(
            statement, user_id=user_id, conversation_id=conversation_id, **values
        )
        cipher = await cipher_for(self._keys, user_id, rows, before)
        return [opened_item(cipher, row) for row in rows]


def _thread(conversation_id: UUID, row: Record | None) -> Thread:
    if row is None:
        raise not_found("conversation")
    mode = row["memory_mode"]
    return Thread(
        id=conversation_id,
        private=row["private"],
        deleted=row["deleted_at"] is not None,
        memory=ConversationMemory(row["memory"]),
        last_seq=row["last_seq"],
        message_count=row["length"],
        agent_id=row["agent_id"],
        memory_mode=None if mode is None else MemoryMode(mode),
        tainted=row["tainted"],
    )
