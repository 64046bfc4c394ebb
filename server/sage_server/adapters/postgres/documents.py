"""Documents on Postgres.

Transactions lock the user's head first: those of one user take turns, and none waits for another's document.
What is large is sealed before they begin, so none waits for a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.document_acceptance import Asked, accepted_in, sealed_for
from sage_server.adapters.postgres.document_rows import (
    external_forms,
    opened_document,
    opened_text,
    tag_forms,
)
from sage_server.adapters.postgres.document_statements import (
    ADVANCE,
    CHUNK_BATCH,
    CHUNKS,
    COMPLETE,
    DELETE,
    FAIL,
    GET,
    LOCK,
    PENDING,
    REMOVE_ALL,
    REMOVE_CHUNKS,
    STATE,
    UPSERT,
    listed,
)
from sage_server.adapters.postgres.memory_rows import opened_batch, sealed_memories
from sage_server.adapters.postgres.memory_statements import space_values
from sage_server.adapters.postgres.sealed_rows import cipher_for, newest_cipher, write_sealed
from sage_server.domain.documents import Document, DocumentStatus
from sage_server.domain.errors import Reason, not_found
from sage_server.domain.idempotency import Once
from sage_server.domain.paging import Page, TimeCursor
from sage_server.ports.document_store import (
    Acceptance,
    Completed,
    DocumentFilter,
    NewDocument,
    Pending,
    Refusal,
    Repeated,
    Taken,
)
from sage_server.ports.keys import KeyRing, UserCipher
from sage_server.ports.memories import MemoryBatch, Removed, Space

_FIRST = UUID(int=0)
_ROWS = 1_000
"""In one statement, which must be through in the time that a statement has."""


class PostgresDocumentStore:
    """Implements DocumentStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def accepted_before(self, user_id: UUID, once: Once) -> Repeated | None:
        """By the kept answer."""
        earlier = await replays.find(self._database, self._keys, user_id, once)
        return None if earlier is None else Repeated(UUID(earlier.answer))

    async def accept(self, user_id: UUID, new: NewDocument, once: Once | None, now: datetime) -> Acceptance:
        """One transaction, tried again if the keys at hand are too old to find what is stored, or if that
        has become another document since it was sealed for."""

        async def write(cipher: UserCipher) -> Acceptance | None:
            asked = Asked(cipher, user_id, new, once, now)
            sealed = await sealed_for(self._database, asked)
            if sealed is None:
                return None
            return await self._database.transact(partial(accepted_in, asked=asked, sealed=sealed))

        try:
            while (accepted := await write_sealed(self._keys, user_id, write)) is None:
                self._keys.forget(user_id)
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            first = await replays.replayed(self._database, self._keys, user_id, once)
            return Repeated(UUID(first.answer))
        return accepted

    async def state(self, user_id: UUID, document_id: UUID) -> Pending | Document:
        """By primary key, with the text."""
        cipher, row = await self._row(STATE, user_id, document_id)
        document = opened_document(cipher, row)
        if document.status is not DocumentStatus.PROCESSING:
            return document
        return Pending(document, row["version"], await asyncio.to_thread(opened_text, cipher, row))

    async def get(self, user_id: UUID, document_id: UUID) -> Document:
        """By primary key."""
        return opened_document(*await self._row(GET, user_id, document_id))

    async def list(
        self, user_id: UUID, which: DocumentFilter, size: int, after: TimeCursor | None
    ) -> Page[Document, TimeCursor]:
        """A stretch of the index by time."""
        before = await newest_cipher(self._database, self._keys, user_id)
        values = _filter_values(before, which)
        if after is not None:
            values |= {"at": after.at, "last_id": after.id}
        statement = listed(frozenset(values))
        rows = await self._database.fetch(statement, user_id=user_id, limit=size + 1, **values)
        cipher = await cipher_for(self._keys, user_id, rows, before)
        page = [opened_document(cipher, row) for row in rows[:size]]
        more = len(rows) > size
        return Page(page, TimeCursor(page[-1].created_at, page[-1].id) if more else None)

    async def chunks(self, user_id: UUID, document_id: UUID, space: Space) -> AsyncIterator[MemoryBatch]:
        """By the index of documents."""
        cipher = await self._keys.cipher(user_id)
        after, more = _FIRST, True
        while more:
            rows = await self._database.fetch(
                CHUNKS[space.slot], user_id=user_id, document_id=document_id, after=after
            )
            more = len(rows) == CHUNK_BATCH
            if rows:
                after = rows[-1]["id"]
                cipher = await cipher_for(self._keys, user_id, rows, cipher)
                yield await asyncio.to_thread(opened_batch, cipher, rows, space.slot)

    async def complete(self, user_id: UUID, taken: Taken, now: datetime) -> Completed | Refusal:
        """One transaction and one revision. Everything is sealed before it begins."""
        written = taken.written

        async def write(cipher: UserCipher) -> Completed | Refusal:
            batches = [
                await asyncio.to_thread(
                    sealed_memories, cipher, written[start : start + _ROWS], taken.space.slot
                )
                for start in range(0, len(written), _ROWS)
            ]
            complete = partial(
                _complete, cipher=cipher, user_id=user_id, taken=taken, batches=batches, now=now
            )
            return await self._database.transact(complete)

        return await write_sealed(self._keys, user_id, write)

    async def fail(self, user_id: UUID, pending: Pending, reason: Reason) -> None:
        """Compare and set."""
        await self._database.execute(
            FAIL,
            user_id=user_id,
            document_id=pending.document.id,
            version=pending.version,
            reason=reason.value,
        )

    async def delete(self, user_id: UUID, document_id: UUID, now: datetime) -> Removed:
        """The row and traces of its chunks, in one transaction."""

        async def work(transaction: Transaction) -> Removed:
            head = await transaction.fetchrow(LOCK, user_id=user_id)
            if not await transaction.execute(DELETE, user_id=user_id, document_id=document_id):
                raise not_found("document")
            assert head is not None
            rows = await transaction.fetch(REMOVE_ALL, user_id=user_id, document_id=document_id, now=now)
            revision = rows[0]["revision"] if rows else head["memory_revision"]
            return Removed(revision, [row["id"] for row in rows])

        return await self._database.transact(work)

    async def _row(self, statement: Statement, user_id: UUID, document_id: UUID) -> tuple[UserCipher, Record]:
        before = await self._keys.cipher(user_id)
        row = await self._database.fetchrow(statement, user_id=user_id, document_id=document_id)
        if row is None:
            raise not_found("document")
        return await cipher_for(self._keys, user_id, [row], before), row


