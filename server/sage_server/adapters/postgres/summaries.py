"""Summaries of threads on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import ARRAY, BigInteger, Uuid, bindparam, exists, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.memories import INDEX_MEMORIES
from sage_server.adapters.postgres.memory_rows import sealed_memories
from sage_server.adapters.postgres.memory_statements import space_values
from sage_server.adapters.postgres.schema import cell, conversation_summaries, conversations, items
from sage_server.adapters.postgres.sealed_rows import cipher_for, open_text, seal_text, write_sealed
from sage_server.domain.idempotency import Once
from sage_server.domain.paging import Page
from sage_server.domain.summaries import Summarized, Summary
from sage_server.ports.keys import KeyRing, UserCipher
from sage_server.ports.memories import NewMemory, Space, Written
from sage_server.ports.transcripts import NewSummary, SummaryOutdated

_s, _c, _i = conversation_summaries.c, conversations.c, items.c
_CONTENT = cell(_s.content_enc)
_END = 2**63 - 1
_THESE = (_s.user_id == bindparam("user_id")) & (_s.conversation_id == bindparam("conversation_id"))
SUMMARY_COLUMNS = tuple(column for column in _s if column is not _s.user_id)
_PAGE = Statement(
    select(*SUMMARY_COLUMNS)
    .where(_THESE, _s.epoch < bindparam("before", type_=BigInteger()))
    .order_by(_s.epoch.desc())
    .limit(bindparam("limit"))
)
# Whoever deletes the thread or an item of it locks the row for itself: it comes first, and is seen, or waits.
_LIVE = Statement(
    select(_c.private)
    .where(_c.user_id == bindparam("user_id"), _c.id == bindparam("conversation_id"), _c.deleted_at.is_(None))
    .with_for_update(read=True)
)


def _insert() -> Statement:
    """Insert a summary if it continues the newest and its items are there. Of two that continue the same one,
    the second finds its epoch taken."""
    ids = bindparam("covered", type_=ARRAY(Uuid()))
    present = (
        select(func.count())
        .where(
            _i.user_id == bindparam("user_id"),
            _i.conversation_id == bindparam("conversation_id"),
            _i.id == func.any(ids),
        )
        .scalar_subquery()
    )
    epoch, previous = bindparam("epoch", type_=BigInteger()), bindparam("previous_id", type_=Uuid())
    continues = or_(
        (epoch == 1) & previous.is_(None),
        exists(select(_s.id).where(_THESE, _s.epoch == epoch - 1, _s.id == previous)),
    )
    values = [bindparam(column.name, type_=column.type) for column in _s]
    row = select(*values).where(continues, present == func.cardinality(ids))
    return Statement(
        insert(conversation_summaries)
        .from_select([column.name for column in _s], row, include_defaults=False)
        .on_conflict_do_nothing(index_elements=[_s.user_id, _s.conversation_id, _s.epoch])
    )


_INSERT = _insert()


class _OtherSpaceError(Exception):
    """The vectors are not of the user's space: undoes the transaction."""


class PostgresSummaryStore:
    """Implements SummaryStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def latest(self, user_id: UUID, conversation_id: UUID) -> Summary | None:
        """The end of the index by epoch."""
        page = await self.list(user_id, conversation_id, 1, None)
        return page.rows[0] if page.rows else None

    async def list(
        self, user_id: UUID, conversation_id: UUID, size: int, after: int | None
    ) -> Page[Summary, int]:
        """A stretch of the index by epoch, read backwards."""
        before = await self._keys.cipher(user_id)
        rows = await self._database.fetch(
            _PAGE,
            user_id=user_id,
            conversation_id=conversation_id,
            before=_END if after is None else after,
            limit=size + 1,
        )
        cipher = await cipher_for(self._keys, user_id, rows, before)
        page = [opened_summary(cipher, row) for row in rows[:size]]
        return Page(page, page[-1].epoch if len(rows) > size else None)

    async def add(
        self,
        user_id: UUID,
        new: NewSummary,
        memories: Sequence[NewMemory],
        space: Space | None,
        once: Once | None,
    ) -> Written | None:
        """One transaction; the user's counters, which others wait for, come last."""
        summary = new.summary

        async def write(cipher: UserCipher) -> Written:
            async def store(transaction: Transaction) -> Written:
                private = await _inserted(transaction, cipher, user_id, new)
                if once is not None:
                    answer = _answer(Summarized(summary, applied=True))
                    kept = replays.values(cipher, user_id, once, answer, summary.created_at)
                    await transaction.execute(replays.INSERT, **kept)
                if private or not memories or space is None:
                    return Written(0, [], summary.created_at)
                return await _indexed(transaction, cipher, user_id, memories, space)

            return await self._database.transact(store)

        try:
            return await write_sealed(self._keys, user_id, write)
        except _OtherSpaceError:
            return None
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            raise SummaryOutdated from error

    async def answered(self, user_id: UUID, once: Once | None) -> Summarized | None:
        """By primary key."""
        found = await replays.find(self._database, self._keys, user_id, once)
        return None if found is None else _answered(found.answer)

    async def answer(self, user_id: UUID, once: Once | None, answer: Summarized, now: datetime) -> Summarized:
        """One statement."""
        if once is None:
            return answer

        async def write(cipher: UserCipher) -> None:
            kept = replays.values(cipher, user_id, once, _answer(answer), now)
            await self._database.execute(replays.INSERT, **kept)

        try:
            await write_sealed(self._keys, user_id, write)
        except asyncpg.UniqueViolationError as error:
            if not replays.is_repeat(error):
                raise
            first = await replays.replayed(self._database, self._keys, user_id, once)
            return _answered(first.answer)
        return answer


