"""Archival memories through the real client and server: writing, reading, listing and deleting them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import numpy as np
import pytest

import sage_client
from sage.v1 import conversation_service_pb2, memory_pb2, usage_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client import (
    AsyncSageClient,
    EmbedPurpose,
    Memory,
    MemoryFilter,
    MemorySource,
    MemoryTrust,
    NewItem,
    NewMemory,
    Repeat,
    SearchQuery,
    TagMatch,
)
from sage_server.adapters.postgres.agents import PostgresAgentStore
from support.memory import DIMENSIONS, MODEL, axis, found, indexed, said, texts
from support.postgres import TestPostgres
from support.server import RunningServer, running_server

DAY = timedelta(days=1)
SPRING = datetime(2024, 4, 1, 12, 30, 15, 123456, tzinfo=UTC)


@pytest.fixture(scope="module")
async def shared(postgres: TestPostgres) -> AsyncIterator[RunningServer]:
    """One server for all: each test has a user of its own."""
    async with postgres.database() as dsn, running_server(dsn) as running:
        yield running


@pytest.fixture
async def client(shared: RunningServer) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(shared.address, user=f"user-{uuid4()}") as connected:
        yield connected


async def send(client: AsyncSageClient, method: str, request: Any) -> Any:
    """A raw call, never repeated."""
    stub = getattr(client.stubs.memory, method)
    return await client.transport.unary(stub, request, repeat=Repeat.IF_REFUSED)


async def test_a_memory_is_read_as_it_was_inserted(client: AsyncSageClient) -> None:
    written = await client.memory.insert(
        "Anna is allergic to nuts. 🥜",
        tags=["Health", " family "],
        metadata={"origin": "form 7", "empty": ""},
        create_time=SPRING,
        trust=MemoryTrust.EXTERNAL,
    )
    memory = written.memory
    assert (memory.text, memory.source) == ("Anna is allergic to nuts. 🥜", MemorySource.ARCHIVAL)
    assert (memory.tags, memory.metadata) == (("health", "family"), {"origin": "form 7", "empty": ""})
    assert (memory.trust, memory.agent_id, memory.embedding_model) == (MemoryTrust.EXTERNAL, "", MODEL)
    assert memory.create_time == SPRING
    assert memory.update_time > SPRING
    assert memory.etag
    assert await client.memory.get(memory.id) == memory
    assert [one async for one in client.memory.list()] == [memory]
    (result,) = (await client.memory.search("allergic")).results
    assert result.memory == memory


async def test_what_is_left_out_is_empty_the_users_own_and_of_now(
    shared: RunningServer, client: AsyncSageClient
) -> None:
    before = shared.clock.now()
    memory = (await client.memory.insert("plain")).memory
    assert (memory.tags, memory.metadata, memory.trust) == ((), {}, MemoryTrust.USER)
    assert before <= memory.create_time == memory.update_time <= shared.clock.now()
    place = memory.provenance
    assert (place.conversation_id, place.item_id, place.item_seq, place.author) == ("", "", 0, "")
    assert (place.document_id, place.char_start, place.char_end, place.turn_id) == ("", 0, 0, "")


@pytest.mark.parametrize("text", ["!", "   ", "🥜", "the of", "x" * 100_000, "wörter " * 14_000])
async def test_any_text_can_be_stored_and_comes_back_whole(client: AsyncSageClient, text: str) -> None:
    memory = (await client.memory.insert(text)).memory
    assert (await client.memory.get(memory.id)).text == text
    assert len((await client.memory.search("something", fully_consistent=True)).results) <= 1


async def test_tags_are_one_whatever_their_case_space_and_form(client: AsyncSageClient) -> None:
    memory = (
        await client.memory.insert("x", tags=["Café", "CAFE\u0301", " café ", "\uff23afé", "two"])
    ).memory
    assert memory.tags == ("café", "two")
    for spelling in ("CAFÉ", "cafe\u0301 ", "café"):
        assert await texts(client, MemoryFilter(tags=[spelling])) == ["x"]
        assert await found(client, "x", tags=[spelling]) == ["x"]
    assert await texts(client, MemoryFilter(tags=["cafe"])) == []


@pytest.mark.parametrize("tag", [" ", "\u3000", "\t\n"])
async def test_a_tag_of_nothing_but_space_is_refused(client: AsyncSageClient, tag: str) -> None:
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.insert("x", tags=["fine", tag])
    assert [one.field for one in refused.value.field_violations] == ["tags"]
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.list_page(MemoryFilter(tags=[tag]))
    assert [one.field for one in refused.value.field_violations] == ["filter.tags"]
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.search("x", tags=[tag])
    assert [one.field for one in refused.value.field_violations] == ["tags"]
    assert await texts(client) == []


async def test_a_time_may_lie_in_the_past_and_hardly_in_the_future(
    shared: RunningServer, client: AsyncSageClient
) -> None:
    old = datetime(1970, 1, 1, tzinfo=UTC)
    soon = shared.clock.now() + DAY - timedelta(minutes=1)
    for time in (old, soon):
        assert (await client.memory.insert("x", create_time=time)).memory.create_time == time
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.insert("x", create_time=soon + timedelta(minutes=2))
    assert [one.field for one in refused.value.field_violations] == ["create_time"]
    assert len(await texts(client)) == 2


async def test_an_agent_that_there_is_not_is_not_found(client: AsyncSageClient) -> None:
    agent = str(uuid4())
    calls = [
        client.memory.insert("x", agent=agent),
        client.memory.insert_many([NewMemory("x"), NewMemory("x", agent="nobody")]),
        client.memory.search("x", agent="nobody"),
        client.memory.list_page(MemoryFilter(agent=agent)),
        client.memory.delete_where(MemoryFilter(agent=agent)),
    ]
    for call in calls:
        with pytest.raises(sage_client.NotFound) as refused:
            await call
        assert refused.value.metadata["resource"] == "agent"
    assert await texts(client) == []


async def test_an_update_changes_what_it_names_and_nothing_else(client: AsyncSageClient) -> None:
    first = (await client.memory.insert("old", tags=["a"], metadata={"k": "v"}, create_time=SPRING)).memory
    changes: list[dict[str, Any]] = [
        {"text": "new"},
        {"tags": ["B", "c"]},
        {"metadata": {"other": "w"}},
        {"trust": MemoryTrust.AGENT},
        {"tags": [], "metadata": {}},
    ]
    now: dict[str, Any] = {
        "text": "old",
        "tags": ("a",),
        "metadata": {"k": "v"},
        "trust": MemoryTrust.USER,
    }
    etags = {first.etag}
    for change in changes:
        changed = (await client.memory.update(first.id, **change)).memory
        now |= change
        now["tags"] = tuple(tag.lower() for tag in now["tags"])
        assert {name: getattr(changed, name) for name in now} == now
        assert (changed.id, changed.create_time, changed.source) == (first.id, SPRING, first.source)
        assert changed.update_time >= first.update_time
        assert changed.embedding_model == MODEL
        assert await client.memory.get(first.id) == changed
        (result,) = (await client.memory.search(now["text"])).results
        assert result.memory == changed
        etags.add(changed.etag)
    assert len(etags) == len(changes) + 1


async def test_a_new_text_is_found_by_its_words_and_meaning_and_the_old_is_not(
    client: AsyncSageClient,
) -> None:
    await client.memory.insert("A recipe for bread with rye flour")
    memory = (await client.memory.insert("The violin needs new strings")).memory
    assert (await client.memory.search("violin", text_weight=0)).results[0].memory.id == memory.id
    await client.memory.update(memory.id, text="The bicycle has a flat tyre")
    weightings: list[dict[str, Any]] = [{"vector_weight": 0.0}, {"text_weight": 0.0}, {}]
    for weights in weightings:
        best = (await client.memory.search("bicycle tyre", **weights)).results[0]
        assert best.memory.text == "The bicycle has a flat tyre"
    assert await found(client, "violin", vector_weight=0) == []
    unweighted = await client.memory.search("violin strings", text_weight=0)
    same = await client.memory.search("bicycle flat tyre", text_weight=0)
    score = {r.memory.id: r.vector_score or 0 for r in unweighted.results}
    assert score[memory.id] < {r.memory.id: r.vector_score or 0 for r in same.results}[memory.id]


async def test_an_update_without_a_text_keeps_the_vector(client: AsyncSageClient) -> None:
    memory = (await client.memory.insert("x", embedding=axis(3))).memory
    await client.memory.insert("y", embedding=axis(4))
    await client.memory.update(memory.id, tags=["t"], embedding=axis(7))  # counts only with a text
    best = (await client.memory.search(embedding=axis(3))).results[0]
    assert best.memory.id == memory.id
    assert best.vector_score == pytest.approx(1)
    await client.memory.update(memory.id, text="z", embedding=axis(7, 0.5))
    best = (await client.memory.search(embedding=axis(7))).results[0]
    assert best.memory.id == memory.id
    assert best.vector_score == pytest.approx(1)


async def test_an_old_etag_aborts_updates_and_deletions(client: AsyncSageClient) -> None:
    first = (await client.memory.insert("x")).memory
    second = (await client.memory.update(first.id, text="y", etag=first.etag)).memory
    for etag in (first.etag, "v99", "x", second.etag + " "):
        with pytest.raises(sage_client.Aborted) as refused:
            await client.memory.update(first.id, text="z", etag=etag)
        assert (refused.value.reason, refused.value.metadata) == ("ETAG_MISMATCH", {"resource": "memory"})
        with pytest.raises(sage_client.Aborted):
            await client.memory.delete(first.id, etag=etag)
    assert await client.memory.get(first.id) == second
    await client.memory.delete(first.id, etag=second.etag)
    with pytest.raises(sage_client.NotFound):
        await client.memory.update(first.id, text="z")


async def test_of_updates_at_once_each_counts_and_with_an_etag_one(client: AsyncSageClient) -> None:
    memory = (await client.memory.insert("x")).memory
    await asyncio.gather(*(client.memory.update(memory.id, text=f"text {n}") for n in range(8)))
    current = await client.memory.get(memory.id)
    assert await found(client, "text", vector_weight=0) == [current.text]
    outcomes = await asyncio.gather(
        *(client.memory.update(memory.id, tags=[f"t{n}"], etag=current.etag) for n in range(6)),
        return_exceptions=True,
    )
    assert sum(isinstance(one, sage_client.Aborted) for one in outcomes) == 5
    (winner,) = [one for one in outcomes if not isinstance(one, BaseException)]
    assert await client.memory.get(memory.id) == winner.memory


async def test_a_message_can_be_deleted_but_not_updated(client: AsyncSageClient) -> None:
    thread = await said(client, "We meet at noon")
    (memory,) = [one async for one in client.memory.list()]
    with pytest.raises(sage_client.FailedPrecondition) as refused:
        await client.memory.update(memory.id, text="We meet at ten")
    assert (refused.value.reason, refused.value.metadata) == ("MEMORY_READ_ONLY", {"source": "MESSAGE"})
    assert (await client.memory.delete(memory.id)).deleted_count == 1
    assert await found(client, "noon") == []
    assert [item.text async for item in client.conversations.items(thread.id)] == ["We meet at noon"]


async def test_a_deleted_memory_is_gone_everywhere(client: AsyncSageClient) -> None:
    kept = (await client.memory.insert("kept word")).memory
    memory = (await client.memory.insert("gone word", tags=["t"])).memory
    assert len(await found(client, "word")) == 2
    deleted = await client.memory.delete(memory.id)
    assert (deleted.deleted_count, deleted.not_found) == (1, ())
    assert await found(client, "word", at_least_as_fresh=deleted.memory_token) == ["kept word"]
    assert await found(client, "word", tags=["t"]) == []
    assert [one async for one in client.memory.list()] == [kept]
    for call in (client.memory.get, client.memory.delete):
        with pytest.raises(sage_client.NotFound) as refused:
            await call(memory.id)
        assert refused.value.metadata == {"resource": "memory"}


async def test_many_are_deleted_by_id_and_the_missing_are_named_in_order(client: AsyncSageClient) -> None:
    ids = list((await client.memory.insert_many([NewMemory(f"m{n}") for n in range(5)])).ids)
    nobody = [str(uuid4()), str(uuid4())]
    deleted = await client.memory.delete_many([nobody[1], ids[0], ids[2], ids[0], nobody[0], nobody[1]])
    assert (deleted.deleted_count, deleted.not_found) == (2, (nobody[1], nobody[0]))
    assert sorted(await texts(client)) == ["m1", "m3", "m4"]
    again = await client.memory.delete_many([ids[0]])
    assert (again.deleted_count, again.not_found) == (0, (ids[0],))
    after = await client.memory.search("m1 m3", vector_weight=0, at_least_as_fresh=again.memory_token)
    assert {result.memory.text for result in after.results} == {"m1", "m3"}


async def test_a_thousand_ids_can_be_deleted_and_no_more(client: AsyncSageClient) -> None:
    many = await client.memory.insert_many([NewMemory(f"m{n}", embedding=axis(0)) for n in range(1000)])
    assert len(set(many.ids)) == 1000
    with pytest.raises(sage_client.InvalidArgument):
        await client.memory.delete_many([*many.ids, str(uuid4())])
    with pytest.raises(sage_client.InvalidArgument):
        await client.memory.insert_many([NewMemory("x")] * 1001)
    assert (await client.memory.stats()).memory_count == 1000
    assert (await client.memory.search(embedding=axis(0))).candidate_count == 1000
    assert (await client.memory.delete_many(many.ids)).deleted_count == 1000
    assert (await client.memory.search(embedding=axis(0))).candidate_count == 0


async def test_delete_all_takes_every_source_and_leaves_what_they_come_from(client: AsyncSageClient) -> None:
    thread = await said(client, "hello there")
    await client.memory.insert("kept by hand")
    deleted = await client.memory.delete_all()
    assert (deleted.deleted_count, deleted.not_found) == (2, ())
    assert await texts(client) == []
    assert await found(client, "hello hand") == []
    assert (await client.conversations.get(thread.id)).message_count == 1
    again = await client.memory.delete_all()
    assert (again.deleted_count, await found(client, "x", at_least_as_fresh=again.memory_token)) == (0, [])


async def test_a_deletion_must_say_what(client: AsyncSageClient) -> None:
    await client.memory.insert("x")
    for bad in (
        pb.DeleteMemoriesRequest(),
        pb.DeleteMemoriesRequest(filter=pb.MemoryFilter()),
        pb.DeleteMemoriesRequest(filter=pb.MemoryFilter(tag_match=memory_pb2.TAG_MATCH_ALL)),
        pb.DeleteMemoriesRequest(filter=pb.MemoryFilter(created=memory_pb2.TimeRange())),
        pb.DeleteMemoriesRequest(all=False),
        pb.DeleteMemoriesRequest(ids=pb.MemoryIds()),
    ):
        with pytest.raises(sage_client.InvalidArgument):
            await send(client, "DeleteMemories", bad)
    assert await texts(client) == ["x"]


HEALTH, WORK = "health", "work"


async def _filtered(client: AsyncSageClient) -> tuple[str, list[tuple[MemoryFilter, Collection[str]]]]:
    """Memories of two sources, and which of them each filter lets through."""
    thread = await client.conversations.create("Thread")
    await client.conversations.append(
        thread.id,
        [NewItem.user("word said", create_time=SPRING + 10 * DAY), NewItem.assistant("word answered")],
    )
    other = await client.conversations.create("Other")
    await client.conversations.append(other.id, [NewItem.user("word elsewhere", create_time=SPRING)])
    await client.memory.insert_many(
        [
            NewMemory("word one", tags=[HEALTH], create_time=SPRING),
            NewMemory("word two", tags=[HEALTH, WORK], create_time=SPRING + DAY),
            NewMemory("word three", tags=[WORK], create_time=SPRING + 2 * DAY),
            NewMemory("word four", create_time=SPRING + 3 * DAY),
        ]
    )
    await indexed(client)
    archival = {"word one", "word two", "word three", "word four"}
    messages = {"word said", "word answered", "word elsewhere"}
    every = MemoryFilter
    return thread.id, [
        (every(), archival | messages),
        (every(sources=[MemorySource.ARCHIVAL]), archival),
        (every(sources=[MemorySource.MESSAGE]), messages),
        (every(sources=[MemorySource.MESSAGE, MemorySource.ARCHIVAL]), archival | messages),
        (every(sources=[MemorySource.DOCUMENT, MemorySource.SUMMARY]), ()),
        (every(tags=[HEALTH]), {"word one", "word two"}),
        (every(tags=[HEALTH, WORK]), {"word one", "word two", "word three"}),
        (every(tags=[HEALTH, WORK], match=TagMatch.ALL), {"word two"}),
        (every(tags=[HEALTH, "nowhere"]), {"word one", "word two"}),
        (every(tags=[HEALTH, "nowhere"], match=TagMatch.ALL), ()),
        (every(conversation_id=thread.id), {"word said", "word answered"}),
        (every(conversation_id=thread.id, sources=[MemorySource.ARCHIVAL]), ()),
        (every(conversation_id=thread.id, before=SPRING + 11 * DAY), {"word said"}),
        (every(after=SPRING + DAY, before=SPRING + 3 * DAY), {"word two", "word three"}),
        (every(before=SPRING + DAY), {"word one", "word elsewhere"}),
        (every(after=SPRING + 3 * DAY), {"word four", "word said", "word answered"}),
        (every(after=SPRING + DAY, tags=[HEALTH]), {"word two"}),
        (every(before=SPRING + DAY, sources=[MemorySource.MESSAGE]), {"word elsewhere"}),
    ]


async def test_lists_searches_and_deletions_agree_on_what_a_filter_means(client: AsyncSageClient) -> None:
    _, cases = await _filtered(client)
    for where, expected in cases:
        assert sorted(await texts(client, where)) == sorted(expected), where
        query = SearchQuery(
            "word",
            sources=where.sources,
            tags=where.tags,
            match=where.match,
            conversation_id=where.conversation_id,
            after=where.after,
            before=where.before,
        )
        (answer,) = await client.memory.search_many([query])
        assert sorted(one.memory.text for one in answer.results) == sorted(expected), where
        assert answer.candidate_count == len(expected)
    for where, expected in reversed(cases[1:]):
        left = set(await texts(client))
        deleted = await client.memory.delete_where(where)
        assert deleted.deleted_count == len(left & set(expected)), where
        assert set(await texts(client)) == left - set(expected)
        assert {*await found(client, "word")} == left - set(expected)
    assert await texts(client) == []


async def test_a_conversation_that_there_is_not_is_not_found_in_a_filter(client: AsyncSageClient) -> None:
    await said(client, "hello")
    stranger = client.with_options(user=f"stranger-{uuid4()}")
    foreign = (await stranger.conversations.create("Theirs")).id
    for conversation in (foreign, str(uuid4())):
        where = MemoryFilter(conversation_id=conversation)
        for call in (
            client.memory.list_page(where),
            client.memory.delete_where(where),
            client.memory.search("hello", conversation_id=conversation),
            client.memory.search_many([SearchQuery("hello", conversation_id=conversation)]),
        ):
            with pytest.raises(sage_client.NotFound) as refused:
                await call
            assert refused.value.metadata["resource"] == "conversation"
    assert await texts(client) == ["hello"]


async def test_pages_give_each_memory_once_the_newest_first(client: AsyncSageClient) -> None:
    times = [SPRING + n * DAY for n in (3, 1, 1, 1, 2, 0, 3)]
    await client.memory.insert_many([NewMemory(f"m{n}", create_time=time) for n, time in enumerate(times)])
    listed = [one async for one in client.memory.list()]
    assert [one.create_time for one in listed] == sorted(times, reverse=True)
    for size in (1, 2, 3, 7, 200):
        assert [one async for one in client.memory.list(page_size=size)] == listed
        pages = await _pages(client, size)
        assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
    where = MemoryFilter(after=SPRING + DAY, before=SPRING + 3 * DAY)
    assert [one async for one in client.memory.list(where, page_size=1)] == listed[2:6]


async def _pages(client: AsyncSageClient, size: int) -> list[Sequence[Memory]]:
    pages: list[Sequence[Memory]] = []
    token = ""
    while True:
        page = await client.memory.list_page(page_size=size, page_token=token)
        pages.append(page.items)
        token = page.next_page_token
        if not token:
            return pages


async def test_a_page_has_50_memories_unless_asked_and_200_at_most(client: AsyncSageClient) -> None:
    await client.memory.insert_many([NewMemory(f"m{n}", embedding=axis(0)) for n in range(210)])
    for asked, got in ((0, 50), (200, 200), (1000, 200)):
        page = await client.memory.list_page(page_size=asked)
        assert (len(page.items), bool(page.next_page_token)) == (got, True)
    assert len([one async for one in client.memory.list(page_size=200)]) == 210


async def test_what_is_inserted_or_deleted_between_two_pages_moves_nothing_else(
    client: AsyncSageClient,
) -> None:
    await client.memory.insert_many([NewMemory(f"m{n}", create_time=SPRING + n * DAY) for n in range(6)])
    first = await client.memory.list_page(page_size=3)
    await client.memory.insert("newer")
    await client.memory.delete(first.items[2].id)
    rest = await client.memory.list_page(page_size=3, page_token=first.next_page_token)
    assert [one.text for one in rest.items] == ["m2", "m1", "m0"]


async def test_a_repeat_gets_the_first_answer_and_stores_nothing(client: AsyncSageClient) -> None:
    request_id = str(uuid4())
    request = pb.InsertMemoryRequest(text="once", tags=["T"], metadata={"a": "b"}, request_id=request_id)
    first = await send(client, "InsertMemory", request)
    assert (await send(client, "InsertMemory", request)).memory == first.memory
    await client.memory.update(first.memory.id, text="changed")
    assert (await send(client, "InsertMemory", request)).memory == first.memory
    await client.memory.delete(first.memory.id)
    again = await send(client, "InsertMemory", request)
    assert again.memory == first.memory
    assert await texts(client) == []
    assert await found(client, "once changed", at_least_as_fresh=again.memory_token) == []
    for other in (
        pb.InsertMemoryRequest(text="other", tags=["T"], metadata={"a": "b"}, request_id=request_id),
        pb.InsertMemoryRequest(text="once", tags=["T"], request_id=request_id),
    ):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await send(client, "InsertMemory", other)
        assert refused.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.insert_many([NewMemory("once")], request_id=request_id)
    assert refused.value.reason == "REQUEST_ID_REUSED"
    assert await texts(client) == []


async def test_a_repeated_batch_gets_the_same_ids(client: AsyncSageClient) -> None:
    batch, request_id = [NewMemory("a"), NewMemory("b", tags=["t"])], str(uuid4())
    first = await client.memory.insert_many(batch, request_id=request_id)
    assert (await client.memory.insert_many(batch, request_id=request_id)).ids == first.ids
    await client.memory.delete_many(first.ids)
    assert (await client.memory.insert_many(batch, request_id=request_id)).ids == first.ids
    assert await texts(client) == []
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.insert_many(batch[::-1], request_id=request_id)
    assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_repeats_at_once_store_once_and_answer_alike(dsn: str) -> None:
    """On two replicas, for a user who has nothing yet."""
    async with (
        running_server(dsn) as one,
        running_server(dsn) as two,
        sage_client.connect_async(one.address, user="maria") as here,
        sage_client.connect_async(two.address, user="maria") as there,
    ):
        request_id = str(uuid4())
        written = await asyncio.gather(
            *(client.memory.insert("once", request_id=request_id) for client in (here, there) * 5)
        )
        assert len({one.memory.id for one in written}) == 1
        assert len({one.memory.create_time for one in written}) == 1
        assert await texts(here) == ["once"]
        for client in (here, there):
            token = written[0].memory_token
            assert await found(client, "once", at_least_as_fresh=token) == ["once"]


async def test_a_request_id_can_be_used_again_after_a_day(dsn: str) -> None:
    async with (
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        request_id = str(uuid4())
        await client.memory.insert("one", request_id=request_id)
        server.clock.advance(timedelta(hours=25))
        await server.application.retention.run()
        await client.memory.insert("two", request_id=request_id)
        assert sorted(await texts(client)) == ["one", "two"]


async def test_a_batch_keeps_its_order_and_is_found(client: AsyncSageClient) -> None:
    batch = [NewMemory(f"word number{n}", tags=[f"t{n}"], metadata={"n": str(n)}) for n in range(30)]
    inserted = await client.memory.insert_many(batch)
    for n, memory_id in enumerate(inserted.ids):
        memory = await client.memory.get(memory_id)
        assert (memory.text, memory.tags, memory.metadata) == (f"word number{n}", (f"t{n}",), {"n": str(n)})
    assert await found(client, "number17", vector_weight=0) == ["word number17"]


@pytest.mark.parametrize(
    ("bad", "reason", "fields"),
    [
        (NewMemory("x", embedding=[1.0]), "EMBEDDING_DIMENSION_MISMATCH", []),
        (NewMemory("x", embedding=[0.0] * DIMENSIONS), "EMBEDDING_INVALID", []),
        (NewMemory("x", embedding=axis(1), embedding_model="hash/256"), "EMBEDDING_MODEL_MISMATCH", []),
        (NewMemory("x", tags=[" "]), "INVALID_REQUEST", ["requests[2].tags"]),
        (
            NewMemory("x", create_time=datetime(2999, 1, 1, tzinfo=UTC)),
            "INVALID_REQUEST",
            ["requests[2].create_time"],
        ),
        (NewMemory("x", agent="nobody"), "NOT_FOUND", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_bad_memory_in_a_batch_is_named_and_none_is_stored(
    client: AsyncSageClient, bad: NewMemory, reason: str, fields: list[str]
) -> None:
    request_id = str(uuid4())
    batch = [NewMemory("one"), NewMemory("two", embedding=axis(0)), bad, NewMemory("three")]
    with pytest.raises(sage_client.SageError) as refused:
        await client.memory.insert_many(batch, request_id=request_id)
    assert (refused.value.reason, refused.value.metadata["index"]) == (reason, "2")
    assert [one.field for one in refused.value.field_violations] == fields
    assert await texts(client) == []
    # A refusal is no answer to keep.
    assert len((await client.memory.insert_many(batch[:2], request_id=request_id)).ids) == 2


async def test_a_batch_looks_each_agent_up_once(
    client: AsyncSageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await client.agents.create("first")).id
    second = (await client.agents.create("second")).id
    looked_up: list[str] = []
    resolve = PostgresAgentStore.resolve

    async def counted(store: PostgresAgentStore, user_id: UUID, agent: str) -> UUID:
        looked_up.append(agent)
        return await resolve(store, user_id, agent)

    monkeypatch.setattr(PostgresAgentStore, "resolve", counted)
    named = ["first", "second", "", "first", "second", first, ""]
    await client.memory.insert_many([NewMemory(f"memory {n}", agent=name) for n, name in enumerate(named)])
    assert looked_up == ["first", "second", first]
    owners = {one.text: one.agent_id async for one in client.memory.list()}
    assert [owners[f"memory {n}"] for n in range(7)] == [first, second, "", first, second, first, ""]
    looked_up.clear()
    answers = await client.memory.search_many([SearchQuery("memory", agent=name) for name in named])
    assert looked_up == ["first", "second", first]
    assert [len(answer.results) for answer in answers] == [3, 2, 7, 3, 2, 3, 7]


async def test_a_given_vector_is_normalised_and_found_by_its_like(client: AsyncSageClient) -> None:
    for at, size in ((1, 5.0), (2, 1e-30), (3, 3e38)):
        await client.memory.insert(f"at {at}", embedding=axis(at, size), embedding_model=MODEL)
    await client.memory.insert("array", embedding=np.array(axis(4), np.float32))
    for at in (1, 2, 3):
        best = (await client.memory.search(embedding=axis(at, 0.001))).results[0]
        assert best.memory.text == f"at {at}"
        assert best.vector_score == pytest.approx(1, abs=1e-6)


async def test_a_vector_that_will_not_do_is_refused_by_every_method(client: AsyncSageClient) -> None:
    memory = (await client.memory.insert("x")).memory
    wrong: list[tuple[dict[str, Any], str, dict[str, str]]] = [
        (
            {"embedding": [1.0] * 3},
            "EMBEDDING_DIMENSION_MISMATCH",
            {"expected": str(DIMENSIONS), "actual": "3"},
        ),
        ({"embedding": [0.0] * DIMENSIONS}, "EMBEDDING_INVALID", {}),
        ({"embedding": axis(1), "embedding_model": "other"}, "EMBEDDING_MODEL_MISMATCH", {"expected": MODEL}),
    ]
    for given, reason, metadata in wrong:
        calls = [client.memory.insert("y", **given), client.memory.update(memory.id, text="y", **given)]
        if "embedding_model" not in given:
            calls.append(client.memory.search(**given))  # type: ignore[arg-type]
        for call in calls:
            with pytest.raises(sage_client.SageError) as refused:
                await call
            assert (refused.value.reason, refused.value.metadata) == (reason, metadata)
    for number in (float("nan"), float("inf")):
        with pytest.raises(sage_client.InvalidArgument):
            await client.memory.insert("y", embedding=axis(0, number))
    assert await client.memory.get(memory.id) == memory
    assert await texts(client) == ["x"]


async def test_what_one_replica_wrote_the_other_sees_with_its_token(dsn: str) -> None:
    async with (
        running_server(dsn) as one,
        running_server(dsn) as two,
        sage_client.connect_async(one.address, user="maria") as here,
        sage_client.connect_async(two.address, user="maria") as there,
    ):
        await here.memory.insert("first word")
        assert await found(there, "word") == ["first word"]  # both have an index from now on
        memory = await here.memory.insert("second word")
        assert len(await found(there, "word", at_least_as_fresh=memory.memory_token)) == 2
        changed = await there.memory.update(memory.memory.id, text="another sentence")
        assert await found(here, "word", vector_weight=0, at_least_as_fresh=changed.memory_token) == [
            "first word"
        ]
        gone = await here.memory.delete_all()
        assert await found(there, "sentence", at_least_as_fresh=gone.memory_token) == []
        await there.memory.insert("third word")
        assert await found(here, "word", fully_consistent=True) == ["third word"]


async def test_deleted_text_tags_and_vectors_leave_the_row(
    shared: RunningServer, client: AsyncSageClient
) -> None:
    """Only a trace is left, so that other replicas learn of it."""
    memory = (await client.memory.insert("text", tags=["t"], metadata={"a": "b"})).memory
    await client.memory.delete(memory.id)
    database = await asyncpg.connect(shared.dsn)
    try:
        row = await database.fetchrow("SELECT * FROM memories WHERE id = $1", memory.id)
    finally:
        await database.close()
    assert row is not None
    sealed = [name for name in row.keys() if name.endswith("_enc")]  # noqa: SIM118 (a Record is no dict)
    assert len(sealed) == 5
    assert {name: row[name] for name in (*sealed, "tags", "model_0", "model_1") if row[name]} == {}


async def test_statistics_count_what_there_is(client: AsyncSageClient) -> None:
    empty = await client.memory.stats()
    assert [(one.source, one.count, one.pending_count) for one in empty.sources] == [
        (source, 0, 0) for source in MemorySource if source is not MemorySource.UNKNOWN
    ]
    assert (empty.memory_count, empty.block_count, empty.document_count) == (0, 0, 0)
    assert (empty.embedding_model, empty.dimensions) == (MODEL, DIMENSIONS)
    assert (empty.index_loaded, empty.index_bytes, empty.index_count) == (False, 0, 0)
    assert (empty.next_embedding_model, empty.reembedding_progress) == ("", 0)
    await client.memory.insert_many([NewMemory("one"), NewMemory("two")])
    await client.memory.blocks.create("human")
    await said(client, "hello", "again")
    await client.memory.search("one")
    stats = await client.memory.stats()
    assert {one.source: one.count for one in stats.sources if one.count} == {
        MemorySource.ARCHIVAL: 2,
        MemorySource.MESSAGE: 2,
    }
    assert {one.pending_count for one in stats.sources} == {0}
    assert (stats.memory_count, stats.block_count) == (4, 1)
    assert (stats.index_loaded, stats.index_count) == (True, 4)
    assert stats.index_bytes > 4 * DIMENSIONS * 4
    assert (stats.pending_count, stats.indexing_lag) == (0, timedelta(0))
    assert (await client.memory.search("one", at_least_as_fresh=stats.memory_token)).candidate_count == 4
    await client.memory.delete_all()
    assert (await client.memory.stats()).memory_count == 0


async def test_embedded_texts_are_vectors_of_length_1_that_search_understands(
    client: AsyncSageClient,
) -> None:
    wanted = ["The violin needs strings", "A recipe for bread"]
    embedded = await client.memory.embed(wanted)
    assert (embedded.model, embedded.dimensions, len(embedded.vectors)) == (MODEL, DIMENSIONS, 2)
    for vector in embedded.vectors:
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
        assert len(vector) == DIMENSIONS
    assert embedded.embedding_tokens > 0
    await client.memory.insert_many([NewMemory(text) for text in wanted])
    for text, vector in zip(wanted, embedded.vectors, strict=True):
        best = (await client.memory.search(embedding=vector)).results[0]
        assert best.memory.text == text
        assert best.vector_score == pytest.approx(1, abs=1e-5)


async def test_a_query_is_embedded_by_how_rare_its_words_are(client: AsyncSageClient) -> None:
    question = "the violin and the garden"
    plain = await client.memory.embed([question])
    assert (await client.memory.embed([question], EmbedPurpose.DOCUMENT)).vectors == plain.vectors
    await client.memory.insert_many([NewMemory(f"garden number {n}") for n in range(20)])
    await client.memory.insert("violin")
    (query,) = (await client.memory.embed([question], EmbedPurpose.QUERY)).vectors
    assert np.linalg.norm(query) == pytest.approx(1, abs=1e-5)
    assert (await client.memory.embed([question])).vectors == plain.vectors
    (violin,) = (await client.memory.embed(["violin"])).vectors
    assert np.dot(query, violin) > np.dot(plain.vectors[0], violin)
    explained = (await client.memory.search(question)).results[0]
    assert explained.vector_score == pytest.approx(np.dot(query, violin), abs=1e-5)


async def test_embedding_is_metered_and_given_vectors_cost_nothing(client: AsyncSageClient) -> None:
    async def tokens() -> int:
        request = conversation_service_pb2.GetUsageRequest()
        usage = client.stubs.conversations.GetUsage
        answer = await client.transport.unary(usage, request, repeat=Repeat.SAFE)
        assert {record.model for record in answer.records} <= {MODEL}
        assert {record.purpose for record in answer.records} <= {usage_pb2.USAGE_PURPOSE_EMBEDDING}
        return sum(record.embedding_tokens for record in answer.records)

    spent = (await client.memory.embed(["one two three"])).embedding_tokens
    assert await tokens() == spent > 0
    for act in (
        client.memory.insert("one two three"),
        client.memory.insert_many([NewMemory("one two three")]),
    ):
        await act
        assert await tokens() == (spent := spent + 3)
    await client.memory.insert("one two three", embedding=axis(1))
    await client.memory.search("one", embedding=axis(1))
    await client.memory.search("one", vector_weight=0)
    assert await tokens() == spent
    await client.memory.search("one")
    assert await tokens() > spent
