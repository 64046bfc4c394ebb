"""`client.agents` and `client.turns` against a server on a real socket."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

import sage_client
from sage.v1 import agent_pb2, item_pb2, memory_pb2
from sage.v1 import agent_service_pb2 as pb
from sage_client import (
    AgentSettings,
    AsyncSageClient,
    CompactionMode,
    CompactionSettings,
    ItemKind,
    ItemOrder,
    MemoryMode,
    OverlayConflictPolicy,
    RetryPolicy,
    TurnOrigin,
    TurnStatus,
)
from sage_client._wire.agents import agent_update_to, new_agent_to
from support.agent_server import AgentServer, running

QUICK = RetryPolicy(initial_backoff=0.001)
ID = "0193e2a4-7b1c-7c3a-9e58-0123456789ab"
MAY = datetime(2026, 5, 1, tzinfo=UTC)
JUNE = datetime(2026, 6, 1, tzinfo=UTC)
MAY_PB = Timestamp(seconds=int(MAY.timestamp()))
JUNE_PB = Timestamp(seconds=int(JUNE.timestamp()))
COMPACTION = CompactionSettings(CompactionMode.MESSAGES, 0.5, 30, 0, 200)
COMPACTION_PB = agent_pb2.CompactionSettings(
    mode=agent_pb2.COMPACTION_MODE_MESSAGES,
    threshold=0.5,
    message_threshold=30,
    keep_newest=0,
    summary_words=200,
)
FULL: AgentSettings = {
    "description": "Finds and compares sources.",
    "enabled": False,
    "memory_mode": MemoryMode.OVERLAY,
    "model": "openai/gpt-4.1-mini",
    "system_prompt": "Be brief.",
    "time_zone": "Europe/Berlin",
    "preferences": {"language": "German"},
    "max_context_tokens": 8000,
    "compaction": COMPACTION,
    "max_steps": 4,
    "max_turn_duration": timedelta(seconds=90),
    "max_turn_tokens": 5000,
    "max_memory_writes": 0,
    "allowed_tools": [],
}
FULL_PB: dict[str, Any] = {
    "description": "Finds and compares sources.",
    "enabled": False,
    "memory_mode": agent_pb2.MEMORY_MODE_OVERLAY,
    "model": "openai/gpt-4.1-mini",
    "system_prompt": "Be brief.",
    "time_zone": "Europe/Berlin",
    "preferences": {"language": "German"},
    "max_context_tokens": 8000,
    "compaction": COMPACTION_PB,
    "max_steps": 4,
    "max_turn_duration": Duration(seconds=90),
    "max_turn_tokens": 5000,
    "max_memory_writes": 0,
    "allowed_tools": agent_pb2.ToolSelection(),
}


@pytest.fixture
async def server() -> AsyncIterator[AgentServer]:
    handler = AgentServer()
    async with running(handler):
        yield handler


@pytest.fixture
async def client(server: AgentServer) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(server.address, retry=QUICK) as connected:
        yield connected


async def drain(events: AsyncIterator[object]) -> list[object]:
    return [event async for event in events]


Call = Callable[[AsyncSageClient], Awaitable[object]]
# Method, call, and whether it may be sent again after a lost connection.
CALLS: list[tuple[str, Call, bool]] = [
    ("CreateAgent", lambda c: c.agents.create("scout"), True),
    ("GetAgent", lambda c: c.agents.get(), True),
    ("GetAgent", lambda c: c.agent("scout").get(), True),
    ("ListAgents", lambda c: drain(c.agents.list()), True),
    ("UpdateAgent", lambda c: c.agents.update(model=""), True),
    ("UpdateAgent", lambda c: c.agents.update("scout", max_steps=3, etag="e"), False),
    ("UpdateAgent", lambda c: c.agent().enable(), True),
    ("DeleteAgent", lambda c: c.agents.delete("scout"), False),
    ("FindAgents", lambda c: c.agents.find("compare three contracts"), True),
    ("PreviewContext", lambda c: c.agent().preview_context(input="hi"), True),
    ("ListTools", lambda c: drain(c.agent().tools()), True),
    ("ListAgentItems", lambda c: drain(c.agent().items()), True),
    ("ClearAgentConversation", lambda c: c.agent().clear(), True),
    ("ListOverlayChanges", lambda c: drain(c.agents.overlay_changes("scout")), True),
    ("MergeOverlay", lambda c: c.agents.merge_overlay("scout"), True),
    ("GetTurn", lambda c: c.turns.get(ID), True),
    ("ListTurns", lambda c: drain(c.turns.list()), True),
    ("CancelTurn", lambda c: c.turns.cancel(ID), True),
]


def test_every_method_of_the_service_has_its_call_here() -> None:
    contract = {method.name for method in pb.DESCRIPTOR.services_by_name["AgentService"].methods}
    streams = {"Chat", "AttachTurn", "WatchEvents"}

    assert contract - {name for name, _, _ in CALLS} == streams


@pytest.mark.parametrize(("method", "call", "again"), CALLS)
async def test_a_call_is_sent_again_as_it_was_and_only_where_that_does_no_harm(
    server: AgentServer, client: AsyncSageClient, method: str, call: Call, again: bool
) -> None:
    server.fail = [grpc.StatusCode.UNAVAILABLE]
    if again:
        await call(client)
    else:
        with pytest.raises(sage_client.Unavailable):
            await call(client)
        await call(client)

    first, second = server.seen
    assert type(first).__name__ == f"{method}Request"
    assert first == second
    if "request_id" in type(first).DESCRIPTOR.fields_by_name:
        assert UUID(first.request_id).version == 4


async def test_an_agent_is_created_with_all_that_is_said_about_it(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.script(pb.CreateAgentResponse(agent=agent_pb2.Agent(id=ID, name="scout")))

    created = await client.agents.create("scout", request_id=ID, **FULL)

    assert (created.id, created.name) == (ID, "scout")
    assert server.seen == [pb.CreateAgentRequest(name="scout", request_id=ID, **FULL_PB)]
    assert new_agent_to("scout", {}, request_id="") == pb.CreateAgentRequest(name="scout")


def test_an_update_names_what_is_given_and_nothing_else() -> None:
    everything = pb.UpdateAgentRequest(
        agent="scout", etag="e", update_mask=FieldMask(paths=list(FULL_PB)), **FULL_PB
    )

    assert agent_update_to("scout", FULL, etag="e") == everything
    for name, value in FULL.items():
        one: AgentSettings = {name: value}  # type: ignore[misc]
        expected = pb.UpdateAgentRequest(update_mask=FieldMask(paths=[name]), **{name: FULL_PB[name]})
        assert agent_update_to("", one, etag="") == expected
    assert set(FULL) == AgentSettings.__annotations__.keys()


def test_none_is_the_default_of_the_server() -> None:
    request = agent_update_to(
        "main",
        {"compaction": None, "max_turn_duration": None, "max_memory_writes": None, "allowed_tools": None},
        etag="",
    )

    assert request == pb.UpdateAgentRequest(
        agent="main",
        update_mask=FieldMask(
            paths=["compaction", "max_turn_duration", "max_memory_writes", "allowed_tools"]
        ),
    )


async def test_a_setting_that_does_not_exist_is_refused(server: AgentServer, client: AsyncSageClient) -> None:
    for call in (
        client.agents.create("scout", modle="x"),  # type: ignore[call-arg]
        client.agents.update(modle="x"),  # type: ignore[call-arg]
        client.agent().enable(modle="x"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="an agent has no setting modle"):
            await call
    with pytest.raises(TypeError, match="several texts are expected"):
        await client.agents.update(allowed_tools="archival_search")
    with pytest.raises(ValueError, match=r"MemoryMode\.UNKNOWN cannot be sent"):
        await client.agents.update(memory_mode=MemoryMode.UNKNOWN)

    assert server.seen == []


async def test_enabling_changes_what_is_given_as_well(server: AgentServer, client: AsyncSageClient) -> None:
    await client.agent().enable()
    await client.agent().enable(model="fake/one")

    assert server.seen == [
        pb.UpdateAgentRequest(agent="main", enabled=True, update_mask=FieldMask(paths=["enabled"])),
        pb.UpdateAgentRequest(
            agent="main", model="fake/one", enabled=True, update_mask=FieldMask(paths=["model", "enabled"])
        ),
    ]


async def test_lists_go_over_all_pages_with_their_conditions(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.script(
        pb.ListAgentsResponse(agents=[agent_pb2.Agent(name="a")], next_page_token="2"),
        pb.ListAgentsResponse(agents=[agent_pb2.Agent(name="b")]),
        pb.ListTurnsResponse(turns=[agent_pb2.Turn(id="t")]),
        pb.ListToolsResponse(tools=[agent_pb2.ToolInfo(name="done")]),
        pb.ListAgentItemsResponse(items=[item_pb2.Item(id="i")]),
    )

    assert [agent.name async for agent in client.agents.list(enabled_only=True, page_size=1)] == ["a", "b"]
    turns = client.turns.list(
        agent="scout",
        conversation_id=ID,
        statuses=[TurnStatus.QUEUED, TurnStatus.RUNNING],
        origins=[TurnOrigin.CHAT],
        after=MAY,
        before=JUNE,
        page_size=3,
    )
    assert [turn.id async for turn in turns] == ["t"]
    assert [tool.name async for tool in client.agent("scout").tools(page_size=4)] == ["done"]
    items = client.agent("scout").items(
        order=ItemOrder.NEWEST_FIRST, kinds=[ItemKind.USER], show_hidden=True, page_size=5
    )
    assert [item.id async for item in items] == ["i"]

    assert server.seen == [
        pb.ListAgentsRequest(page_size=1, enabled_only=True),
        pb.ListAgentsRequest(page_size=1, enabled_only=True, page_token="2"),
        pb.ListTurnsRequest(
            page_size=3,
            agent="scout",
            conversation_id=ID,
            statuses=[agent_pb2.TURN_STATUS_QUEUED, agent_pb2.TURN_STATUS_RUNNING],
            origins=[agent_pb2.TURN_ORIGIN_CHAT],
            created=memory_pb2.TimeRange(start_time=MAY_PB, end_time=JUNE_PB),
        ),
        pb.ListToolsRequest(page_size=4, agent="scout"),
        pb.ListAgentItemsRequest(
            agent="scout",
            page_size=5,
            order=item_pb2.ITEM_ORDER_NEWEST_FIRST,
            kinds=[item_pb2.ITEM_KIND_USER],
            show_hidden=True,
        ),
    ]


async def test_what_was_deleted_is_counted(server: AgentServer, client: AsyncSageClient) -> None:
    server.script(
        pb.DeleteAgentResponse(
            deleted_item_count=1, deleted_memory_count=2, deleted_block_count=3, memory_token="t"
        ),
        pb.ClearAgentConversationResponse(
            deleted_item_count=4, deleted_summary_count=5, deleted_memory_count=6, memory_token="u"
        ),
    )

    assert await client.agents.delete("scout", etag="e") == sage_client.DeletedAgent(1, 2, 3, "t")
    assert await client.agent("scout").clear() == sage_client.ClearedThread(4, 5, 6, "u")
    assert server.seen == [
        pb.DeleteAgentRequest(agent="scout", etag="e"),
        pb.ClearAgentConversationRequest(agent="scout"),
    ]


async def test_an_overlay_is_listed_and_merged(server: AgentServer, client: AsyncSageClient) -> None:
    server.script(
        pb.ListOverlayChangesResponse(changes=[agent_pb2.OverlayChange(id="a")], next_page_token="2"),
        pb.ListOverlayChangesResponse(changes=[agent_pb2.OverlayChange(id="b")]),
        pb.MergeOverlayResponse(merged_count=2, skipped_change_ids=[ID], skipped_count=1, memory_token="t"),
        pb.MergeOverlayResponse(),
    )

    changes = client.agents.overlay_changes("scout", conflicting_only=True, page_size=1)
    assert [change.id async for change in changes] == ["a", "b"]
    merged = await client.agents.merge_overlay(
        "scout", [ID], on_conflict=OverlayConflictPolicy.OVERWRITE, request_id=ID
    )
    assert merged == sage_client.MergedOverlay(2, (ID,), 1, "t")
    assert await client.agents.merge_overlay("scout", request_id=ID) == sage_client.MergedOverlay(
        0, (), 0, ""
    )
    with pytest.raises(TypeError, match="several texts are expected"):
        await client.agents.merge_overlay("scout", ID)

    assert server.seen == [
        pb.ListOverlayChangesRequest(agent="scout", conflicting_only=True, page_size=1),
        pb.ListOverlayChangesRequest(agent="scout", conflicting_only=True, page_size=1, page_token="2"),
        pb.MergeOverlayRequest(
            agent="scout",
            change_ids=[ID],
            on_conflict=pb.OVERLAY_CONFLICT_POLICY_OVERWRITE,
            request_id=ID,
        ),
        pb.MergeOverlayRequest(agent="scout", on_conflict=pb.OVERLAY_CONFLICT_POLICY_SKIP, request_id=ID),
    ]


async def test_agents_are_found_by_task(server: AgentServer, client: AsyncSageClient) -> None:
    match = agent_pb2.AgentMatch(agent=agent_pb2.Agent(name="scout"), score=0.5)
    server.script(pb.FindAgentsResponse(matches=[match]))

    (found,) = await client.agents.find("compare", top_k=3, min_score=0.0)

    assert (found.agent.name, found.score) == ("scout", 0.5)
    assert server.seen == [pb.FindAgentsRequest(task="compare", top_k=3, min_score=0.0)]


async def test_the_sync_client_does_the_same(server: AgentServer) -> None:
    server.fail = [grpc.StatusCode.UNAVAILABLE]
    server.script(
        pb.UpdateAgentResponse(agent=agent_pb2.Agent(name="main", enabled=True)),
        pb.ListToolsResponse(tools=[agent_pb2.ToolInfo(name="done")]),
        pb.GetTurnResponse(turn=agent_pb2.Turn(id=ID)),
    )

    def work() -> None:
        with sage_client.connect(server.address, retry=QUICK) as client:
            assert client.agent().enable(model="fake/one").enabled
            assert [tool.name for tool in client.agent().tools()] == ["done"]
            assert client.turns.get(ID).id == ID

    await asyncio.to_thread(work)

    assert server.seen[0] == server.seen[1]


@pytest.mark.parametrize("part", ["agents", "turns", "agent", "chat", "watch"])
async def test_both_clients_have_the_same_methods(part: str) -> None:
    def methods(client: Any) -> dict[str, list[str]]:
        made: dict[str, Callable[[], object]] = {
            "agents": lambda: client.agents,
            "turns": lambda: client.turns,
            "agent": client.agent,
            "chat": lambda: client.agent().chat("x"),
            "watch": client.watch,
        }
        found = inspect.getmembers(made[part](), inspect.ismethod)
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in found
            if not name.startswith("_")
        }

    async with sage_client.connect_async("127.0.0.1:1") as asynchronous:
        with sage_client.connect("127.0.0.1:1") as plain:
            assert methods(plain) == methods(asynchronous)
            assert methods(plain)