async def _complete(
    transaction: Transaction,
    *,
    cipher: UserCipher,
    user_id: UUID,
    taken: Taken,
    batches: list[dict[str, list[Any]]],
    now: datetime,
) -> Completed | Refusal:
    """Nothing is written before it is sure that everything will be."""
    pending, space = taken.pending, taken.space
    this = {"user_id": user_id, "document_id": pending.document.id}
    head = await transaction.fetchrow(LOCK, user_id=user_id)
    row = await transaction.fetchrow(PENDING, **this, version=pending.version)
    if head is None or row is None:
        return Refusal.SUPERSEDED
    revision = head["memory_revision"]
    if batches or taken.gone:
        advanced = await transaction.fetchrow(ADVANCE, user_id=user_id, **space_values(space))
        if advanced is None:
            return Refusal.OTHER_SPACE
        revision = advanced["memory_revision"]
    for batch in batches:
        await transaction.execute(
            UPSERT[space.slot], user_id=user_id, revision=revision, key_version=cipher.key_version, **batch
        )
    if taken.gone:
        await transaction.execute(REMOVE_CHUNKS, **this, ids=list(taken.gone), revision=revision, now=now)
    await transaction.execute(COMPLETE, **this, chunk_count=taken.chunk_count)
    ready = replace(
        pending.document, status=DocumentStatus.READY, failure=None, chunk_count=taken.chunk_count
    )
    return Completed(ready, revision)


def _filter_values(cipher: UserCipher, which: DocumentFilter) -> dict[str, Any]:
    """The parameters of the conditions that a filter has."""
    values: dict[str, Any] = {
        "external_forms": external_forms(cipher, which.external_id) if which.external_id else None,
        "tags": tag_forms(cipher, which.tags) or None,
        "agent_id": which.agent_id,
        "statuses": [int(status) for status in which.statuses] or None,
    }
    return {name: value for name, value in values.items() if value is not None}
