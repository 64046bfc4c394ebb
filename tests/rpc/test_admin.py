"""AdminService through the real client and server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

import sage_client
from sage_client import ApiKeyRole, AsyncSageClient, NewItem, NewMemory
from sage_server.adapters.postgres.schema import metadata, sealed_tables, user_tables
from sage_server.domain.errors import Reason, SageError
from support.memory import axis, found, results, said, texts
from support.server import RunningServer, running_server


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def rows_of(database: asyncpg.Connection, user_id: str) -> dict[str, int]:
    """Rows of every table that carries the user, asked from the database and not from our schema."""
    tables = await database.fetch(
        "SELECT table_name FROM information_schema.columns "
        "WHERE column_name = 'user_id' AND table_schema = 'public'"
    )
    return {
        table["table_name"]: await database.fetchval(
            f"SELECT count(*) FROM {table['table_name']} WHERE user_id = $1::text::uuid", user_id
        )
        for table in tables
    }


async def test_erased_is_erased(server: RunningServer, database: asyncpg.Connection) -> None:
    """Rows, keys and caches on every replica; the counts say so; somebody else's stay."""
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
        sage_client.connect_async(server.address, user="ada") as ada,
    ):
        thread = await here.conversations.create("secret")
        await there.conversations.append(thread.id, [NewItem.user("one"), NewItem.user("two")])
        kept = await ada.conversations.create("kept")
        user = await here.admin.get_user("maria")
        assert (user.conversation_count, user.item_count) == (1, 2)
        erased = await here.admin.erase_user("maria")
        assert erased.rows_by_table["items"] == 2
        assert erased.rows_by_table["conversations"] == 1
        assert erased.rows_by_table["requests"] == 2
        assert (erased.replicas_confirmed, erased.replicas_unconfirmed) == (2, 0)
        assert not any((await rows_of(database, user.id)).values())
        tombstone = await database.fetchrow("SELECT * FROM users WHERE id = $1::text::uuid", user.id)
        assert tombstone is not None
        assert tombstone["external_id"] is None
        with pytest.raises(sage_client.NotFound):
            await here.admin.get_user("maria")
        for client in (here, there):
            with pytest.raises(sage_client.NotFound):
                await client.conversations.get(thread.id)
        assert (await here.admin.get_user("maria")).id != user.id
        assert (await ada.conversations.get(kept.id)).title == "kept"


async def test_no_table_with_a_user_can_be_forgotten_by_erasure(database: asyncpg.Connection) -> None:
    """What the database has is what erasure and rotation know."""
    found = await database.fetch(
        "SELECT table_name FROM information_schema.columns "
        "WHERE column_name = 'user_id' AND table_schema = 'public'"
    )
    assert {row["table_name"] for row in found} == {table.name for table in user_tables()}
    sealed = await database.fetch(
        "SELECT DISTINCT table_name FROM information_schema.columns "
        "WHERE column_name LIKE '%\\_enc' AND table_schema = 'public'"
    )
    assert {row["table_name"] for row in sealed} == {table.name for table in sealed_tables()}
    for table in sealed_tables():
        assert {"user_id", "id", "key_version"} <= set(table.c.keys())
        assert [c.name for c in table.columns if c.name.endswith("_enc") and "purpose" not in c.info] == []


async def test_every_foreign_key_stays_within_a_user() -> None:
    for table in metadata.sorted_tables:
        for constraint in table.foreign_key_constraints:
            first = constraint.column_keys[0]
            assert first == "user_id", f"{table.name} -> {constraint.referred_table.name}"
    for table in user_tables():
        assert next(iter(table.primary_key.columns)).name == "user_id"


async def test_writers_that_race_an_erasure_leave_nothing_behind(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
    ):
        thread = await here.conversations.create("secret")
        user = await here.admin.get_user("maria")

        async def write(client: AsyncSageClient) -> None:
            while True:
                try:
                    await client.conversations.append(thread.id, [NewItem.user("text")])
                    await client.conversations.create("more")
                except (sage_client.NotFound, sage_client.FailedPrecondition):
                    return

        writers = [asyncio.create_task(write(client)) for client in (here, there) for _ in range(4)]
        await asyncio.sleep(0.3)
        await here.admin.erase_user("maria")
        await asyncio.gather(*writers)
        assert not any((await rows_of(database, user.id)).values())


