"""Memories are brought over to another model while they are searched and written, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import pytest

import sage_client
from sage.v1 import memory_service_pb2 as pb
from sage_client import AsyncSageClient, NewItem, NewMemory
from sage_server.adapters.crypto import CachedKeyRing, KeyWrapping
from sage_server.adapters.embedding import HashEmbedder, InstalledEmbedders
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.jobs import PostgresJobQueue
from sage_server.adapters.postgres.memories import PostgresMemoryStore
from sage_server.adapters.postgres.reembedding import PostgresReembeddingStore
from sage_server.adapters.postgres.usage import PostgresUsageStore
from sage_server.adapters.postgres.users import PostgresKeyStore
from sage_server.bootstrap import open_root_keys
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.jobs import Again, Job, JobKind, RetryPolicy
from sage_server.domain.paging import Page
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.usage import UsageMeter
from sage_server.ports.memories import Space
from sage_server.ports.reembedding import NextVector, Unembedded
from sage_server.services.reembedding import Reembedding
from support.memory import axis, found, indexed, listed, results, said, texts
from support.server import RunningServer, running_server, test_settings

SMALL: dict[str, Any] = {"embedding": "hash", "embedding_dimensions": 64}
LARGE: dict[str, Any] = {"embedding": "hash", "embedding_dimensions": 128}


@asynccontextmanager
async def serving(dsn: str, **settings: Any) -> AsyncIterator[tuple[RunningServer, AsyncSageClient]]:
    """A server with these settings, and Maria."""
    async with (
        running_server(dsn, **settings) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        yield server, client


async def filled(dsn: str, count: int = 6) -> list[str]:
    """Memories and messages of the small model; answers with their texts."""
    async with serving(dsn, **SMALL) as (_, client):
        kept = [NewMemory(f"archival number{n}", tags=["t"] if n % 2 else []) for n in range(count)]
        await client.memory.insert_many(kept)
        await said(client, "message one", NewItem.assistant("message two"), "!!!")
        return sorted(await texts(client))


async def brought_over(client: AsyncSageClient, model: str = "hash/128") -> None:
    async with asyncio.timeout(30):
        while (await client.memory.stats()).embedding_model != model:  # noqa: ASYNC110 (a job does it)
            await asyncio.sleep(0.02)


async def vectors_by_model(dsn: str) -> set[tuple[str | None, int | None, str | None, int | None]]:
    """Models and sealed lengths of the vectors of live memories, of both places."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT DISTINCT model_0, length(vector_0_enc) v0, model_1, length(vector_1_enc) v1"
            " FROM memories WHERE state = 0 AND coalesce(vector_0_enc, vector_1_enc) IS NOT NULL"
        )
    finally:
        await connection.close()
    return {tuple(row) for row in rows}


@dataclass
class Interrupted:
    """A store that stops after some batches, and before the switch does what it is told."""

    store: PostgresReembeddingStore
    after: int = 10**9
    limit: int = 2
    meanwhile: list[Any] = field(default_factory=list)
    at_last: list[Any] = field(default_factory=list)

    async def users_beside(self, model: str, dimensions: int, limit: int) -> Sequence[UUID]:
        return await self.store.users_beside(model, dimensions, limit)

    async def unembedded(
        self, user_id: UUID, space: Space, limit: int, after: UUID
    ) -> Page[Unembedded, UUID]:
        return await self.store.unembedded(user_id, space, self.limit, after)

    async def fill(self, user_id: UUID, space: Space, vectors: Sequence[NextVector]) -> int:
        if self.after == 0:
            raise ConnectionError
        self.after -= 1
        if self.meanwhile:
            await self.meanwhile.pop(0)
        return await self.store.fill(user_id, space, vectors)

    async def switch(self, user_id: UUID, old: Space, new: Space) -> bool:
        while self.at_last:
            await self.at_last.pop(0)
        return await self.store.switch(user_id, old, new)

    async def clear(self, user_id: UUID, space: Space, limit: int) -> int:
        return await self.store.clear(user_id, space, limit)


