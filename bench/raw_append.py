"""Appending items with nothing but asyncpg, three ways."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from sage_server.domain.ids import new_id

_TOKENS = 45
_GROW = """
    UPDATE conversations
    SET last_seq = last_seq + $3, message_count = message_count + $3, total_tokens = total_tokens + $4,
        last_item_at = $5, active_at = greatest(active_at, $5)
    WHERE user_id = $1 AND id = $2 AND kind = 1 AND deleted_at IS NULL
    RETURNING last_seq - $3 AS base
"""
_COLUMNS = (
    "user_id, conversation_id, seq, key_version, id, kind, content_enc, token_count, hidden, created_at"
)
_INSERT_ITEM = f"INSERT INTO items ({_COLUMNS}) VALUES ($1, $2, $3, 1, $4, 1, $5, $6, false, $7)"
_INSERT_ITEMS = f"""
    INSERT INTO items ({_COLUMNS})
    SELECT $1, $2, $3::bigint + n, 1, id, 1, content, tokens, false, at
    FROM unnest($4::uuid[], $5::bytea[], $6::int[], $7::timestamptz[])
        WITH ORDINALITY AS new(id, content, tokens, at, n)
"""
_INSERT_REQUEST = """
    INSERT INTO requests (user_id, id, response_enc, ordinal, expires_at, key_version)
    VALUES ($1, $2, $3, $4, $5, 1)
"""
_EVERYTHING = f"""
    WITH grown AS ({_GROW}),
    inserted AS (
        INSERT INTO items ({_COLUMNS})
        SELECT $1, $2, base + n, 1, id, 1, content, tokens, false, at
        FROM grown, unnest($6::uuid[], $7::bytea[], $8::int[], $9::timestamptz[])
            WITH ORDINALITY AS new(id, content, tokens, at, n)
    ),
    kept AS (
        INSERT INTO requests (user_id, id, response_enc, ordinal, expires_at, key_version)
        SELECT $1, $10, $11, base, $12, 1 FROM grown
    )
    SELECT base FROM grown
"""


@dataclass(frozen=True)
class _Writer:
    """A worker's own connection, user and conversation."""

    connection: asyncpg.Connection[asyncpg.Record]
    user_id: UUID
    conversation_id: UUID


class RawAppend:
    """Writes what one AppendItems writes. The bytes are made beforehand."""

    def __init__(self, writers: Sequence[_Writer], count: int, content: int, answer: int) -> None:
        self._writers = writers
        self._count = count
        self._contents = [os.urandom(content) for _ in range(count)]
        self._tokens = [_TOKENS] * count
        self._answer = os.urandom(answer)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, dsn: str, workers: int, count: int, content: int, answer: int
    ) -> AsyncIterator[RawAppend]:
        """Connect, with a user and a conversation for each worker."""
        async with AsyncExitStack() as stack:
            writers = []
            for number in range(workers):
                connection = await asyncpg.connect(dsn)
                stack.push_async_callback(connection.close)
                writers.append(await _new_writer(connection, number))
            yield cls(writers, count, content, answer)

    async def with_unnest(self, worker: int) -> object:
        """A transaction of three statements."""
        writer, now, ids = self._start(worker)
        async with writer.connection.transaction():
            base = await self._grow(writer, now)
            times = [now] * self._count
            place = (writer.user_id, writer.conversation_id, base)
            await writer.connection.execute(_INSERT_ITEMS, *place, ids, self._contents, self._tokens, times)
            await self._keep(writer, base, now)
        return base

    async def with_executemany(self, worker: int) -> object:
        """The same, the items one by one in a batch."""
        writer, now, ids = self._start(worker)
        async with writer.connection.transaction():
            base = await self._grow(writer, now)
            place = (writer.user_id, writer.conversation_id)
            rows: list[tuple[Any, ...]] = [
                (*place, base + n, ids[n - 1], self._contents[n - 1], _TOKENS, now)
                for n in range(1, self._count + 1)
            ]
            await writer.connection.executemany(_INSERT_ITEM, rows)
            await self._keep(writer, base, now)
        return base

    async def in_one_statement(self, worker: int) -> object:
        """What the server does, without the server: one round trip."""
        writer, now, ids = self._start(worker)
        return await writer.connection.fetchval(
            _EVERYTHING,
            *(writer.user_id, writer.conversation_id, self._count, self._count * _TOKENS, now),
            *(ids, self._contents, self._tokens, [now] * self._count),
            *(uuid4(), self._answer, now + timedelta(days=1)),
        )

    def _start(self, worker: int) -> tuple[_Writer, datetime, list[UUID]]:
        now = datetime.now(UTC)
        return self._writers[worker], now, [new_id(now) for _ in range(self._count)]

    async def _grow(self, writer: _Writer, now: datetime) -> int:
        tokens = self._count * _TOKENS
        place = (writer.user_id, writer.conversation_id)
        return int(await writer.connection.fetchval(_GROW, *place, self._count, tokens, now))

    async def _keep(self, writer: _Writer, base: int, now: datetime) -> None:
        expires_at = now + timedelta(days=1)
        await writer.connection.execute(
            _INSERT_REQUEST, writer.user_id, uuid4(), self._answer, base, expires_at
        )


async def _new_writer(connection: asyncpg.Connection[asyncpg.Record], number: int) -> _Writer:
    now = datetime.now(UTC)
    user_id, conversation_id = new_id(now), new_id(now)
    await connection.execute(
        "INSERT INTO users (id, tenant, external_id, created_at) VALUES ($1, 'raw', $2, $3)",
        *(user_id, str(number), now),
    )
    await connection.execute(
        "INSERT INTO user_keys (user_id, key_version, root_key_id, wrapped_key, created_at) "
        "VALUES ($1, 1, 'raw', $2, $3)",
        *(user_id, os.urandom(60), now),
    )
    await connection.execute(
        "INSERT INTO conversations (user_id, id, kind, title_enc, metadata_enc, private, memory, active_at, "
        "created_at, updated_at, key_version) VALUES ($1, $2, 1, $3, $4, false, 2, $5, $5, $5, 1)",
        *(user_id, conversation_id, os.urandom(39), os.urandom(35), now),
    )
    return _Writer(connection, user_id, conversation_id)
