"""Messages are found by search: which ones, where they come from, and what takes them out again."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    FlagScope,
    ItemKind,
    MemoryFilter,
    MemorySource,
    MemoryTrust,
    NewItem,
    RetryPolicy,
)
from sage_server.adapters.crypto import CachedKeyRing, KeyWrapping
from sage_server.adapters.embedding import HashEmbedder, InstalledEmbedders
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.memories import PostgresMemoryStore
from sage_server.adapters.postgres.summaries import PostgresSummaryStore
from sage_server.adapters.postgres.transcripts import PostgresTranscriptStore
from sage_server.adapters.postgres.usage import PostgresUsageStore
from sage_server.adapters.postgres.users import PostgresKeyStore
from sage_server.bootstrap import open_root_keys
from sage_server.domain.conversations import Item, ItemFilter
from sage_server.domain.jobs import Job, JobKind
from sage_server.domain.paging import Page
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.usage import UsageMeter
from sage_server.services.recall import Recall
from support.memory import found, indexed, listed, results, said, texts
from support.postgres import TestPostgres
from support.server import ROOT_KEY, RunningServer, child_server, running_server, test_settings

SPRING = datetime(2023, 5, 4, 12, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
async def shared(postgres: TestPostgres) -> AsyncIterator[RunningServer]:
    """One server for all: each test has a user of its own."""
    async with postgres.database() as dsn, running_server(dsn) as running:
        yield running


@pytest.fixture
async def client(shared: RunningServer) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(shared.address, user=f"user-{uuid4()}") as connected:
        yield connected


async def test_a_message_is_found_with_all_of_its_provenance(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Thread")
    items = await client.conversations.append(
        thread.id,
        [
            NewItem.user("  We sold the piano ", author="Otto", create_time=SPRING),
            NewItem.assistant("For how much?"),
        ],
    )
    await indexed(client)
    asked, answered = (
        (await results(client, "piano"))[0].memory,
        (await results(client, "how much"))[0].memory,
    )
    assert (asked.text, answered.text) == ("We sold the piano", "For how much?")
    for memory, item, author, trust in (
        (asked, items[0], "Otto", MemoryTrust.USER),
        (answered, items[1], "", MemoryTrust.AGENT),
    ):
        place = memory.provenance
        assert memory.source is MemorySource.MESSAGE
        assert (place.conversation_id, place.item_id, place.item_seq) == (thread.id, item.id, item.seq)
        assert (place.author, memory.trust, memory.agent_id) == (author, trust, "")
        assert (place.chunk_index, place.char_start, place.char_end) == (0, 0, 0)
        assert (place.document_id, place.document_title, place.thread_agent_id) == ("", "", "")
        assert memory.create_time == item.create_time
        assert (memory.tags, memory.metadata) == ((), {})
        assert await client.memory.get(memory.id) == memory
    assert asked.create_time == SPRING
    assert await listed(client) == [answered, asked]


async def test_only_what_people_and_agents_say_to_each_other_is_recalled(client: AsyncSageClient) -> None:
    await said(
        client,
        "a word",
        NewItem.assistant("word of an agent"),
        NewItem.system("word of the system"),
        NewItem.tool_call("c", "tool", '{"word": "word"}'),
        NewItem.tool_output("c", "tool", "word of a tool"),
        NewItem(ItemKind.REASONING, "word to itself"),
        NewItem(ItemKind.USER, "hidden word", hidden=True),
        NewItem(ItemKind.ASSISTANT, "hidden word too", hidden=True),
        "   ",
        "",
    )
    assert sorted(await texts(client)) == ["a word", "word of an agent"]
    assert sorted(await found(client, "word")) == ["a word", "word of an agent"]


async def test_a_private_conversation_is_never_recalled(client: AsyncSageClient) -> None:
    private = await client.conversations.create("Private", private=True)
    await client.conversations.append(private.id, [NewItem.user("a secret word")])
    fork = await client.conversations.fork(private.id)
    await client.conversations.delete(private.id)
    await client.conversations.undelete(private.id)
    exported = b"".join(
        [e.jsonl async for e in client.conversations.export() if isinstance(e, sage_client.ExportChunk)]
    )
    other = client.with_options(user=f"other-{uuid4()}")
    await other.conversations.import_(exported)
    await said(client, "a public word")
    await indexed(other)
    assert (await client.conversations.get(fork.id)).private
    assert await texts(client) == await found(client, "word") == ["a public word"]
    assert await texts(other) == []
    assert await found(client, "word", conversation_id=private.id) == []


async def test_a_long_message_is_found_in_chunks_that_say_where_they_lie(client: AsyncSageClient) -> None:
    sentences = [f"Sentence number{n} is about the harbour and its many ships." for n in range(60)]
    text = " ".join(sentences)
    thread = await said(client, text)
    (item,) = [one async for one in client.conversations.items(thread.id)]
    chunks = sorted(await listed(client), key=lambda one: one.provenance.chunk_index)
    assert len(chunks) > 3
    assert [one.provenance.chunk_index for one in chunks] == list(range(len(chunks)))
    for one in chunks:
        place = one.provenance
        assert one.text == item.text[place.char_start : place.char_end]
        assert (place.item_id, one.create_time) == (item.id, item.create_time)
    assert chunks[0].provenance.char_start == 0
    assert chunks[-1].provenance.char_end == len(text)
    best = (await results(client, "number47", vector_weight=0))[0]
    assert "number47" in best.memory.text
    await client.conversations.delete_item(thread.id, item.id)
    assert await texts(client) == []


async def test_a_deleted_item_is_found_no_more_at_once(client: AsyncSageClient) -> None:
    thread = await said(client, "first word", "second word")
    assert len(await found(client, "word")) == 2
    items = [one async for one in client.conversations.items(thread.id)]
    await client.conversations.delete_item(thread.id, items[0].id)
    assert await found(client, "word") == ["second word"]
    assert await texts(client) == ["second word"]
    with pytest.raises(sage_client.NotFound):
        await client.conversations.delete_item(thread.id, items[0].id)
    await client.conversations.delete(thread.id)
    await client.conversations.undelete(thread.id)
    await indexed(client)
    assert await found(client, "word") == ["second word"]


async def test_every_way_to_delete_conversations_takes_their_messages_out_at_once(
    client: AsyncSageClient,
) -> None:
    await client.memory.insert("archival word")
    threads = [await said(client, f"word number{n}") for n in range(4)]
    assert len(await found(client, "word")) == 5
    await client.conversations.delete(threads[0].id)
    assert len(await found(client, "word")) == len(await texts(client)) == 4
    await client.conversations.batch_delete([threads[1].id, str(uuid4())])
    assert len(await found(client, "word")) == len(await texts(client)) == 3
    await client.conversations.delete_all()
    assert await found(client, "word") == await texts(client) == ["archival word"]
    for thread in threads:
        (memory_id,) = [one.id async for one in client.conversations.items(thread.id)]
        with pytest.raises(sage_client.NotFound):
            await client.memory.get(memory_id)


async def test_undeletion_brings_back_all_but_what_was_deleted_for_good(client: AsyncSageClient) -> None:
    thread = await said(
        client,
        NewItem.user("one word", author="Otto", create_time=SPRING),
        "two word",
        "three word",
        "four word",
    )
    before = {one.text: one for one in await listed(client)}
    await client.memory.delete(before["two word"].id)
    items = [one async for one in client.conversations.items(thread.id)]
    await client.conversations.delete_item(thread.id, items[2].id)
    for _ in range(2):
        await client.conversations.delete(thread.id)
        assert await found(client, "word") == []
        await client.conversations.undelete(thread.id)
        await indexed(client)
        assert sorted(await found(client, "word")) == ["four word", "one word"]
    (again,) = [one for one in await listed(client) if one.text == "one word"]
    assert again.provenance == before["one word"].provenance
    assert (again.id, again.create_time) == (before["one word"].id, SPRING)
    await client.memory.delete_all()
    await client.conversations.append(thread.id, [NewItem.user("five word")])
    await indexed(client)
    assert await found(client, "word") == ["five word"]


@pytest.mark.parametrize("way", ["all", "filter", "ids"])
async def test_what_is_deleted_while_its_conversation_is_deleted_does_not_come_back(
    client: AsyncSageClient, way: str
) -> None:
    thread = await said(client, "first word", "second word")
    ids = [memory.id for memory in await listed(client)]
    await client.conversations.delete(thread.id)
    if way == "all":
        await client.memory.delete_all()
    elif way == "filter":
        await client.memory.delete_where(MemoryFilter(conversation_id=thread.id))
    else:
        await client.memory.delete_many(ids)
    await client.conversations.undelete(thread.id)
    await client.conversations.append(thread.id, [NewItem.user("third word")])
    await indexed(client)
    assert await texts(client) == await found(client, "word") == ["third word"]


async def test_a_deleted_conversation_in_a_filter_is_no_fault_and_finds_nothing(
    shared: RunningServer, client: AsyncSageClient
) -> None:
    """Whether or not this replica has an index that knows it."""
    thread = await said(client, "word")
    assert await found(client, "word", conversation_id=thread.id) == ["word"]
    await client.conversations.delete(thread.id)
    warm = await found(client, "word", conversation_id=thread.id)
    shared.application.memory.indexes.forget_all()
    assert await found(client, "word", conversation_id=thread.id) == warm == []
    assert await texts(client, MemoryFilter(conversation_id=thread.id)) == []


async def test_forks_and_imports_are_found(client: AsyncSageClient) -> None:
    thread = await said(client, NewItem.user("a word", author="Otto", create_time=SPRING))
    fork = await client.conversations.fork(thread.id)
    await indexed(client)
    (copy,) = await listed(client, MemoryFilter(conversation_id=fork.id))
    assert (copy.text, copy.create_time, copy.provenance.author) == ("a word", SPRING, "Otto")
    imported = str(uuid4())
    lines = [
        {"type": "conversation", "id": imported, "create_time": "2022-01-01T00:00:00Z"},
        *(
            {
                "type": "item",
                "id": str(uuid4()),
                "conversation_id": imported,
                "kind": "user" if n % 2 else "assistant",
                "text": f"imported number{n}",
                "create_time": f"2022-01-01T{n % 24:02}:00:00Z",
            }
            for n in range(30)
        ),
    ]
    source = "\n".join(json.dumps(line) for line in lines).encode()
    await client.conversations.import_(source)
    await indexed(client)
    assert len(await listed(client, MemoryFilter(conversation_id=imported))) == 30
    best = (await results(client, "number17", vector_weight=0))[0]
    assert best.matched_terms == ("number17",)
    assert best.memory.create_time == datetime(2022, 1, 1, 17, tzinfo=UTC)
    await client.conversations.import_(source)
    await indexed(client)
    assert len(await listed(client, MemoryFilter(conversation_id=imported))) == 30
    await client.conversations.delete(thread.id)
    assert await texts(client, MemoryFilter(conversation_id=fork.id)) == ["a word"]


async def test_an_import_of_a_deleted_conversation_stays_out_until_it_is_undeleted(
    client: AsyncSageClient,
) -> None:
    thread = await said(client, "a word")
    await client.conversations.delete(thread.id)
    events = [event async for event in client.conversations.export(show_deleted=True)]
    exported = b"".join(e.jsonl for e in events if isinstance(e, sage_client.ExportChunk))
    other = client.with_options(user=f"other-{uuid4()}")
    await other.conversations.import_(exported)
    await indexed(other)
    deleted = [one async for one in other.conversations.list(deleted_only=True)]
    if deleted:
        assert await found(other, "word") == []
        await other.conversations.undelete(deleted[0].id)
        await indexed(other)
    assert await found(other, "word") == ["a word"]


async def test_messages_appended_at_once_are_all_found_once(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Thread")
    await asyncio.gather(
        *(client.conversations.append(thread.id, [NewItem.user(f"word n{n}")]) for n in range(40))
    )
    await indexed(client)
    assert sorted(await texts(client)) == sorted(f"word n{n}" for n in range(40))
    assert len(await found(client, "word", top_k=100)) == 40


async def test_pending_messages_are_counted_and_have_an_age(dsn: str) -> None:
    """A server whose workers do not run yet."""
    async with running_server(dsn) as server:
        await server.application.workers.stop()
        async with sage_client.connect_async(server.address, user="maria") as client:
            thread = await client.conversations.create("Thread")
            await client.conversations.append(thread.id, [NewItem.user("one"), NewItem.user("two")])
            await client.conversations.append(thread.id, [NewItem.user("three")])
            stats = await client.memory.stats()
            assert (stats.pending_count, stats.memory_count) == (3, 0)
            assert stats.indexing_lag > timedelta(0)
            other = client.with_options(user="otto")
            assert (await other.memory.stats()).pending_count == 0
        server.application.workers.start()
        async with sage_client.connect_async(server.address, user="maria") as client:
            await indexed(client)
            assert (await client.memory.stats()).memory_count == 3


async def test_without_auto_embedding_no_message_is_indexed_and_memories_are(client: AsyncSageClient) -> None:
    name = f"user-{uuid4()}"
    silent = client.with_options(user=name)
    await silent.memory.insert("archival word")
    await client.admin.set_flag("auto_embedding", FlagScope.USER, external_id=name, enabled=False)
    thread = await said(silent, "a word")
    await silent.conversations.fork(thread.id)
    await silent.conversations.delete(thread.id)
    await silent.conversations.undelete(thread.id)
    await indexed(silent)
    assert await texts(silent) == await found(silent, "word") == ["archival word"]
    await said(client, "a word")
    assert await texts(client) == ["a word"]


async def test_what_one_replica_was_told_the_other_finds_and_forgets(dsn: str) -> None:
    async with (
        running_server(dsn) as one,
        running_server(dsn) as two,
        sage_client.connect_async(one.address, user="maria") as here,
        sage_client.connect_async(two.address, user="maria") as there,
    ):
        thread = await said(here, "first word")
        for client in (here, there):
            assert await found(client, "word", fully_consistent=True) == ["first word"]
        await there.conversations.append(thread.id, [NewItem.user("second word")])
        await indexed(here)
        for client in (here, there):
            assert len(await found(client, "word", fully_consistent=True)) == 2
        await here.conversations.delete(thread.id)
        assert await found(there, "word", fully_consistent=True) == []
        await there.conversations.undelete(thread.id)
        await indexed(there)
        token = (await here.memory.stats()).memory_token
        for client in (here, there):
            assert len(await found(client, "word", at_least_as_fresh=token)) == 2


async def test_a_message_that_was_acknowledged_is_found_after_the_server_was_killed(dsn: str) -> None:
    settings = {"database_url": dsn, "root_key": ROOT_KEY, "embedding": "hash"}
    async with child_server(**settings) as server:
        once = RetryPolicy(max_attempts=1)
        async with sage_client.connect_async(server.address, user="maria", retry=once) as client:
            thread = await client.conversations.create("Thread")
            await asyncio.gather(
                *(client.conversations.append(thread.id, [NewItem.user(f"word n{n}")]) for n in range(30))
            )
            server.send(signal.SIGKILL)
            await server.ended()
    database = await asyncpg.connect(dsn)
    try:
        # As if the time had passed after which a silent worker counts as dead.
        await database.execute("UPDATE pgqueuer SET heartbeat = now() - interval '1 hour'")
    finally:
        await database.close()
    async with (
        running_server(dsn, embedding="hash") as again,
        sage_client.connect_async(again.address, user="maria") as client,
    ):
        await indexed(client)
        assert sorted(await texts(client)) == sorted(f"word n{n}" for n in range(30))
        assert (await found(client, "n17", vector_weight=0))[0] == "word n17"


class LateItems(PostgresTranscriptStore):
    """A store after whose answers something happens before anybody acts on them."""

    def __init__(self, database: Database, keys: CachedKeyRing, meanwhile: AsyncIterator[None]) -> None:
        super().__init__(database, keys)
        self._meanwhile = meanwhile

    async def items(
        self, user_id: UUID, conversation_id: UUID, which: ItemFilter, size: int, after: int | None
    ) -> Page[Item, int]:
        page = await super().items(user_id, conversation_id, which, size, after)
        await anext(self._meanwhile)
        return page


@asynccontextmanager
async def own_recall(server: RunningServer, meanwhile: AsyncIterator[None]) -> AsyncIterator[Recall]:
    """Indexing as another replica does it, held up between reading and writing."""
    database = await Database.open(server.dsn, PoolOptions(1, 4, 10, 10))
    try:
        wrapping = KeyWrapping(open_root_keys(test_settings(server.dsn)))
        keys = CachedKeyRing(PostgresKeyStore(database, server.clock), wrapping, 10)
        memories = PostgresMemoryStore(database, keys)
        indexes = IndexCache(memories, 2**20)
        embedders = InstalledEmbedders(HashEmbedder(), lambda *_: None)
        usage = UsageMeter(PostgresUsageStore(database), server.clock)
        yield Recall(
            transcripts=LateItems(database, keys, meanwhile),
            summaries=PostgresSummaryStore(database, keys),
            memories=memories,
            writer=MemoryWriter(memories, indexes, embedders, usage),
            clock=server.clock,
            flags=server.application.flags.flags,
        )
        indexes.close()
    finally:
        await database.close()


@pytest.mark.parametrize("deletion", ["item", "conversation", "all"])
async def test_what_is_deleted_while_it_is_being_indexed_is_not_found(dsn: str, deletion: str) -> None:
    async with (
        running_server(dsn, embedding="hash") as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        await client.admin.set_flag("turns", FlagScope.GLOBAL, enabled=False)  # no job of the server's own
        thread = await client.conversations.create("Thread")
        items = await client.conversations.append(thread.id, [NewItem.user("one word")])
        user = UUID((await client.admin.get_user("maria")).id)

        async def delete() -> AsyncIterator[None]:
            if deletion == "item":
                await client.conversations.delete_item(thread.id, items[0].id)
            elif deletion == "conversation":
                await client.conversations.delete(thread.id)
            else:
                await client.conversations.delete_all()
            yield

        async with own_recall(server, delete()) as recall:
            await recall.index(Job(JobKind.INDEX_ITEMS, user, UUID(thread.id), 1, 1))
        assert await texts(client) == await found(client, "word", fully_consistent=True) == []


@pytest.mark.parametrize("deletion", ["item", "conversation", "batch", "all"])
async def test_what_was_indexed_while_its_deletion_waited_is_not_found(dsn: str, deletion: str) -> None:
    """The deletion began before the indexing was committed, and cannot have seen it."""
    async with (
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        thread = await said(client, "one word")
        (item,) = [one async for one in client.conversations.items(thread.id)]
        deletions = {
            "item": client.conversations.delete_item(thread.id, item.id),
            "conversation": client.conversations.delete(thread.id),
            "batch": client.conversations.batch_delete([thread.id]),
            "all": client.conversations.delete_all(),
        }
        writer, observer = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
        try:
            await writer.execute("CREATE TEMP TABLE kept AS SELECT * FROM memories")
            await writer.execute("DELETE FROM memories")
            async with writer.transaction():
                await writer.execute("SELECT id FROM conversations FOR SHARE")
                await writer.execute("UPDATE heads SET memory_revision = memory_revision + 1")
                await writer.execute("INSERT INTO memories SELECT k.* FROM kept k")
                await writer.execute(
                    "UPDATE memories m SET revision = h.memory_revision FROM heads h "
                    "WHERE h.user_id = m.user_id"
                )
                deleting = asyncio.create_task(deletions.pop(deletion))
                await _until_it_waits(observer)
            await deleting
        finally:
            for rest in deletions.values():
                rest.close()
            await writer.close()
            await observer.close()
        assert await texts(client) == await found(client, "word", fully_consistent=True) == []


async def _until_it_waits(observer: asyncpg.Connection) -> None:
    """Until some connection waits for a lock of another."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
    query += " AND datname = current_database()"
    async with asyncio.timeout(20):
        while not await observer.fetchval(query):  # noqa: ASYNC110 (the database says so)
            await asyncio.sleep(0.02)


async def test_a_conversation_that_goes_for_good_takes_its_messages_out(dsn: str) -> None:
    """Also one that was never deleted and is only old."""
    async with (
        running_server(dsn, inactive_days=1) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        await client.memory.insert("archival word")
        thread = await said(client, "one word")
        assert len(await found(client, "word")) == 2
        server.clock.advance(timedelta(days=2))
        await server.application.retention.run()
        with pytest.raises(sage_client.NotFound):
            await client.conversations.get(thread.id)
        assert await found(client, "word", fully_consistent=True) == ["archival word"]
        assert await texts(client) == ["archival word"]
