"""What one BatchInsertMemories writes, written with asyncpg alone into the same tables: the baseline of the
insert benchmark. The bytes are random, made beforehand and of the lengths that the server stores."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg

from bench.environment import Connection
from sage_server.domain.ids import new_id

_GROW = """
    UPDATE heads SET memory_revision = memory_revision + 1, embedding_model = 'raw', dimensions = 1
    WHERE user_id = $1 RETURNING memory_revision
"""
_COLUMNS = (
    *("user_id", "id", "source", "state", "revision", "trust", "content_enc", "model_0", "vector_0_enc"),
    *("created_at", "updated_at", "key_version"),
)
_UNNEST = f"""
    INSERT INTO memories ({", ".join(_COLUMNS)})
    SELECT $1, id, 1, 0, $2, 1, content, 'hash/0000', vector, $3, $3, 1
    FROM unnest($4::uuid[], $5::bytea[], $6::bytea[]) AS new(id, content, vector)
"""
_KEEP = """
    INSERT INTO requests (user_id, id, response_enc, ordinal, expires_at, key_version)
    VALUES ($1, $2, $3, $4, $5, 1)
"""


@dataclass(frozen=True)
class StoredSizes:
    """How many bytes the server has stored."""

    contents: Sequence[int]
    vector: int
    answer: int


class RawInsert:
    """Writes batches, each to the user whose turn it is."""

    def __init__(self, connection: Connection, users: Sequence[UUID], sizes: StoredSizes) -> None:
        self._connection = connection
        self._users = users
        self._contents = [os.urandom(size) for size in sizes.contents]
        self._vectors = [os.urandom(sizes.vector) for _ in sizes.contents]
        self._answer = os.urandom(sizes.answer)

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, first: int, users: int, sizes: StoredSizes) -> AsyncIterator[RawInsert]:
        """Connect, with so many users, numbered from `first`."""
        connection = await asyncpg.connect(dsn, command_timeout=60)
        try:
            made = [await _new_user(connection, number) for number in range(first, first + users)]
            yield cls(connection, made, sizes)
        finally:
            await connection.close()

    async def with_copy(self, number: int) -> object:
        """COPY, the fastest way into a table."""
        user_id, now = self._users[number], datetime.now(UTC)
        async with self._connection.transaction():
            revision = await self._connection.fetchval(_GROW, user_id)
            rows = [
                (user_id, new_id(now), 1, 0, revision, 1, content, "hash/0000", vector, now, now, 1)
                for content, vector in zip(self._contents, self._vectors, strict=True)
            ]
            await self._connection.copy_records_to_table("memories", records=rows, columns=_COLUMNS)
            await self._keep(user_id, revision, now)
        return revision

    async def with_unnest(self, number: int) -> object:
        """One INSERT, an array a column."""
        user_id, now = self._users[number], datetime.now(UTC)
        async with self._connection.transaction():
            revision = await self._connection.fetchval(_GROW, user_id)
            ids = [new_id(now) for _ in self._contents]
            await self._connection.execute(
                _UNNEST, user_id, revision, now, ids, self._contents, self._vectors
            )
            await self._keep(user_id, revision, now)
        return revision

    async def _keep(self, user_id: UUID, revision: int, now: datetime) -> None:
        kept = (user_id, uuid4(), self._answer, revision, now + timedelta(days=1))
        await self._connection.execute(_KEEP, *kept)


async def _new_user(connection: Connection, number: int) -> UUID:
    now = datetime.now(UTC)
    user_id = new_id(now)
    await connection.execute(
        "INSERT INTO users (id, tenant, external_id, created_at) VALUES ($1, 'raw', $2, $3)",
        *(user_id, str(number), now),
    )
    await connection.execute(
        "INSERT INTO user_keys (user_id, key_version, root_key_id, wrapped_key, created_at) "
        "VALUES ($1, 1, 'raw', $2, $3)",
        *(user_id, os.urandom(60), now),
    )
    await connection.execute("INSERT INTO heads (user_id) VALUES ($1)", user_id)
    return user_id
