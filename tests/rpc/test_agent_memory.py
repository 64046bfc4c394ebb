"""What is an agent's own: its thread, blocks, memories, documents and notes, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

import sage_client
from sage.v1 import agent_pb2, item_pb2, memory_pb2, turn_event_pb2
from sage.v1 import agent_service_pb2 as pb
from sage.v1 import memory_service_pb2 as memory
from sage_client import AsyncSageClient, FlagScope, MemoryFilter, MemorySource, NewMemory
from sage_client.retry import Repeat
from sage_server.adapters.crypto import CachedKeyRing, KeyWrapping
from sage_server.adapters.postgres.agents import PostgresAgentStore
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.transcripts import PostgresTranscriptStore
from sage_server.adapters.postgres.users import PostgresKeyStore
from sage_server.adapters.tokenizer import O200kCounter
from sage_server.bootstrap import open_root_keys
from sage_server.bootstrap.language_models import open_language_models
from sage_server.domain.events import Cancelled, Event
from sage_server.domain.turns import CancelCause
from sage_server.engine.agent_vectors import AgentVectors
from sage_server.services.agents import Agents as Service
from support.agent_calls import Agents, rows, user_of, with_thread, with_turn
from support.agents import answer, stage
from support.memory import found, indexed, texts
from support.postgres import TestPostgres
from support.provider import chat_reply
from support.server import RunningServer, running_server, test_settings

ISOLATED = agent_pb2.MEMORY_MODE_ISOLATED
OVERLAY = agent_pb2.MEMORY_MODE_OVERLAY


@pytest.fixture(scope="module")
async def shared(postgres: TestPostgres) -> AsyncIterator[RunningServer]:
    """One server for all: each test has a user of its own."""
    async with postgres.database() as dsn, running_server(dsn) as running:
        yield running


@pytest.fixture
async def client(shared: RunningServer) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(shared.address, user=f"maria-{uuid4()}") as connected:
        yield connected


@pytest.fixture
def agents(client: AsyncSageClient) -> Agents:
    return Agents(client)


@asynccontextmanager
async def service_of(server: RunningServer, told: list[Event]) -> AsyncIterator[Service]:
    """The service on a store of its own, which tells what it publishes."""
    settings, parts = test_settings(server.dsn), server.application
    database = await Database.open(server.dsn, PoolOptions(1, 4, 10, 10))
    wrapping = KeyWrapping(open_root_keys(settings))
    keys = CachedKeyRing(PostgresKeyStore(database, server.clock), wrapping, 10)
    try:
        async with open_language_models(settings, O200kCounter()) as models:
            yield Service(
                agents=PostgresAgentStore(database, keys),
                transcripts=PostgresTranscriptStore(database, keys),
                writer=parts.memory.writer,
                vectors=AgentVectors(parts.memory.embedders, parts.usage),
                models=models,
                tool_names=(),
                publish=lambda _user_id, events: told.extend(events),
                clock=server.clock,
            )
    finally:
        await database.close()


@asynccontextmanager
async def no_turns(client: AsyncSageClient) -> AsyncIterator[None]:
    """Turns that wait go on waiting, and those whose leases ran out are left alone."""
    await client.admin.set_flag("turns", FlagScope.GLOBAL, enabled=False)
    try:
        yield
    finally:
        await client.admin.clear_flag("turns", FlagScope.GLOBAL)


async def notes(client: AsyncSageClient, method: str, **fields: Any) -> Any:
    """A raw method of the scratchpads."""
    request = getattr(memory, f"{method}Request")(**fields)
    stub = getattr(client.stubs.memory, method)
    return await client.transport.unary(stub, request, repeat=Repeat.IF_REFUSED)


async def test_an_agent_has_blocks_of_its_own(agents: Agents, client: AsyncSageClient) -> None:
    scout = await agents.create("scout", memory_mode=ISOLATED)
    await agents.create("guide")
    blocks = client.memory.blocks
    await blocks.create("human", value="shared")
    own = await blocks.create("human", agent="scout", value="of the scout")
    assert own.agent_id == scout.id
    assert await blocks.get("HUMAN", agent=scout.id) == own
    assert (await blocks.update("human", agent="scout", value="changed")).revision == 2
    assert [block.value async for block in blocks.list(agent="scout")] == ["shared", "changed"]
    assert [block.value async for block in blocks.list(agent="guide")] == ["shared"]
    with pytest.raises(sage_client.NotFound):
        await blocks.get("human", agent="guide")
    assert (await blocks.get("human")).value == "shared"


async def test_an_agent_has_memories_of_its_own(agents: Agents, client: AsyncSageClient) -> None:
    scout = await agents.create("scout", memory_mode=ISOLATED)
    await agents.create("guide")
    await client.memory.insert("The garden is dry")
    own = (await client.memory.insert("The garden is wet", agent="scout")).memory
    await client.memory.insert_many([NewMemory("The garden is green", agent=scout.id)])
    assert own.agent_id == scout.id
    assert set(await found(client, "garden", agent="scout")) == {"The garden is wet", "The garden is green"}
    assert await found(client, "garden", agent="guide") == []
    assert len(await found(client, "garden")) == 3
    assert set(await texts(client, MemoryFilter(agent=scout.id))) == {
        "The garden is wet",
        "The garden is green",
    }
    assert (await client.memory.delete_where(MemoryFilter(agent="scout"))).deleted_count == 2
    assert await texts(client) == ["The garden is dry"]


async def test_an_agent_has_documents_of_its_own(agents: Agents, client: AsyncSageClient) -> None:
    scout = await agents.create("scout", memory_mode=ISOLATED)
    documents = client.memory.documents
    done = await documents.add(b"A diary of the garden", agent="scout")
    await documents.add(b"A diary of the sea")
    assert done.document.agent_id == scout.id
    assert [document.id async for document in documents.list(agent=scout.id)] == [done.document.id]
    assert await found(client, "diary", agent="scout") == ["A diary of the garden"]


async def test_an_agents_own_thread_has_notes(agents: Agents, client: AsyncSageClient) -> None:
    for method, fields in (("GetScratchpad", {}), ("WriteScratchpad", {"items": ["x"]})):
        with pytest.raises(sage_client.NotFound) as refused:
            await notes(client, method, **fields)
        assert refused.value.metadata == {"resource": "agent"}
    main = await agents.enable_main()
    scout = await agents.create("scout")
    assert (await notes(client, "GetScratchpad")).scratchpad == memory_pb2.Scratchpad(agent_id=main.id)
    written = (await notes(client, "WriteScratchpad", items=["sow beans"])).scratchpad
    assert (written.conversation_id, written.agent_id, list(written.items)) == ("", main.id, ["sow beans"])
    assert (await notes(client, "GetScratchpad", agent="main")).scratchpad == written
    assert list((await notes(client, "GetScratchpad", agent="scout")).scratchpad.items) == []
    await notes(client, "WriteScratchpad", agent=scout.id, items=["look"], etag="")
    own = (await notes(client, "GetScratchpad", agent="scout")).scratchpad
    assert (own.conversation_id, own.agent_id, list(own.items)) == ("", scout.id, ["look"])
    again = await notes(client, "WriteScratchpad", agent="scout", items=["see"], etag=own.etag)
    with pytest.raises(sage_client.Aborted):
        await notes(client, "WriteScratchpad", agent="scout", items=["touch"], etag=own.etag)
    assert (await notes(client, "GetScratchpad", agent="scout")).scratchpad == again.scratchpad
    assert (await notes(client, "ClearScratchpad", agent="scout")).deleted_count == 1
    assert list((await notes(client, "GetScratchpad")).scratchpad.items) == ["sow beans"]


async def test_the_id_of_an_agents_own_thread_opens_nothing(
    agents: Agents, client: AsyncSageClient, shared: RunningServer
) -> None:
    """Not even to its owner, and not because an index knows the thread."""
    scout = await agents.create("scout")
    thread = await with_thread(shared, client, scout, "The garden is dry")
    await notes(client, "WriteScratchpad", agent="scout", items=["look"])
    assert await found(client, "garden") == ["The garden is dry"]
    where = MemoryFilter(conversation_id=thread.id)
    nowhere = str(uuid4())
    for call in (
        notes(client, "GetScratchpad", conversation_id=thread.id),
        notes(client, "GetScratchpad", conversation_id=thread.id, agent="scout"),
        notes(client, "WriteScratchpad", conversation_id=thread.id, items=["x"]),
        notes(client, "ClearScratchpad", conversation_id=thread.id),
        client.memory.search("garden", conversation_id=thread.id),
        client.memory.search("garden", conversation_id=nowhere),
        client.memory.list_page(where),
        client.memory.delete_where(where),
        client.conversations.get(thread.id),
    ):
        with pytest.raises(sage_client.NotFound) as refused:
            await call
        assert refused.value.metadata == {"resource": "conversation"}
    assert [item.text for item in (await agents.items("scout")).items] == ["The garden is dry"]
    assert await texts(client) == ["The garden is dry"]


async def test_what_was_said_in_an_agents_own_thread_names_the_agent_and_no_thread(
    agents: Agents, client: AsyncSageClient, shared: RunningServer
) -> None:
    scout = await agents.create("scout")
    await with_thread(shared, client, scout, "The garden is dry")
    (item,) = (await agents.items("scout")).items
    (hit,) = (await client.memory.search("garden")).results
    (listed,) = [one async for one in client.memory.list(MemoryFilter(sources=[MemorySource.MESSAGE]))]
    for one in (hit.memory, listed, await client.memory.get(listed.id)):
        place = one.provenance
        assert (place.conversation_id, place.thread_agent_id) == ("", scout.id)
        assert (place.item_id, place.item_seq) == (item.id, 1)


async def test_the_items_of_an_agents_own_thread_are_listed_without_its_id(
    agents: Agents, client: AsyncSageClient, shared: RunningServer
) -> None:
    scout = await agents.create("scout")
    await agents.create("guide")
    assert list((await agents.items("scout")).items) == []
    await with_thread(shared, client, scout, "one", "two", "three")
    assert (await agents.get("scout")).message_count == 3
    for agent in ("scout", scout.id):
        page = await agents.items(agent)
        assert [(item.text, item.seq, item.conversation_id) for item in page.items] == [
            ("one", 1, ""),
            ("two", 2, ""),
            ("three", 3, ""),
        ]
    page = await agents.items("scout", order=item_pb2.ITEM_ORDER_NEWEST_FIRST, page_size=2)
    assert [item.text for item in page.items] == ["three", "two"]
    again = {"order": item_pb2.ITEM_ORDER_NEWEST_FIRST, "page_token": page.next_page_token}
    assert [item.text for item in (await agents.items("scout", **again)).items] == ["one"]
    for call in (
        agents.items("guide", **again),
        agents.items("scout", page_token=page.next_page_token),
        agents.items("scout", page_token="x"),
    ):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await call
        assert refused.value.reason == "INVALID_PAGE_TOKEN"
    only = await agents.items("scout", kinds=[item_pb2.ITEM_KIND_ASSISTANT])
    assert list(only.items) == []


async def test_a_cleared_thread_is_empty_and_nothing_else_is_gone(
    agents: Agents, client: AsyncSageClient, shared: RunningServer
) -> None:
    main = await agents.enable_main()
    thread = await with_thread(shared, client, main, "The garden is dry", "The sea is wet")
    user_id = await user_of(client)
    await rows(
        shared,
        "INSERT INTO conversation_summaries (user_id, id, conversation_id, epoch, from_seq, to_seq,"
        " message_count, token_count, content_enc, created_at, key_version)"
        " VALUES ($1, $2, $3, 1, 1, 2, 2, 9, $4, now(), 1)",
        *(user_id, uuid4(), UUID(thread.id), b"sealed"),
    )
    turn = await with_turn(shared, client, main, thread.id, status=3)
    await rows(
        shared,
        "INSERT INTO events SELECT user_id, seq + 1, id, 22, turn_id, step, agent_id, conversation_id,"
        " channel, NULL, 0, payload_enc, created_at, expires_at, key_version FROM events WHERE turn_id = $1",
        turn,
    )
    await client.memory.insert("The garden was green")
    await client.memory.documents.add(b"A diary of the garden")
    await notes(client, "WriteScratchpad", items=["sow beans"])
    other = await client.conversations.create("Another")
    async with (
        running_server(shared.dsn) as replica,
        sage_client.connect_async(replica.address, user=client.options.user) as elsewhere,
    ):
        assert "The garden is dry" in await found(elsewhere, "garden")
        cleared = await agents.clear()
        assert (cleared.deleted_item_count, cleared.deleted_summary_count) == (2, 1)
        assert cleared.deleted_memory_count == 2
        for one in (client, elsewhere):
            hits = await found(one, "garden", at_least_as_fresh=cleared.memory_token)
            assert set(hits) == {"The garden was green", "A diary of the garden"}
    after = await agents.get()
    assert (after.message_count, after.etag) == (0, main.etag)
    assert list((await agents.items()).items) == []
    ((count, tokens, last_seq, last_item),) = await rows(
        shared,
        "SELECT message_count, total_tokens, last_seq, last_item_at FROM conversations WHERE id = $1",
        UUID(thread.id),
    )
    assert (count, tokens, last_seq, last_item) == (0, 0, 2, None)
    assert await rows(shared, "SELECT kind FROM events WHERE turn_id = $1", turn) == [(22,)]
    assert list((await notes(client, "GetScratchpad")).scratchpad.items) == ["sow beans"]
    assert len([block async for block in client.memory.blocks.list()]) == 2
    assert [one.id async for one in client.conversations.list()] == [other.id]
    repeat = await agents.clear("main")
    assert (repeat.deleted_item_count, repeat.deleted_summary_count, repeat.deleted_memory_count) == (0, 0, 0)
    assert await found(client, "garden", at_least_as_fresh=repeat.memory_token)


@pytest.mark.parametrize("status", [1, 2])
async def test_a_thread_with_a_turn_in_it_is_not_cleared(
    agents: Agents, client: AsyncSageClient, shared: RunningServer, status: int
) -> None:
    scout = await agents.create("scout")
    thread = await with_thread(shared, client, scout, "The garden is dry")
    async with no_turns(client):
        turn = await with_turn(shared, client, scout, thread.id, status=status)
        with pytest.raises(sage_client.Aborted) as refused:
            await agents.clear("scout")
        assert (refused.value.reason, refused.value.metadata) == ("TURN_BUSY", {"turn_id": str(turn)})
        assert (await agents.get("scout")).message_count == 1
        assert await found(client, "garden") == ["The garden is dry"]
        await rows(shared, "UPDATE turns SET status = 5 WHERE id = $1", turn)
        assert (await agents.clear("scout")).deleted_item_count == 1


async def test_all_that_is_a_deleted_agents_own_is_gone_and_nothing_else(
    agents: Agents, client: AsyncSageClient, shared: RunningServer
) -> None:
    scout = await agents.create("scout", memory_mode=ISOLATED)
    guide = await agents.create("guide", memory_mode=ISOLATED)
    thread = await with_thread(shared, client, scout, "The garden is dry", "The sea is wet")
    await notes(client, "WriteScratchpad", agent="scout", items=["look"])
    for agent in ("scout", "guide"):
        await client.memory.blocks.create("human", agent=agent, value="Anna")
        await client.memory.insert(f"The garden of the {agent}", agent=agent)
    await client.memory.blocks.create("human")
    await client.memory.insert("The garden of the user")
    document = await client.memory.documents.add(b"A diary of the garden", agent="scout")
    assert len(await found(client, "garden")) == 6
    deleted = await agents.delete("scout")
    assert (deleted.deleted_item_count, deleted.deleted_block_count) == (2, 1)
    assert deleted.deleted_memory_count == 4
    left = {"The garden of the guide", "The garden of the user"}
    assert set(await found(client, "garden")) == left
    assert set(await found(client, "garden", at_least_as_fresh=deleted.memory_token)) == left
    assert set(await texts(client)) == left
    assert [block.agent_id async for block in client.memory.blocks.list()] == ["", guide.id]
    with pytest.raises(sage_client.NotFound):
        await client.memory.documents.get(document.document.id)
    with pytest.raises(sage_client.NotFound):
        await agents.delete("scout")
    assert await agents.names() == ["guide"]
    for table, column in (("conversations", "id"), ("items", "conversation_id"), ("scratchpads", "id")):
        assert await rows(shared, f"SELECT 1 FROM {table} WHERE {column} = $1", UUID(thread.id)) == []
    afresh = await agents.create("scout")
    assert (afresh.id == scout.id, afresh.message_count) == (False, 0)
    assert list((await notes(client, "GetScratchpad", agent="scout")).scratchpad.items) == []


async def test_the_turns_of_a_deleted_agent_are_cancelled_and_told_of(
    agents: Agents, client: AsyncSageClient, shared: RunningServer
) -> None:
    scout = await agents.create("scout")
    guide = await agents.create("guide")
    own = await with_thread(shared, client, scout, "The garden is dry")
    other = await client.conversations.create("Thread")
    async with no_turns(client):
        runs = await with_turn(shared, client, scout, own.id)
        waits = await with_turn(shared, client, scout, own.id, status=1)
        elsewhere = await with_turn(shared, client, scout, other.id, own_thread=False)
        ended = await with_turn(shared, client, scout, other.id, own_thread=False, status=3)
        theirs = await with_turn(shared, client, guide, other.id, own_thread=False, status=1)
        user_id = await user_of(client)
        heard: list[Event] = []
        async with service_of(shared, heard) as service:
            await service.delete(user_id, "scout", "")
        assert [event.seq for event in heard] == [6, 7, 8]
        assert {event.turn_id for event in heard} == {runs, waits, elsewhere}
        assert {event.conversation_id for event in heard} == {None, UUID(other.id)}
        for event in heard:
            assert isinstance(event.payload, Cancelled)
            assert (event.payload.cause, event.payload.step_count) == (CancelCause.DELETED, 3)
        stored = await rows(
            shared, "SELECT seq, kind, turn_id FROM events WHERE user_id = $1 ORDER BY seq", user_id
        )
        assert stored == [(5, 13, theirs), *((event.seq, 24, event.turn_id) for event in heard)]
        left = {
            row[0]: row[1:]
            for row in await rows(
                shared,
                "SELECT id, status, cancel_cause, fence, last_event, ended_at IS NOT NULL, lease_owner"
                " FROM turns WHERE user_id = $1",
                user_id,
            )
        }
        last = next(event.seq for event in heard if event.turn_id == elsewhere)
        assert left[elsewhere] == (5, 4, 2, last, True, None)
        assert set(left) == {elsewhere, ended, theirs}
        assert (left[ended][0], left[theirs][0]) == (3, 1)


async def test_an_agent_leaves_overlay_only_with_nothing_in_it(
    agents: Agents, client: AsyncSageClient
) -> None:
    await agents.create("scout", memory_mode=OVERLAY)
    await client.memory.blocks.create("human", agent="scout")
    await client.memory.insert("The garden is dry", agent="scout")
    await client.memory.insert("The garden is wet")
    for mode in (agent_pb2.MEMORY_MODE_SHARED, ISOLATED):
        with pytest.raises(sage_client.FailedPrecondition) as refused:
            await agents.update("scout", memory_mode=mode)
        assert (refused.value.reason, refused.value.metadata) == ("OVERLAY_NOT_EMPTY", {"changes": "2"})
    changed = await agents.update("scout", description="still there", memory_mode=OVERLAY)
    assert (changed.description, changed.memory_mode) == ("still there", OVERLAY)
    await client.memory.delete_where(MemoryFilter(agent="scout"))
    with pytest.raises(sage_client.FailedPrecondition):
        await agents.update("scout", defaults=["memory_mode"])
    await client.memory.blocks.delete("human", agent="scout")
    assert (await agents.update("scout", memory_mode=ISOLATED)).memory_mode == ISOLATED
    await client.memory.insert("The garden is green", agent="scout")
    assert (await agents.update("scout", defaults=["memory_mode"])).memory_mode == 1


async def test_changes_and_a_deletion_at_the_same_time_leave_all_or_nothing(
    agents: Agents, client: AsyncSageClient
) -> None:
    for n in range(4):
        await agents.create("scout", request_id=str(uuid4()))
        answers = await asyncio.gather(
            *(agents.update("scout", max_steps=step + 1) for step in range(3)),
            agents.delete("scout"),
            *(agents.update("scout", max_steps=step + 9) for step in range(3)),
            return_exceptions=True,
        )
        assert isinstance(answers[3], pb.DeleteAgentResponse), n
        others = [answer for at, answer in enumerate(answers) if at != 3]
        assert all(isinstance(answer, agent_pb2.Agent | sage_client.NotFound) for answer in others)
        assert await agents.all() == []
    assert [one async for one in client.conversations.list()] == []


async def told(client: AsyncSageClient, method: str, request: Any) -> list[turn_event_pb2.TurnEvent]:
    """All events of a stream."""
    stream = getattr(client.stubs.agents, method)(request, metadata=client.options.metadata())
    return [response.event async for response in stream]


async def test_a_running_turn_of_a_deleted_agent_ends_as_cancelled(dsn: str) -> None:
    async with stage(dsn) as on:
        agents, hold = Agents(on.client), asyncio.Event()
        await agents.create("scout")
        on.provider.script_chat(chat_reply(answer("The garden is wet"), hold=hold))
        chat = asyncio.create_task(
            told(on.client, "Chat", pb.ChatRequest(agent="scout", input="The garden?"))
        )
        await on.provider.asked.wait()
        assert (await agents.delete("scout")).deleted_item_count == 1
        last = (await chat)[-1]
        assert last.WhichOneof("event") == "cancelled"
        assert last.cancelled.cause == turn_event_pb2.CANCEL_CAUSE_DELETED
        hold.set()
        with pytest.raises(sage_client.NotFound):
            await agents.items("scout")


async def test_a_turn_of_a_cleared_thread_still_says_how_it_ended_and_nothing_else(dsn: str) -> None:
    async with stage(dsn) as on:
        agents = Agents(on.client)
        on.provider.script_chat(chat_reply(answer("Dry as dust")))
        chat = await told(on.client, "Chat", pb.ChatRequest(input="How is the garden?"))
        assert [item.text for item in (await agents.items()).items] == ["How is the garden?", "Dry as dust"]
        await indexed(on.client)
        assert set(await found(on.client, "garden")) == {"How is the garden?", "Dry as dust"}
        cleared = await agents.clear()
        assert (cleared.deleted_item_count, cleared.deleted_memory_count) == (2, 2)
        again = await told(on.client, "AttachTurn", pb.AttachTurnRequest(turn_id=chat[0].turn_id))
        assert [(one.event_id, one.WhichOneof("event")) for one in again] == [(chat[-1].event_id, "done")]
        assert await found(on.client, "garden") == []
        on.provider.script_chat(chat_reply(answer("I do not know")))
        await told(on.client, "Chat", pb.ChatRequest(input="And now?"))
        assert [(item.seq, item.text) for item in (await agents.items()).items] == [
            (3, "And now?"),
            (4, "I do not know"),
        ]