@asynccontextmanager
async def by_hand(
    server: RunningServer, dimensions: int = 128
) -> AsyncIterator[tuple[Interrupted, Reembedding]]:
    """The job as another replica does it, with a store that can be told to stop."""
    database = await Database.open(server.dsn, PoolOptions(1, 4, 10, 10))
    try:
        keys = CachedKeyRing(
            PostgresKeyStore(database, server.clock),
            KeyWrapping(open_root_keys(test_settings(server.dsn))),
            10,
        )
        memories = PostgresMemoryStore(database, keys)
        embedders = InstalledEmbedders(HashEmbedder(dimensions), lambda _, size: HashEmbedder(size))
        indexes = IndexCache(memories, 2**20)
        usage = UsageMeter(PostgresUsageStore(database), server.clock)
        store = Interrupted(PostgresReembeddingStore(database, keys))
        writer = MemoryWriter(memories, indexes, embedders, usage)
        yield (
            store,
            Reembedding(
                store=store,
                memories=memories,
                writer=writer,
                embedders=embedders,
                queue=PostgresJobQueue(database),
            ),
        )
        indexes.close()
    finally:
        await database.close()


async def job_of(client: AsyncSageClient) -> Job:
    return Job(JobKind.REEMBED_USER, UUID((await client.admin.get_user("maria")).id))


async def tried(reembedding: Reembedding, job: Job) -> bool:
    """Whether the job succeeded; it may find that something was written at the very end."""
    try:
        await reembedding.reembed(job)
    except SageError as error:
        if error.reason is not Reason.ETAG_MISMATCH:
            raise
        return False
    return True


async def test_search_answers_from_the_old_model_until_the_new_one_is_complete(dsn: str) -> None:
    expected = await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        before = await client.memory.search("number3", top_k=100)
        assert (before.embedding_model, before.results[0].memory.text) == ("hash/64", "archival number3")
        assert (before.results[0].vector_score or 0) > 0.5
        stats = await client.memory.stats()
        assert (stats.embedding_model, stats.dimensions) == ("hash/64", 64)
        assert (stats.next_embedding_model, stats.reembedding_progress) == ("hash/128", 0)
        assert {one.pending_count for one in stats.sources} == {0}
        async with by_hand(server) as (store, reembedding):
            store.after = 2
            with pytest.raises(ConnectionError):
                await reembedding.reembed(await job_of(client))
        stats = await client.memory.stats()
        assert stats.reembedding_progress == pytest.approx(4 / len(expected))
        assert stats.embedding_model == "hash/64"
        server.application.workers.start()
        await server.application.memory.reembedding.plan()
        await brought_over(client)
        stats = await client.memory.stats()
        assert (stats.dimensions, stats.next_embedding_model, stats.reembedding_progress) == (128, "", 0)
        after = await client.memory.search("number3", top_k=100)
        assert (after.embedding_model, after.results[0].memory.text) == ("hash/128", "archival number3")
        assert (after.results[0].vector_score or 0) > 0.5
        assert sorted(one.memory.text for one in after.results) == expected
        assert {result.memory.embedding_model for result in after.results} == {"hash/128"}
    async with serving(dsn, **LARGE) as (server, client):  # and from disk
        assert sorted(await texts(client)) == expected
        assert (await found(client, "number3", text_weight=0))[0] == "archival number3"


async def test_the_old_vectors_are_removed_and_two_models_never_lie_in_one_place(dsn: str) -> None:
    await filled(dsn)
    sealed = 33
    assert await vectors_by_model(dsn) == {("hash/64", sealed + 4 * 64, None, None)}
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.memory.reembedding.plan()
        await brought_over(client)
        async with asyncio.timeout(20):
            expected = {(None, None, "hash/128", sealed + 4 * 128)}
            while await vectors_by_model(dsn) != expected:  # noqa: ASYNC110 (a job does it)
                await asyncio.sleep(0.05)
    async with serving(dsn, **SMALL) as (server, client):  # and back
        await server.application.memory.reembedding.plan()
        await brought_over(client, "hash/64")
        assert (await found(client, "number3", text_weight=0))[0] == "archival number3"


async def test_vectors_that_callers_give_are_of_the_model_in_use(dsn: str) -> None:
    await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        await client.memory.insert("given old", embedding=axis(1, dimensions=64), embedding_model="hash/64")
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await client.memory.insert("x", embedding=axis(1, dimensions=128))
        assert refused.value.metadata == {"expected": "64", "actual": "128"}
        with pytest.raises(sage_client.InvalidArgument):
            await client.memory.search(embedding=axis(1, dimensions=128))
        assert (await client.memory.embed(["x"])).dimensions == 64
        server.application.workers.start()
        await server.application.memory.reembedding.plan()
        await brought_over(client)
        assert (await client.memory.embed(["x"])).dimensions == 128
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await client.memory.insert("x", embedding=axis(1, dimensions=64))
        assert refused.value.metadata == {"expected": "128", "actual": "64"}
        with pytest.raises(sage_client.FailedPrecondition):
            await client.memory.insert("x", embedding=axis(1, dimensions=128), embedding_model="hash/64")
        await client.memory.insert("given new", embedding=axis(1, dimensions=128))
        best = (await results(client, embedding=axis(1, dimensions=128), context_evidence=False))[0]
        assert best.memory.text == "given new"
        assert (await found(client, "given old"))[0] == "given old"  # embedded again from its text


