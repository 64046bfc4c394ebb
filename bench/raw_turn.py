"""What a turn of one step must store and read, with nothing but asyncpg: two transactions and four reads."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg

from sage_server.domain.ids import new_id

_GROW = """
    UPDATE conversations SET last_seq = last_seq + 1, message_count = message_count + 1,
        total_tokens = total_tokens + 12, last_item_at = $3, active_at = greatest(active_at, $3)
    WHERE user_id = $1 AND id = $2 AND deleted_at IS NULL RETURNING last_seq
"""
_ITEM = """
    INSERT INTO items (user_id, conversation_id, seq, key_version, id, kind, content_enc, token_count, hidden,
        turn_id, created_at) VALUES ($1, $2, $3, 1, $4, $5, $6, 12, false, $7, $8)
"""
_NUMBERS = "UPDATE heads SET last_event = last_event + 2 WHERE user_id = $1 RETURNING last_event"
_EVENTS = """
    INSERT INTO events (user_id, seq, id, kind, turn_id, step, agent_id, channel, payload_enc, created_at,
        expires_at, key_version)
    SELECT $1, $2::bigint + n, id, 10, $3, 0, $4, 1, payload, $5, $6, 1
    FROM unnest($7::uuid[], $8::bytea[]) WITH ORDINALITY AS new(id, payload, n)
"""
_TURN = """
    INSERT INTO turns (user_id, id, conversation_id, agent_id, own_thread, status, origin, store, lease_owner,
        lease_until, fence, first_event, last_event, created_at, started_at)
    VALUES ($1, $2, $3, $4, true, $8, 1, true, $4, now() + interval '10 s', 1, $5, $6, $7, $7)
"""
_REQUEST = """
    INSERT INTO requests (user_id, id, response_enc, expires_at, key_version) VALUES ($1, $2, $3, $4, 1)
"""
_JOB = """
    INSERT INTO pgqueuer (priority, status, entrypoint, payload) VALUES (0, 'successful', 'index_items', $1)
"""
_END = """
    UPDATE turns SET status = 3, step = 1, last_event = $3, message_count = 1, prompt_tokens = 900,
        completion_tokens = 20, model_calls = 1, lease_owner = NULL, lease_until = NULL, ended_at = $4
    WHERE user_id = $1 AND id = $2 AND fence = 1 AND status = 2
"""
_USAGE = """
    INSERT INTO usage_records (user_id, day, model, purpose, calls, prompt_tokens, completion_tokens,
        embedding_tokens) VALUES ($1, $2, 'raw/model', 1, 1, 900, 20, 0)
    ON CONFLICT (user_id, day, model, purpose) DO UPDATE SET calls = usage_records.calls + 1,
        prompt_tokens = usage_records.prompt_tokens + 900,
        completion_tokens = usage_records.completion_tokens + 20
"""
_READS = (
    "SELECT profile_enc FROM agents WHERE user_id = $1",
    "SELECT label_enc, value_enc FROM memory_blocks WHERE user_id = $1",
    "SELECT content_enc FROM conversation_summaries WHERE user_id = $1 ORDER BY epoch DESC LIMIT 1",
    "SELECT content_enc, tool_enc FROM items WHERE user_id = $1 ORDER BY seq DESC LIMIT 200",
)


@dataclass(frozen=True)
class _Writer:
    """A worker's own connection, user and thread."""

    connection: asyncpg.Connection[asyncpg.Record]
    user_id: UUID
    conversation_id: UUID


class RawTurn:
    """Writes and reads what a turn of one step does. The bytes are made beforehand."""

    def __init__(self, writers: Sequence[_Writer]) -> None:
        self._writers = writers
        self._content = os.urandom(90)
        self._payloads = [os.urandom(500), os.urandom(120)]
        self._answer = os.urandom(180)

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, workers: int) -> AsyncIterator[RawTurn]:
        """Connect, with a user and a thread for each worker."""
        async with AsyncExitStack() as stack:
            writers = []
            for number in range(workers):
                connection = await asyncpg.connect(dsn)
                stack.push_async_callback(connection.close)
                writers.append(await _new_writer(connection, number))
            yield cls(writers)

    async def accept(self, worker: int, status: int = 3) -> UUID:
        """The transaction after which a turn is accepted; one that runs keeps others out of the thread."""
        writer, now = self._writers[worker], datetime.now(UTC)
        connection, user_id, thread = writer.connection, writer.user_id, writer.conversation_id
        turn_id = new_id(now)
        async with connection.transaction():
            await self._store_item(writer, turn_id, 1, now)
            last = await self._store_events(writer, turn_id, now)
            await connection.execute(_TURN, user_id, turn_id, thread, user_id, last - 1, last, now, status)
            await connection.execute(_REQUEST, user_id, uuid4(), self._answer, now + timedelta(days=1))
            await connection.execute(_JOB, self._payloads[1][:48])
        return turn_id

    async def turn(self, worker: int) -> object:
        """All of it."""
        writer = self._writers[worker]
        turn_id = await self.accept(worker, 2)
        for read in _READS:
            await writer.connection.fetch(read, writer.user_id)
        now = datetime.now(UTC)
        async with writer.connection.transaction():
            await self._store_item(writer, turn_id, 2, now)
            last = await self._store_events(writer, turn_id, now)
            await writer.connection.execute(_END, writer.user_id, turn_id, last, now)
            await writer.connection.execute(_USAGE, writer.user_id, now.date())
            await writer.connection.execute(_JOB, self._payloads[1][:48])
        return last

    async def _store_item(self, writer: _Writer, turn_id: UUID, kind: int, now: datetime) -> None:
        place = (writer.user_id, writer.conversation_id)
        seq = int(await writer.connection.fetchval(_GROW, *place, now))
        await writer.connection.execute(_ITEM, *place, seq, new_id(now), kind, self._content, turn_id, now)

    async def _store_events(self, writer: _Writer, turn_id: UUID, now: datetime) -> int:
        last = int(await writer.connection.fetchval(_NUMBERS, writer.user_id))
        ids = [new_id(now), new_id(now)]
        await writer.connection.execute(
            _EVENTS,
            *(writer.user_id, last - 2, turn_id, writer.user_id, now, now + timedelta(days=1)),
            *(ids, self._payloads),
        )
        return last


async def _new_writer(connection: asyncpg.Connection[asyncpg.Record], number: int) -> _Writer:
    now = datetime.now(UTC)
    user_id, conversation_id = new_id(now), new_id(now)
    await connection.execute(
        "INSERT INTO users (id, tenant, external_id, created_at) VALUES ($1, 'raw', $2, $3)",
        *(user_id, str(number), now),
    )
    await connection.execute("INSERT INTO heads (user_id) VALUES ($1)", user_id)
    await connection.execute(
        "INSERT INTO user_keys (user_id, key_version, root_key_id, wrapped_key, created_at) "
        "VALUES ($1, 1, 'raw', $2, $3)",
        *(user_id, os.urandom(60), now),
    )
    await connection.execute(
        "INSERT INTO conversations (user_id, id, kind, title_enc, metadata_enc, private, memory, active_at, "
        "created_at, updated_at, key_version) VALUES ($1, $2, 2, $3, $4, false, 2, $5, $5, $5, 1)",
        *(user_id, conversation_id, os.urandom(39), os.urandom(35), now),
    )
    return _Writer(connection, user_id, conversation_id)