async def _inserted(transaction: Transaction, cipher: UserCipher, user_id: UUID, new: NewSummary) -> bool:
    """Store the row; answers with whether the thread is private."""
    summary = new.summary
    thread = await transaction.fetchrow(_LIVE, user_id=user_id, conversation_id=summary.conversation_id)
    if thread is None:
        raise SummaryOutdated
    stored = await transaction.execute(
        _INSERT,
        user_id=user_id,
        covered=list(new.covered),
        content_enc=seal_text(cipher, _CONTENT, summary.id, summary.text),
        key_version=cipher.key_version,
        **{column.name: getattr(summary, column.name) for column in _s if hasattr(summary, column.name)},
    )
    if not stored:
        raise SummaryOutdated
    return bool(thread["private"])


async def _indexed(
    transaction: Transaction, cipher: UserCipher, user_id: UUID, memories: Sequence[NewMemory], space: Space
) -> Written:
    row = await transaction.fetchrow(
        INDEX_MEMORIES[space.slot],
        **sealed_memories(cipher, memories, space.slot),
        user_id=user_id,
        key_version=cipher.key_version,
        **space_values(space),
    )
    if row is None:
        raise _OtherSpaceError
    return Written(row["memory_revision"], row["ids"] or [], memories[0].memory.updated_at)


def opened_summary(cipher: UserCipher, row: Record) -> Summary:
    """A row of SUMMARY_COLUMNS."""
    return Summary(
        id=row["id"],
        conversation_id=row["conversation_id"],
        from_seq=row["from_seq"],
        to_seq=row["to_seq"],
        message_count=row["message_count"],
        text=open_text(cipher, _CONTENT, row["id"], row["content_enc"]),
        token_count=row["token_count"],
        epoch=row["epoch"],
        created_at=row["created_at"],
        previous_id=row["previous_id"],
    )


def _answer(answer: Summarized) -> dict[str, Any]:
    """An answer as it is kept, in JSON."""
    summary = answer.summary
    if summary is None:
        return {"applied": answer.applied}
    return {
        "applied": answer.applied,
        "id": str(summary.id),
        "conversation_id": str(summary.conversation_id),
        "from_seq": summary.from_seq,
        "to_seq": summary.to_seq,
        "message_count": summary.message_count,
        "text": summary.text,
        "token_count": summary.token_count,
        "epoch": summary.epoch,
        "created_at": summary.created_at.isoformat(),
        "previous_id": None if summary.previous_id is None else str(summary.previous_id),
    }


def _answered(kept: dict[str, Any]) -> Summarized:
    """Reads `_answer`."""
    if "id" not in kept:
        return Summarized(None, applied=kept["applied"])
    previous = kept["previous_id"]
    summary = Summary(
        id=UUID(kept["id"]),
        conversation_id=UUID(kept["conversation_id"]),
        from_seq=kept["from_seq"],
        to_seq=kept["to_seq"],
        message_count=kept["message_count"],
        text=kept["text"],
        token_count=kept["token_count"],
        epoch=kept["epoch"],
        created_at=datetime.fromisoformat(kept["created_at"]),
        previous_id=None if previous is None else UUID(previous),
    )
    return Summarized(summary, applied=kept["applied"])
