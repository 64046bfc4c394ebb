"""What holds a lock or a connection waits for the database only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from sage_client import AsyncSageClient, NewItem
from sage_server.adapters.crypto import CachedKeyRing, KeyWrapping
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.documents import PostgresDocumentStore
from sage_server.adapters.postgres.forks import PostgresForkStore
from sage_server.adapters.postgres.users import PostgresKeyStore
from sage_server.bootstrap import open_root_keys
from sage_server.domain.conversations import Fork
from sage_server.domain.ids import new_id
from sage_server.domain.memories import MemoryTrust
from sage_server.ports.document_store import NewDocument, Pending
from support.server import RunningServer, test_settings


@dataclass
class Threads:
    """Threads that are busy until they are let go, one after the other."""

    waiting: list[asyncio.Event] = field(default_factory=list)

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.waiting.append(mine := asyncio.Event())
        await mine.wait()
        return work(*arguments)

    async def asked(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.waiting) < times:  # noqa: ASYNC110 (they wait for a thread)
                await asyncio.sleep(0.01)


@asynccontextmanager
async def replica(server: RunningServer, connections: int) -> AsyncIterator[tuple[Database, CachedKeyRing]]:
    """The database and the keys of a replica that is told nothing."""
    database = await Database.open(server.dsn, PoolOptions(1, connections, 2, 10))
    try:
        wrapping = KeyWrapping(open_root_keys(test_settings(server.dsn)))
        yield database, CachedKeyRing(PostgresKeyStore(database, server.clock), wrapping, 10)
    finally:
        await database.close()


async def user_of(client: AsyncSageClient) -> UUID:
    await client.memory.stats()
    return UUID((await client.admin.get_user("maria")).id)


def document(text: str) -> NewDocument:
    return NewDocument(
        title="Trees",
        external_id="trees",
        media_type="text/plain",
        digest=text.encode().hex(),
        byte_count=len(text),
        text=text,
        tags=(),
        metadata={},
        agent_id=None,
        trust=MemoryTrust.USER,
    )


async def assert_nobody_waits_in_a_transaction(server: RunningServer) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        await connection.execute("SELECT 1 FROM heads FOR UPDATE NOWAIT")
        idle = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        )
    finally:
        await connection.close()
    assert idle == 0


async def test_a_document_waits_for_a_thread_before_it_locks_anything(
    server: RunningServer, client: AsyncSageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_id = await user_of(client)
    await server.application.workers.stop()
    threads = Threads()
    async with replica(server, 2) as (database, keys):
        store = PostgresDocumentStore(database, keys)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "to_thread", threads.run)
            accepting = asyncio.create_task(store.accept(user_id, document("oak"), None, server.clock.now()))
            await threads.asked(1)
            await assert_nobody_waits_in_a_transaction(server)
            threads.waiting[0].set()
            accepted = await accepting
        assert isinstance(accepted, Pending)
        found = await store.state(user_id, accepted.document.id)
        assert isinstance(found, Pending)
        assert (found.text, found.version) == ("oak", 1)


async def test_a_document_that_another_has_stored_meanwhile_is_sealed_for_its_row(
    server: RunningServer, client: AsyncSageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_id = await user_of(client)
    await server.application.workers.stop()
    threads = Threads()
    async with replica(server, 2) as (database, keys):
        store = PostgresDocumentStore(database, keys)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "to_thread", threads.run)
            accepting = []
            for text in ("oak", "elm"):
                accept = store.accept(user_id, document(text), None, server.clock.now())
                accepting.append(asyncio.create_task(accept))
                await threads.asked(len(accepting))
            oak, elm = accepting
            threads.waiting[0].set()
            first = await oak
            threads.waiting[1].set()
            await threads.asked(3)
            await assert_nobody_waits_in_a_transaction(server)
            threads.waiting[2].set()
            second = await elm
        assert isinstance(first, Pending)
        assert isinstance(second, Pending)
        assert (second.document.id, second.version) == (first.document.id, 2)
        found = await store.state(user_id, first.document.id)
        assert isinstance(found, Pending)
        assert (found.text, found.version) == ("elm", 2)


async def test_a_copy_of_a_thread_loads_keys_before_it_has_a_connection(
    server: RunningServer, client: AsyncSageClient
) -> None:
    """With one connection, a transaction that waits for keys waits for itself."""
    thread = await client.conversations.create("garden")
    user_id = await user_of(client)
    async with replica(server, 1) as (database, keys):
        old = await keys.cipher(user_id)
        await client.admin.rotate_user_key("maria")
        await client.conversations.append(thread.id, [NewItem.user("sealed with the new key")])
        now = server.clock.now()
        fork = Fork(UUID(thread.id), new_id(now), up_to_seq=None, title=None, created_at=now)
        copy = await PostgresForkStore(database, keys).fork(user_id, fork, None)
        assert (await keys.cipher(user_id)).key_version > old.key_version
    (item,) = [one async for one in client.conversations.items(str(copy.id))]
    assert item.text == "sealed with the new key"