async def test_what_is_written_while_memories_are_embedded_again_is_not_lost(dsn: str) -> None:
    """Inserted, changed, deleted and said between reading a batch and storing its vectors, and at the end."""
    await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        memories = {one.text: one for one in await listed(client)}
        first, second = memories["archival number0"], memories["archival number1"]
        gone = memories["archival number2"]
        async with by_hand(server) as (store, reembedding):
            store.meanwhile = [
                client.memory.insert("written first"),
                client.memory.update(first.id, text="changed number0"),
                client.memory.update(second.id, tags=["other"]),
                client.memory.delete(gone.id),
            ]
            store.at_last = [client.memory.insert("written last")]
            with pytest.raises(SageError) as refused:
                await reembedding.reembed(await job_of(client))
            # One memory more than was embedded when the switch was tried: the job is tried again.
            assert refused.value.reason is Reason.ETAG_MISMATCH
            assert (await client.memory.stats()).embedding_model == "hash/64"
            await reembedding.reembed(await job_of(client))
        for text in ("written first", "changed number0", "archival number1", "written last"):
            answer = await client.memory.search(text, text_weight=0, fully_consistent=True)
            assert (answer.embedding_model, answer.results[0].memory.text) == ("hash/128", text)
            assert answer.results[0].vector_score == pytest.approx(1, abs=0.3)
        assert await texts(client, sage_client.MemoryFilter(tags=["other"])) == ["archival number1"]
        assert gone.text not in await texts(client)
        assert "archival number0" not in await texts(client)


async def test_writers_and_searchers_go_on_while_a_job_brings_them_over(dsn: str) -> None:
    """On a replica of the new model and one of the old."""
    await filled(dsn, 40)
    async with (
        serving(dsn, **LARGE) as (server, here),
        serving(dsn, **SMALL) as (other, there),
    ):
        assert (await there.memory.search("number3")).embedding_model == "hash/64"
        stop = asyncio.Event()
        written: list[str] = []

        async def write(client: AsyncSageClient, name: str) -> None:
            n = 0
            while not stop.is_set():
                memory = (await client.memory.insert(f"{name} extra{n}")).memory
                if n % 3 == 0:
                    await client.memory.update(memory.id, text=f"{name} changed{n}")
                    written.append(f"{name} changed{n}")
                elif n % 3 == 1:
                    await client.memory.delete(memory.id)
                else:
                    written.append(memory.text)
                answer = await client.memory.search(f"{name} extra{n}")
                assert answer.embedding_model in {"hash/64", "hash/128"}
                n += 1

        writers = [asyncio.create_task(write(one, name)) for one, name in ((here, "a"), (there, "b"))]
        async with by_hand(server) as (store, reembedding):
            store.limit = 16
            async with asyncio.timeout(30):
                while not await tried(reembedding, await job_of(here)):
                    pass
        await asyncio.sleep(0.3)
        stop.set()
        await asyncio.gather(*writers)
        token = (await here.memory.stats()).memory_token
        for client in (here, there):
            everything = await texts(client)
            assert set(written) <= set(everything)
            for text in (written[0], written[-1], "archival number17"):
                answer = await client.memory.search(text, text_weight=0, at_least_as_fresh=token)
                assert answer.embedding_model == "hash/128"
                assert text in [one.memory.text for one in answer.results]
        lengths = {row[2:] for row in await vectors_by_model(dsn)}
        assert lengths == {("hash/128", 33 + 4 * 128)}
        assert other.application.memory.indexes is not server.application.memory.indexes


async def test_a_rotation_in_between_holds_it_up_and_breaks_nothing(dsn: str) -> None:
    expected = await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        async with by_hand(server) as (store, reembedding):
            store.after = 2
            with pytest.raises(ConnectionError):
                await reembedding.reembed(await job_of(client))
        await client.admin.rotate_user_key("maria")
        async with by_hand(server) as (_, reembedding):
            with pytest.raises(SageError) as refused:  # rows of the old key wait for the rotation
                await reembedding.reembed(await job_of(client))
            assert refused.value.reason is Reason.ETAG_MISMATCH
        assert (await found(client, "number3"))[0] == "archival number3"
        assert await server.application.rotation.reseal_pending() == 0
        async with by_hand(server) as (_, reembedding):
            await reembedding.reembed(await job_of(client))
        answer = await client.memory.search("number3", top_k=100, fully_consistent=True)
        assert answer.embedding_model == "hash/128"
        assert sorted(one.memory.text for one in answer.results) == expected
    async with serving(dsn, **LARGE) as (_, client):
        assert sorted(await found(client, "number3", top_k=100)) == expected