async def test_who_calls_while_being_erased_is_told_so_and_can_start_afresh_afterwards(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    erasures = server.application.users._erasures
    delete_rows = erasures.delete_rows
    async with sage_client.connect_async(server.address, user="maria") as client:
        await client.conversations.create("secret")

        async def while_erased(user_id: UUID) -> dict[str, int]:
            with pytest.raises(sage_client.FailedPrecondition) as refused:
                await client.conversations.create("too early")
            assert refused.value.reason == "USER_ERASED"
            assert refused.value.retry_after is not None
            return await delete_rows(user_id)

        monkeypatch.setattr(erasures, "delete_rows", while_erased)
        await client.admin.erase_user("maria")
        assert (await client.conversations.create("afresh")).title == "afresh"


async def test_an_erasure_that_was_cut_short_goes_on(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    async with sage_client.connect_async(server.address, user="maria") as client:
        await client.conversations.create("secret")
        user = await client.admin.get_user("maria")
        await database.execute(
            "UPDATE user_keys SET wrapped_key = NULL WHERE user_id = $1::text::uuid", user.id
        )
        await database.execute("UPDATE users SET erased_at = now() WHERE id = $1::text::uuid", user.id)
        await server.application.users.finish_erasures()
        assert not any((await rows_of(database, user.id)).values())
        assert (await client.conversations.create("afresh")).title == "afresh"


async def test_a_rotated_user_key_leaves_every_row_readable_and_no_row_behind(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    """While writers on two replicas go on writing with whatever key they hold."""
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
    ):
        thread = await here.conversations.create("secret", metadata={"a": "1"})
        stop = asyncio.Event()

        async def write(client: AsyncSageClient) -> int:
            written = 0
            while not stop.is_set():
                await client.conversations.append(thread.id, [NewItem.user(f"text {written}")])
                await client.conversations.update(thread.id, title=f"title {written}")
                written += 1
            return written

        async def read(client: AsyncSageClient) -> None:
            while not stop.is_set():
                await client.conversations.get(thread.id)
                await client.conversations.items_page(thread.id, page_size=20)

        readers = [asyncio.create_task(read(client)) for client in (here, there) for _ in range(2)]
        writers = [asyncio.create_task(write(client)) for client in (here, there) for _ in range(3)]
        for expected in (2, 3):
            await asyncio.sleep(0.2)
            assert await here.admin.rotate_user_key("maria") == expected
            assert await server.application.rotation.reseal_pending() == 0
        stop.set()
        written = sum(await asyncio.gather(*writers))
        await asyncio.gather(*readers)
        user = await here.admin.get_user("maria")
        assert (user.key_version, user.key_rotation_pending) == (3, False)
        items = [item async for item in there.conversations.items(thread.id, page_size=200)]
        assert len(items) == written
        assert (await there.conversations.get(thread.id)).metadata == {"a": "1"}
        for table in sealed_tables():
            old = await database.fetchval(
                f"SELECT count(*) FROM {table.name} WHERE user_id = $1::text::uuid AND key_version <> 3",
                user.id,
            )
            assert old == 0, table.name


async def test_a_key_that_a_row_needs_cannot_be_removed(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    async with sage_client.connect_async(server.address, user="maria") as client:
        await client.conversations.create("secret")
        user = await client.admin.get_user("maria")
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await database.execute("DELETE FROM user_keys WHERE user_id = $1::text::uuid", user.id)


async def test_root_rotation_wraps_every_key_again_and_loses_none(dsn: str, tmp_path: object) -> None:
    old, new = "k1:" + "A" * 43 + "=", "k2:" + "B" * 42 + "A="
    async with running_server(dsn, root_key=old) as server:
        async with sage_client.connect_async(server.address, user="maria") as client:
            thread = await client.conversations.create("secret")
    async with running_server(dsn, root_key=new, root_key_previous=old) as server:
        async with sage_client.connect_async(server.address, user="maria") as client:
            rotated = await client.admin.rotate_root_key()
            assert (rotated.root_key_id, rotated.rewrapped_keys) == ("k2", 2)
            assert (await client.admin.rotate_root_key()).rewrapped_keys == 0
    async with running_server(dsn, root_key=new) as server:
        async with sage_client.connect_async(server.address, user="maria") as client:
            assert (await client.conversations.get(thread.id)).title == "secret"


async def test_an_api_key_is_shown_once_and_stored_as_a_hash(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    async with sage_client.connect_async(server.address) as client:
        created = await client.admin.create_api_key("worker", ApiKeyRole.SERVICE)
        assert created.secret.startswith("sage_sk_")
        assert created.secret.startswith(created.api_key.prefix)
        stored = await database.fetchval("SELECT secret_hash FROM api_keys")
        assert stored == hashlib.sha256(created.secret.encode()).digest()
        listed = [key async for key in client.admin.list_api_keys(page_size=1)]
        assert listed == [created.api_key]
        revoked = await client.admin.revoke_api_key(created.api_key.id)
        assert revoked.revoke_time is not None
        assert (await client.admin.revoke_api_key(created.api_key.id)) == revoked
        with pytest.raises(sage_client.NotFound):
            await client.admin.revoke_api_key("0193e2a4-7b1c-7c3a-9e58-0123456789ab")


async def test_server_info_names_every_replica(server: RunningServer) -> None:
    async with running_server(server.dsn), sage_client.connect_async(server.address) as client:
        info = await client.admin.server_info()
        assert len(info.replicas) == 2
        assert info.replica in info.replicas
        assert info.database == "external"
        assert info.schema_revision == "0006"
        assert info.root_key_id == "test"


async def test_an_erased_user_gets_no_new_key(server: RunningServer) -> None:
    """A rotation that read the user before the erasure and writes after it."""
    async with sage_client.connect_async(server.address, user="maria") as client:
        await client.conversations.create("secret")
        user_id = UUID((await client.admin.get_user("maria")).id)
        await client.admin.erase_user("maria")
        rotation = server.application.rotation
        with pytest.raises(SageError) as refused:
            await rotation._key_store.add(user_id, await rotation._new_key(user_id, 2))
        assert refused.value.reason is Reason.USER_ERASED


async def test_a_row_that_does_not_open_keeps_its_key_and_holds_nobody_up(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    async with sage_client.connect_async(server.address, user="ada") as ada:
        maria = ada.with_options(user="maria")
        for client in (ada, maria):
            thread = await client.conversations.create("kept")
            await client.conversations.append(thread.id, [NewItem.user("one"), NewItem.user("two")])
        damaged = (await ada.admin.get_user("ada")).id
        await database.execute(
            "UPDATE items SET content_enc = 'x' WHERE user_id = $1::text::uuid AND seq = 1", damaged
        )
        for name in ("ada", "maria"):
            await ada.admin.rotate_user_key(name)
        assert await server.application.rotation.reseal_pending() == 1
        assert not (await ada.admin.get_user("maria")).key_rotation_pending
        left = await database.fetch("SELECT user_id::text, seq, key_version FROM items WHERE key_version = 1")
        assert [tuple(row) for row in left] == [(damaged, 1, 1)]
        (thread,) = [c async for c in ada.conversations.list()]
        page = await ada.conversations.items_page(
            thread.id, page_size=1, order=sage_client.ItemOrder.NEWEST_FIRST
        )
        assert [item.text for item in page.items] == ["two"]


async def test_erased_memories_are_gone_from_every_index_and_the_user_starts_afresh(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
        sage_client.connect_async(server.address, user="ada") as ada,
    ):
        await ada.memory.insert("secret of ada")
        await here.memory.insert_many([NewMemory("secret one", tags=["t"]), NewMemory("secret two")])
        await said(here, "secret five")
        await here.memory.documents.add(b"secret three")
        await here.memory.blocks.create("human", value="secret four")
        for client in (here, there):
            assert len(await found(client, "secret", fully_consistent=True)) == 4
        user_id = (await here.admin.get_user("maria")).id
        erased = await here.admin.erase_user("maria")
        counted = {name: erased.rows_by_table[name] for name in ("memories", "documents", "memory_blocks")}
        assert counted == {"memories": 4, "documents": 1, "memory_blocks": 1}
        assert (erased.rows_by_table["block_revisions"], erased.rows_by_table["heads"]) == (1, 1)
        assert not any((await rows_of(database, user_id)).values())
        for client in (there, here):
            assert await found(client, "secret") == await texts(client) == []
            stats = await client.memory.stats()
            assert (stats.memory_count, stats.document_count, stats.block_count) == (0, 0, 0)
        await here.memory.insert("afresh")
        for client in (there, here):
            assert await found(client, "secret afresh", fully_consistent=True) == ["afresh"]
        assert await found(ada, "secret") == ["secret of ada"]


async def test_memories_that_race_an_erasure_leave_nothing_behind(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
    ):
        thread = await here.conversations.create("secret")
        user = await here.admin.get_user("maria")

        async def write(client: AsyncSageClient) -> None:
            while (await client.admin.get_user("maria")).id == user.id:
                await client.memory.insert("secret", tags=["t"])
                await client.memory.search("secret")
                await client.conversations.append(thread.id, [NewItem.user("secret message")])

        async def until_refused(client: AsyncSageClient) -> None:
            with contextlib.suppress(sage_client.NotFound, sage_client.FailedPrecondition):
                await write(client)

        writers = [asyncio.create_task(until_refused(client)) for client in (here, there) for _ in range(2)]
        await asyncio.sleep(0.3)
        await here.admin.erase_user("maria")
        await asyncio.gather(*writers)
        assert not any((await rows_of(database, user.id)).values())


async def _reads(client: AsyncSageClient, expected: set[str]) -> None:
    """Tag filters agree in lists and in searches, on rows of whichever key."""
    tagged = sage_client.MemoryFilter(tags=["T", "other"])
    assert set(await texts(client, tagged)) == expected
    assert set(await texts(client, replace(tagged, tags=["t"], match=sage_client.TagMatch.ALL))) == expected
    assert set(await found(client, "word", tags=["t"], fully_consistent=True)) == expected
    assert await texts(client, sage_client.MemoryFilter(tags=["other"])) == []


async def test_tags_vectors_and_tokens_outlive_a_rotation_of_the_users_key(
    server: RunningServer, database: asyncpg.Connection
) -> None:
    """Before, between and after; a row under the old key beside one under the new."""
    await server.application.workers.stop()
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
    ):
        await other.application.workers.stop()
        await here.memory.insert("old word", tags=["T"], embedding=axis(1))
        gone = (await here.memory.insert("gone word", tags=["T"])).memory
        await here.memory.blocks.create("human", value="block")
        token = (await here.memory.stats()).memory_token
        request_id = str(uuid4())
        once = (await here.memory.insert("once", request_id=request_id)).memory
        await here.admin.rotate_user_key("maria")
        await there.memory.insert("new word", tags=["t"], embedding=axis(2))
        versions = await database.fetch("SELECT DISTINCT key_version FROM memories ORDER BY 1")
        assert [row[0] for row in versions] == [1, 2]
        for client in (here, there):
            await _reads(client, {"old word", "new word", "gone word"})
        assert (await there.memory.delete_where(sage_client.MemoryFilter(tags=["none"]))).deleted_count == 0
        await here.memory.delete(gone.id)
        assert await server.application.rotation.reseal_pending() == 0
        assert [row[0] for row in await database.fetch("SELECT DISTINCT key_version FROM memories")] == [2]
        for client in (here, there):
            await _reads(client, {"old word", "new word"})
            assert (await client.memory.blocks.get("HUMAN")).value == "block"
            assert (await client.memory.search("word", at_least_as_fresh=token)).candidate_count == 3
            assert (await client.memory.insert("once", request_id=request_id)).memory == once
        assert (await here.memory.delete_where(sage_client.MemoryFilter(tags=["T"]))).deleted_count == 2
    async with (
        running_server(server.dsn) as fresh,
        sage_client.connect_async(fresh.address, user="maria") as client,
    ):
        assert await found(client, "once word") == ["once"]


async def test_what_is_updated_during_a_rotation_can_be_read_after_it(server: RunningServer) -> None:
    """All cells of a row are of one key, also those that an update does not touch."""
    await server.application.workers.stop()
    async with sage_client.connect_async(server.address, user="maria") as client:
        memories = [
            (await client.memory.insert(f"word {n}", tags=["t"], metadata={"n": str(n)}, embedding=axis(n)))
            for n in range(4)
        ]
        await client.admin.rotate_user_key("maria")
        changes: list[dict[str, Any]] = [
            {"tags": ["other"]},
            {"metadata": {}},
            {"trust": sage_client.MemoryTrust.AGENT},
            {"text": "changed", "embedding": axis(3)},
        ]
        for written, change in zip(memories, changes, strict=True):
            await client.memory.update(written.memory.id, **change)
        assert await server.application.rotation.reseal_pending() == 0
        assert not (await client.admin.get_user("maria")).key_rotation_pending
        async with (
            running_server(server.dsn) as fresh,
            sage_client.connect_async(fresh.address, user="maria") as again,
        ):
            for n, written in enumerate(memories):
                best = (await results(again, embedding=axis(n)))[0]
                assert best.memory.id == written.memory.id
                assert best.vector_score == pytest.approx(1)