async def test_another_model_than_the_one_that_was_begun_takes_over(dsn: str) -> None:
    expected = await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        async with by_hand(server) as (store, reembedding):
            store.after = 2
            with pytest.raises(ConnectionError):
                await reembedding.reembed(await job_of(client))
    async with serving(dsn, embedding="hash", embedding_dimensions=32) as (server, client):
        await server.application.memory.reembedding.plan()
        await brought_over(client, "hash/32")
        answer = await client.memory.search("number3", top_k=100)
        assert answer.results[0].memory.text == "archival number3"
        assert sorted(one.memory.text for one in answer.results) == expected
        assert (await client.memory.stats()).index_count == len(expected)


async def test_a_model_that_is_not_there_any_more_is_replaced_and_words_find_until_then(dsn: str) -> None:
    await filled(dsn)
    connection = await asyncpg.connect(dsn)
    try:  # as after a server with a model of its own was changed to the bundled one
        await connection.execute("UPDATE memories SET model_0 = 'onnx/gone'")
        await connection.execute(
            "UPDATE heads SET embedding_model = 'onnx/gone' WHERE embedding_model IS NOT NULL"
        )
    finally:
        await connection.close()
    async with serving(dsn) as (server, client):
        await server.application.workers.stop()
        answer = await client.memory.search("number3")
        assert answer.embedding_model == "onnx/gone"
        best = answer.results[0]
        assert (best.memory.text, best.vector_score) == ("archival number3", None)
        waiting = (await client.memory.insert("inserted meanwhile")).memory
        assert (await client.memory.get(waiting.id)).embedding_model == ""
        assert (await found(client, "meanwhile"))[0] == "inserted meanwhile"
        stats = await client.memory.stats()
        assert sum(one.pending_count for one in stats.sources) == 1
        with pytest.raises(sage_client.Unavailable) as refused:
            await client.transport.unary(
                client.stubs.memory.EmbedText,
                pb.EmbedTextRequest(texts=["x"]),
                repeat=sage_client.Repeat.IF_REFUSED,
            )
        assert refused.value.reason == "EMBEDDING_UNAVAILABLE"
        assert waiting.embedding_model == ""
        server.application.workers.start()
        await server.application.memory.reembedding.plan()
        await brought_over(client, "local/wordllama-256")
        best = (await results(client, "inserted meanwhile", text_weight=0))[0]
        assert best.memory.text == "inserted meanwhile"
        assert best.memory.embedding_model == "local/wordllama-256"


async def test_a_user_without_memories_starts_with_the_current_model(dsn: str) -> None:
    async with serving(dsn, **SMALL) as (_, client):
        assert (await client.memory.stats()).embedding_model == "hash/64"
    async with serving(dsn, **LARGE) as (_, client):
        stats = await client.memory.stats()
        assert (stats.embedding_model, stats.next_embedding_model) == ("hash/128", "")
        await client.memory.insert("x")
        await indexed(client)
        assert (await client.memory.search("x")).embedding_model == "hash/128"


async def damage(dsn: str, column: str, count: int) -> list[UUID]:
    """Change a bit in a cell of the user's first archival memories; answers with their ids."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            f"UPDATE memories SET {column} = set_byte({column}, 20, get_byte({column}, 20) # 1)"
            f" WHERE id IN (SELECT id FROM memories WHERE {column} IS NOT NULL ORDER BY id LIMIT $1)"
            " RETURNING id",
            count,
        )
    finally:
        await connection.close()
    return sorted(row["id"] for row in rows)


async def without_vector(dsn: str) -> list[UUID]:
    """Memories of the new model that have no vector."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT id FROM memories WHERE model_1 = 'hash/128' AND vector_1_enc IS NULL ORDER BY id"
        )
    finally:
        await connection.close()
    return [row["id"] for row in rows]


async def test_memories_that_do_not_open_hold_nothing_up_and_stay_without_a_vector(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """More of them than are read at once, and before all others."""
    await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        memories = {UUID(one.id): one.text for one in await listed(client)}
        unembeddable = {memory_id for memory_id, text in memories.items() if text == "!!!"}
        lost = await damage(dsn, "content_enc", 3)
        async with by_hand(server) as (store, reembedding):
            store.limit = 2
            await reembedding.reembed(await job_of(client))
        assert (await client.memory.stats()).embedding_model == "hash/128"
        assert set(await without_vector(dsn)) == {*lost, *unembeddable}
        told = [record.__dict__["row"] for record in caplog.records if "does not open" in record.message]
        assert sorted(told) == lost, "each is told once"
        for memory_id, text in memories.items():
            if memory_id in lost:
                with pytest.raises(sage_client.DataLoss):
                    await client.memory.get(str(memory_id))
            else:
                assert (await client.memory.get(str(memory_id))).text == text


@pytest.mark.parametrize("column", ["content_enc", "metadata_enc", "vector_0_enc"])
async def test_a_memory_that_no_rotation_can_seal_again_holds_nothing_up(dsn: str, column: str) -> None:
    """It keeps its old key for ever, and no vector can be sealed beside cells of another key."""
    await filled(dsn)
    async with serving(dsn, **SMALL) as (_, client):
        await client.memory.insert("with metadata", metadata={"page": "7"})
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        (lost,) = await damage(dsn, column, 1)
        await client.admin.rotate_user_key("maria")
        async with by_hand(server) as (_, reembedding):
            with pytest.raises(SageError):  # the others wait for the rotation
                await reembedding.reembed(await job_of(client))
        await server.application.rotation.reseal_pending()
        async with by_hand(server) as (_, reembedding):
            await reembedding.reembed(await job_of(client))
        assert (await client.memory.stats()).embedding_model == "hash/128"
        assert lost in await without_vector(dsn)
        assert len(await without_vector(dsn)) == 2  # and the one with nothing to embed


async def test_a_key_that_this_process_has_not_heard_of_is_not_taken_for_damage(dsn: str) -> None:
    await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        unembeddable = {UUID(one.id) for one in await listed(client) if one.text == "!!!"}
        job = await job_of(client)
        async with by_hand(server) as (store, reembedding):
            await store.store._keys.cipher(job.user_id)
            await client.admin.rotate_user_key("maria")
            assert await server.application.rotation.reseal_pending() == 0
            await reembedding.reembed(job)
        assert set(await without_vector(dsn)) == unembeddable
        assert (await found(client, "number3", text_weight=0))[0] == "archival number3"


async def states(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return [row[0] for row in await connection.fetch("SELECT status::text FROM pgqueuer ORDER BY id")]
    finally:
        await connection.close()


async def test_a_user_whose_job_is_dead_gets_no_other_until_it_is_tried_again(dsn: str) -> None:
    await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        plan = server.application.memory.reembedding.plan
        await server.application.workers.stop()
        await plan()
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute("UPDATE pgqueuer SET status = 'failed'")
        finally:
            await connection.close()
        await plan()
        assert await states(dsn) == ["failed"]
        (dead,) = [one async for one in client.admin.list_dead_jobs()]
        await client.admin.retry_dead_job(dead.id)
        await plan()
        assert await states(dsn) == ["queued"]
        server.application.workers.start()
        await brought_over(client)


async def test_users_who_come_to_nothing_keep_no_others_from_their_turn(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sage_server.services.reembedding._USERS", 1)
    ids = []
    for name in ("maria", "ada", "tom"):
        async with (
            running_server(dsn, **SMALL) as server,
            sage_client.connect_async(server.address, user=name) as client,
        ):
            await client.memory.insert("x")
            ids.append(UUID((await client.admin.get_user(name)).id))
    async with serving(dsn, **LARGE) as (server, _):
        await server.application.workers.stop()
        connection = await asyncpg.connect(dsn)
        try:
            for state in ("queued", "failed", "picked", "queued"):
                await server.application.memory.reembedding.plan()
                await connection.execute(f"UPDATE pgqueuer SET status = '{state}'")
            planned = await connection.fetch("SELECT substring(payload, 1, 16) FROM pgqueuer ORDER BY id")
        finally:
            await connection.close()
    assert [UUID(bytes=row[0]) for row in planned] == sorted(ids)


async def test_a_user_who_writes_all_the_time_is_patiently_tried_again(dsn: str) -> None:
    await filled(dsn)
    async with serving(dsn, **LARGE) as (server, client):
        await server.application.workers.stop()
        async with by_hand(server) as (store, reembedding):
            store.at_last = [client.memory.insert("written last")]
            with pytest.raises(SageError) as refused:
                await reembedding.reembed(await job_of(client))
        error = refused.value
        assert isinstance(RetryPolicy().after(20, error.reason.name, error.retry_after), Again)
