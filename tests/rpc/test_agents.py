"""Agents and their settings through the real server, by its raw methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from google.protobuf.duration_pb2 import Duration

import sage_client
from sage.v1 import agent_pb2, usage_pb2
from sage.v1 import agent_service_pb2 as pb
from sage.v1 import conversation_service_pb2 as conversations_pb
from sage_client import AsyncSageClient
from sage_client.retry import Repeat
from sage_server.adapters.crypto import CachedKeyRing, KeyWrapping
from sage_server.adapters.postgres.agents import PostgresAgentStore
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.users import PostgresKeyStore
from sage_server.bootstrap import open_root_keys
from sage_server.domain.agents import MAX_AGENTS
from sage_server.domain.errors import Reason, SageError
from sage_server.engine.agent_vectors import AgentVectors
from support.agent_calls import Agents, rows, user_of
from support.postgres import TestPostgres
from support.provider import FakeProvider
from support.server import RunningServer, running_server, test_settings

SHARED = agent_pb2.MEMORY_MODE_SHARED
ISOLATED = agent_pb2.MEMORY_MODE_ISOLATED
OVERLAY = agent_pb2.MEMORY_MODE_OVERLAY
NOBODY = "0193e2a4-7b1c-7c3a-9e58-0123456789ab"


@pytest.fixture(scope="module")
async def shared(postgres: TestPostgres) -> AsyncIterator[RunningServer]:
    """One server for all: each test has a user of its own. The provider is never called."""
    async with (
        postgres.database() as dsn,
        running_server(dsn, llm_base_url="http://127.0.0.1:9/v1", llm_api_key="x") as running,
    ):
        yield running


@pytest.fixture
async def client(shared: RunningServer) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(shared.address, user=f"maria-{uuid4()}") as connected:
        yield connected


@pytest.fixture
def agents(client: AsyncSageClient) -> Agents:
    return Agents(client)


@asynccontextmanager
async def own_store(server: RunningServer) -> AsyncIterator[PostgresAgentStore]:
    """A store as in a replica that is told nothing: its keys stay as they were when it first read them."""
    database = await Database.open(server.dsn, PoolOptions(1, 4, 10, 10))
    try:
        wrapping = KeyWrapping(open_root_keys(test_settings(server.dsn)))
        keys = CachedKeyRing(PostgresKeyStore(database, server.clock), wrapping, 10)
        yield PostgresAgentStore(database, keys)
    finally:
        await database.close()


EVERYTHING: dict[str, Any] = {
    "description": "Finds and compares sources 🌱",
    "enabled": False,
    "memory_mode": ISOLATED,
    "model": "openai/gpt-x",
    "system_prompt": "Be brief.",
    "time_zone": "Europe/Berlin",
    "preferences": {"language": "German", "tone": ""},
    "max_context_tokens": 2_000,
    "compaction": agent_pb2.CompactionSettings(
        mode=agent_pb2.COMPACTION_MODE_MESSAGES,
        threshold=0.1,
        message_threshold=4,
        keep_newest=0,
        summary_words=20,
    ),
    "max_steps": 50,
    "max_turn_duration": Duration(seconds=86_400),
    "max_turn_tokens": 5,
    "max_memory_writes": 0,
    "allowed_tools": agent_pb2.ToolSelection(names=["done", "archival_search"]),
}


def settings_of(agent: agent_pb2.Agent) -> dict[str, Any]:
    return {
        name: dict(agent.preferences) if name == "preferences" else getattr(agent, name)
        for name in EVERYTHING
    }


def assert_defaults(agent: agent_pb2.Agent) -> None:
    assert (agent.description, agent.model, agent.system_prompt, agent.time_zone) == ("", "", "", "")
    assert (agent.enabled, agent.memory_mode, dict(agent.preferences)) == (True, SHARED, {})
    assert (agent.max_context_tokens, agent.max_steps) == (100_000, 10)
    rules = agent.compaction
    assert (rules.mode, rules.threshold) == (agent_pb2.COMPACTION_MODE_TOKENS, 0.8)
    assert (rules.message_threshold, rules.keep_newest, rules.summary_words) == (40, 12, 100)
    assert agent.max_turn_duration.ToTimedelta() == timedelta(minutes=10)
    assert (agent.max_turn_tokens, agent.max_memory_writes) == (1_000_000, 100)
    assert not agent.HasField("allowed_tools")
    assert not agent.HasField("last_turn_time")
    assert agent.message_count == 0


async def test_an_agent_is_read_as_it_was_created_by_name_and_by_id(agents: Agents) -> None:
    created = await agents.create("researcher", **EVERYTHING)
    assert created.name == "researcher"
    assert settings_of(created) == EVERYTHING
    assert created.create_time == created.update_time
    assert created.etag
    assert await agents.get("researcher") == created
    assert await agents.get(created.id) == created


async def test_what_is_left_out_has_its_default_and_limits_show_the_servers(agents: Agents) -> None:
    assert_defaults(await agents.create("plain"))


async def test_a_selection_without_a_name_is_no_tool_at_all(agents: Agents) -> None:
    mute = await agents.create("mute", allowed_tools=agent_pb2.ToolSelection())
    assert mute.HasField("allowed_tools")
    assert list(mute.allowed_tools.names) == []
    assert await agents.get("mute") == mute


async def test_a_name_is_taken_once_and_main_always(agents: Agents) -> None:
    await agents.create("scout")
    for name in ("scout", "main"):
        with pytest.raises(sage_client.AlreadyExists) as refused:
            await agents.create(name)
        assert (refused.value.reason, refused.value.metadata) == ("ALREADY_EXISTS", {"resource": "agent"})
    with pytest.raises(sage_client.NotFound):
        await agents.get("main")


@pytest.mark.parametrize(
    "name", ["", "Scout", "9lives", "_x", "-x", "a b", "a.b", "ä", "a" * 64, "scout\n", "a\0", NOBODY]
)
async def test_a_name_that_is_none_is_refused(agents: Agents, name: str) -> None:
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await agents.create(name)
    assert [violation.field for violation in refused.value.field_violations] == ["name"]


async def test_the_longest_name_is_taken(agents: Agents) -> None:
    longest = "a" + "-_9" * 20 + "zz"
    assert len(longest) == 63
    assert (await agents.create(longest)).name == longest


async def test_what_does_not_exist_is_not_found(agents: Agents) -> None:
    await agents.create("scout")
    for agent in ("nobody", NOBODY):
        for call in (
            agents.get(agent),
            agents.update(agent, description="x"),
            agents.update(agent, enabled=True),
            agents.delete(agent),
            agents.items(agent),
            agents.clear(agent),
        ):
            with pytest.raises(sage_client.NotFound) as refused:
                await call
            assert refused.value.metadata == {"resource": "agent"}
    for agent in ("", "main"):
        for call in (agents.get(agent), agents.items(agent), agents.clear(agent)):
            with pytest.raises(sage_client.NotFound):
                await call
    assert await agents.names() == ["scout"]


async def test_there_are_as_many_agents_as_the_limit_and_no_more(agents: Agents) -> None:
    for n in range(MAX_AGENTS):
        await agents.create(f"agent-{n}")
    for call in (agents.create("one-more"), agents.enable_main()):
        with pytest.raises(sage_client.FailedPrecondition) as refused:
            await call
        assert refused.value.reason == "LIMIT_REACHED"
        assert refused.value.metadata == {"resource": "agents", "limit": str(MAX_AGENTS)}
    await agents.delete("agent-7")
    await agents.create("one-more")
    assert len(await agents.all(page_size=30)) == MAX_AGENTS


async def test_agents_are_listed_by_name_page_by_page(agents: Agents) -> None:
    names = ["b", "a-2", "a_1", "main", "c", "a"]
    for name in names:
        if name == "main":
            await agents.enable_main()
        else:
            await agents.create(name, enabled=name != "c")
    for page_size in (0, 1, 2, 5, 6, 2**31 - 1):
        assert [agent.name for agent in await agents.all(page_size)] == sorted(names)
        enabled = await agents.all(page_size, enabled_only=True)
        assert [agent.name for agent in enabled] == sorted(set(names) - {"c"})


async def test_a_page_goes_on_where_the_last_one_ended_whatever_came_and_went(agents: Agents) -> None:
    for name in ("a", "c", "e"):
        await agents.create(name)
    request = pb.ListAgentsRequest(page_size=2)
    page = await agents.send("ListAgents", request)
    await agents.create("b")
    await agents.create("d")
    await agents.delete("c")
    request.page_token = page.next_page_token
    rest = await agents.send("ListAgents", request)
    assert [agent.name for agent in rest.agents] == ["d", "e"]
    request.enabled_only = True
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await agents.send("ListAgents", request)
    assert refused.value.reason == "INVALID_PAGE_TOKEN"


@pytest.mark.parametrize("name", EVERYTHING)
async def test_an_update_changes_what_the_mask_names_and_nothing_else(agents: Agents, name: str) -> None:
    created = await agents.create("scout")
    changed = await agents.update("scout", **{name: EVERYTHING[name]})
    assert settings_of(changed) == settings_of(created) | {name: EVERYTHING[name]}
    assert changed.etag != created.etag
    assert changed.update_time.ToDatetime() > created.update_time.ToDatetime()
    assert (changed.id, changed.name, changed.create_time) == (created.id, "scout", created.create_time)
    assert await agents.get("scout") == changed


async def test_what_a_mask_names_and_nobody_gives_goes_back_to_its_default(agents: Agents) -> None:
    await agents.create("scout", **EVERYTHING)
    assert_defaults(await agents.update("scout", defaults=list(EVERYTHING)))
    assert_defaults(await agents.get("scout"))


async def test_a_field_that_the_mask_does_not_name_does_not_count(agents: Agents) -> None:
    created = await agents.create("scout", description="old")
    request = pb.UpdateAgentRequest(agent="scout", description="new", model="nobody/x", time_zone="Nowhere")
    request.update_mask.paths.append("max_steps")
    changed = (await agents.send("UpdateAgent", request)).agent
    assert settings_of(changed) == settings_of(created)


@pytest.mark.parametrize("paths", [["name"], ["compaction.mode"], ["id", "enabled"], ["*"], []])
async def test_a_mask_names_settings(agents: Agents, paths: list[str]) -> None:
    await agents.create("scout")
    request = pb.UpdateAgentRequest(agent="scout")
    request.update_mask.paths.extend(paths)
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await agents.send("UpdateAgent", request)
    assert {violation.field for violation in refused.value.field_violations} == {"update_mask"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "time zone": ({"time_zone": "Mars/Olympus"}, "time_zone"),
    "no zone": ({"time_zone": "../etc/passwd"}, "time_zone"),
    "context": ({"max_context_tokens": 1_999}, "max_context_tokens"),
    "steps": ({"max_steps": 51}, "max_steps"),
    "duration": ({"max_turn_duration": Duration(nanos=1)}, "max_turn_duration"),
    "long": ({"max_turn_duration": Duration(seconds=86_401)}, "max_turn_duration"),
    "tokens": ({"max_turn_tokens": -1}, "max_turn_tokens"),
    "writes": ({"max_memory_writes": 1_001}, "max_memory_writes"),
    "mode": ({"memory_mode": 9}, "memory_mode"),
    "description": ({"description": "é" * 1_001}, "description"),
    "prompt": ({"system_prompt": "a\0"}, "system_prompt"),
    "preferences": ({"preferences": {str(n): "x" for n in range(33)}}, "preferences"),
    "threshold": ({"compaction": agent_pb2.CompactionSettings(threshold=1.1)}, "compaction.threshold"),
    "no number": (
        {"compaction": agent_pb2.CompactionSettings(threshold=float("nan"))},
        "compaction.threshold",
    ),
    "kept": (
        {
            "compaction": agent_pb2.CompactionSettings(
                mode=agent_pb2.COMPACTION_MODE_MESSAGES, message_threshold=12
            )
        },
        "compaction.keep_newest",
    ),
    "tools": ({"allowed_tools": agent_pb2.ToolSelection(names=["done", "done"])}, "allowed_tools.names"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_setting_that_cannot_be_is_refused_and_changes_nothing(agents: Agents, case: str) -> None:
    fields, field = BAD[case]
    before = await agents.create("scout")
    for call in (agents.create("other", **fields), agents.update("scout", **fields)):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await call
        assert {violation.field.partition("[")[0] for violation in refused.value.field_violations} == {field}
    assert await agents.all() == [before]


async def test_a_rule_for_messages_counts_only_in_that_mode(agents: Agents) -> None:
    rules = agent_pb2.CompactionSettings(message_threshold=4)
    assert (await agents.create("scout", compaction=rules)).compaction.keep_newest == 12


@pytest.mark.parametrize("model", ["acme/x", "openai", "gpt-4", "/x", "openai/", "What is this?"])
async def test_a_model_of_no_provider_is_unknown(agents: Agents, model: str) -> None:
    before = await agents.create("scout")
    for call in (
        agents.create("other", model=model),
        agents.update("scout", model=model),
        agents.enable_main(model=model),
    ):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await call
        assert refused.value.reason == "MODEL_UNKNOWN"
        assert refused.value.metadata == ({"model": model} if model == "acme/x" else {})
    assert await agents.all() == [before]


async def test_without_a_provider_every_model_is_unknown_but_a_model_of_before_stays(dsn: str) -> None:
    async with (
        running_server(dsn, llm_base_url="http://127.0.0.1:9/v1", llm_api_key="x") as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        once = str(uuid4())
        created = await Agents(client).create("scout", model="openai/gpt-x", request_id=once)
    async with (
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        agents = Agents(client)
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await agents.create("other", model="openai/gpt-x")
        assert refused.value.reason == "MODEL_UNKNOWN"
        assert await agents.create("scout", model="openai/gpt-x", request_id=once) == created
        assert (await agents.update("scout", description="still here")).model == "openai/gpt-x"
        assert (await agents.update("scout", defaults=["model"])).model == ""


async def test_a_tool_that_there_is_not_is_unknown(agents: Agents) -> None:
    before = await agents.create("scout")
    tools = agent_pb2.ToolSelection(names=["done", "web_serch", "fly"])
    for call in (
        agents.create("other", allowed_tools=tools),
        agents.update("scout", allowed_tools=tools),
        agents.enable_main(allowed_tools=tools),
    ):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await call
        assert (refused.value.reason, refused.value.metadata) == ("TOOL_UNKNOWN", {"tools": "fly,web_serch"})
    assert await agents.all() == [before]


async def test_a_stale_etag_changes_nothing(agents: Agents) -> None:
    first = await agents.create("scout")
    second = await agents.update("scout", etag=first.etag, description="two")
    for etag in (first.etag, "v9", second.etag.upper(), "x" * 64):
        for call in (agents.update("scout", etag=etag, description="three"), agents.delete("scout", etag)):
            with pytest.raises(sage_client.Aborted) as refused:
                await call
            assert (refused.value.reason, refused.value.metadata) == ("ETAG_MISMATCH", {"resource": "agent"})
    assert await agents.get("scout") == second
    await agents.delete("scout", second.etag)
    again = await agents.create("scout")
    with pytest.raises(sage_client.Aborted):
        await agents.update("scout", etag=first.etag, description="of the one before")
    assert await agents.get("scout") == again


async def test_main_is_not_there_until_it_is_enabled(agents: Agents) -> None:
    for fields in ({"description": "x"}, {"enabled": False}, {"enabled": False, "max_steps": 3}):
        with pytest.raises(sage_client.NotFound) as refused:
            await agents.update(**fields)
        assert refused.value.metadata == {"resource": "agent"}
    with pytest.raises(sage_client.NotFound):
        await agents.enable_main(etag="v1-000000000000")
    request = pb.UpdateAgentRequest(enabled=True)
    request.update_mask.paths.append("max_steps")
    with pytest.raises(sage_client.NotFound):
        await agents.send("UpdateAgent", request)
    assert await agents.all() == []


@pytest.mark.parametrize("name", ["", "main"])
async def test_enabling_main_creates_it_with_its_blocks_and_the_settings_given(
    agents: Agents, client: AsyncSageClient, name: str
) -> None:
    main = await agents.update(name, defaults=["enabled"], description="Mine", time_zone="Europe/Berlin")
    assert (main.name, main.enabled, main.memory_mode) == ("main", True, SHARED)
    assert (main.description, main.time_zone) == ("Mine", "Europe/Berlin")
    assert await agents.get() == await agents.get("main") == await agents.get(main.id) == main
    blocks = {block.label: block async for block in client.memory.blocks.list()}
    assert list(blocks) == ["persona", "human"]
    assert all(block.description and not block.agent_id for block in blocks.values())
    assert (bool(blocks["persona"].value), blocks["human"].value) == (True, "")
    (revision,) = [one async for one in client.memory.blocks.revisions("persona")]
    assert revision.actor.name == "SYSTEM"


async def test_enabling_main_again_is_an_update_and_brings_no_block_back(
    agents: Agents, client: AsyncSageClient
) -> None:
    first = await agents.enable_main()
    await client.memory.blocks.delete("persona")
    await client.memory.blocks.update("human", value="Anna")
    assert (await agents.update(enabled=False)).enabled is False
    assert (await agents.get()).enabled is False
    again = await agents.enable_main(description="back")
    assert (again.id, again.enabled, again.create_time) == (first.id, True, first.create_time)
    assert [block.value async for block in client.memory.blocks.list()] == ["Anna"]


async def test_a_block_that_the_user_has_is_left_as_it_is(agents: Agents, client: AsyncSageClient) -> None:
    await client.memory.blocks.create(" Human", value="Anna")
    await agents.enable_main()
    blocks = {block.label: block.value async for block in client.memory.blocks.list()}
    assert set(blocks) == {" Human", "persona"}
    assert blocks[" Human"] == "Anna"


async def test_main_is_not_created_without_room_for_its_blocks(
    agents: Agents, client: AsyncSageClient
) -> None:
    for n in range(99):
        await client.memory.blocks.create(f"block {n}")
    with pytest.raises(sage_client.FailedPrecondition) as refused:
        await agents.enable_main()
    assert refused.value.metadata["resource"] == "blocks"
    assert await agents.all() == []
    await client.memory.blocks.delete("block 0")
    await agents.enable_main()


async def test_main_keeps_its_memory_mode_and_cannot_be_deleted(agents: Agents) -> None:
    with pytest.raises(sage_client.NotFound):
        await agents.delete("main")
    with pytest.raises(sage_client.FailedPrecondition):
        await agents.enable_main(memory_mode=ISOLATED)
    assert await agents.all() == []
    main = await agents.enable_main(memory_mode=SHARED)
    for call in (
        agents.update(memory_mode=ISOLATED),
        agents.update("main", memory_mode=OVERLAY, description="x"),
        agents.delete("main"),
        agents.delete(main.id, main.etag),
    ):
        with pytest.raises(sage_client.FailedPrecondition) as refused:
            await call
        assert (refused.value.reason, refused.value.metadata) == ("AGENT_PROTECTED", {"agent": "main"})
    assert await agents.get() == main
    assert (await agents.update(memory_mode=SHARED, description="same")).memory_mode == SHARED


async def test_of_ten_first_enables_one_creates_and_the_others_update(shared: RunningServer) -> None:
    user = f"maria-{uuid4()}"
    async with (
        running_server(shared.dsn) as other,
        sage_client.connect_async(shared.address, user=user) as here,
        sage_client.connect_async(other.address, user=user) as there,
    ):
        answers = await asyncio.gather(
            *(Agents(c).enable_main(max_steps=n + 1) for n in range(5) for c in (here, there))
        )
        assert len({agent.id for agent in answers}) == 1
        assert len({agent.etag for agent in answers}) == 10
        (main,) = await Agents(here).all()
        assert main in answers
        assert len([block async for block in here.memory.blocks.list()]) == 2


async def test_of_ten_creations_of_one_name_one_wins(shared: RunningServer) -> None:
    user = f"maria-{uuid4()}"
    async with (
        running_server(shared.dsn) as other,
        sage_client.connect_async(shared.address, user=user) as here,
        sage_client.connect_async(other.address, user=user) as there,
    ):
        answers = await asyncio.gather(
            *(Agents(c).create("scout") for _ in range(5) for c in (here, there)), return_exceptions=True
        )
        won = [answer for answer in answers if isinstance(answer, agent_pb2.Agent)]
        assert len(won) == 1
        assert sum(isinstance(answer, sage_client.AlreadyExists) for answer in answers) == 9
        assert await Agents(there).all() == won


async def test_concurrent_updates_lose_nothing_and_of_one_etag_one_wins(agents: Agents) -> None:
    first = await agents.create("scout")
    await asyncio.gather(
        agents.update("scout", description="found"),
        agents.update("scout", system_prompt="Be brief."),
        agents.update("scout", max_steps=3),
        agents.update("scout", enabled=False),
    )
    current = await agents.get("scout")
    assert (current.description, current.system_prompt) == ("found", "Be brief.")
    assert (current.max_steps, current.enabled) == (3, False)
    assert current.etag == f"v5-{first.id.replace('-', '')[-12:]}"
    answers = await asyncio.gather(
        *(agents.update("scout", etag=current.etag, max_steps=n) for n in range(4, 10)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, agent_pb2.Agent) for answer in answers) == 1
    assert sum(isinstance(answer, sage_client.Aborted) for answer in answers) == 5


async def test_a_request_id_creates_once_however_often_and_wherever_it_is_sent(
    shared: RunningServer,
) -> None:
    user = f"maria-{uuid4()}"
    async with (
        running_server(shared.dsn, llm_base_url="http://127.0.0.1:9/v1", llm_api_key="x") as other,
        sage_client.connect_async(shared.address, user=user) as here,
        sage_client.connect_async(other.address, user=user) as there,
    ):
        fields = EVERYTHING | {"request_id": str(uuid4())}
        created = await asyncio.gather(
            *(Agents(c).create("scout", **fields) for c in (here, there, here, there, here))
        )
        assert all(agent == created[0] for agent in created)
        await Agents(here).update("scout", description="another")
        assert await Agents(there).create("scout", **fields) == created[0]
        await Agents(here).delete("scout")
        assert await Agents(there).create("scout", **fields) == created[0]
        assert await Agents(here).all() == []
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await Agents(here).create("scout", **fields | {"description": "another"})
        assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_a_refused_creation_leaves_its_request_id_free(agents: Agents) -> None:
    request_id = str(uuid4())
    await agents.create("scout")
    with pytest.raises(sage_client.AlreadyExists):
        await agents.create("scout", request_id=request_id)
    await agents.delete("scout")
    assert (await agents.create("scout", request_id=request_id)).name == "scout"


async def test_agents_outlive_a_restart(dsn: str) -> None:
    settings = {"llm_base_url": "http://127.0.0.1:9/v1", "llm_api_key": "x"}
    async with (
        running_server(dsn, **settings) as first,
        sage_client.connect_async(first.address, user="maria") as client,
    ):
        await Agents(client).enable_main()
        await Agents(client).create("scout", **EVERYTHING)
        before = await Agents(client).all()
    async with (
        running_server(dsn, **settings) as again,
        sage_client.connect_async(again.address, user="maria") as client,
    ):
        assert await Agents(client).all() == before
        assert await Agents(client).get("scout") == before[1]


async def test_agents_are_found_before_during_and_after_a_rotation(
    agents: Agents, shared: RunningServer, client: AsyncSageClient
) -> None:
    await agents.create("scout", description="one")
    await agents.create("guide", description="two")
    await agents.enable_main()
    user = client.options.user or ""
    await client.admin.rotate_user_key(user)
    # Under way: the rows are still sealed with the older key.
    assert (await agents.get("scout")).description == "one"
    with pytest.raises(sage_client.AlreadyExists):
        await agents.create("scout")
    await agents.update("guide", description="three")
    await agents.create("new")
    assert await shared.application.rotation.reseal_pending() == 0
    assert (await client.admin.get_user(user)).key_rotation_pending is False
    assert await agents.names() == ["guide", "main", "new", "scout"]
    for name in ("scout", "guide", "new"):
        with pytest.raises(sage_client.AlreadyExists):
            await agents.create(name)
    assert (await agents.get("guide")).description == "three"
    assert (await agents.enable_main(description="Mine")).description == "Mine"


@pytest.mark.parametrize("finished", [False, True])
async def test_a_replica_that_missed_a_rotation_finds_the_agent_and_makes_no_second_one(
    agents: Agents, shared: RunningServer, client: AsyncSageClient, *, finished: bool
) -> None:
    created = await agents.create("scout")
    user_id = await user_of(client)
    async with own_store(shared) as reader, own_store(shared) as writer, own_store(shared) as finder:
        known = await reader.get(user_id, "scout")
        await writer.get(user_id, "scout")
        await finder.resolve(user_id, "scout")
        await client.admin.rotate_user_key(client.options.user or "")
        if finished:
            assert await shared.application.rotation.reseal_pending() == 0
        else:
            await agents.update("scout", description="sealed with the newer key")
        with pytest.raises(SageError) as refused:
            await writer.create(user_id, known, (), None)
        assert refused.value.reason is Reason.ALREADY_EXISTS
        assert await finder.resolve(user_id, "scout") == UUID(created.id)
        assert (await reader.get(user_id, "scout")).id == UUID(created.id)
        assert [agent.name for agent in await reader.list(user_id)] == ["scout"]


async def test_an_agent_that_changed_since_it_was_read_is_not_deleted(
    agents: Agents, shared: RunningServer, client: AsyncSageClient
) -> None:
    await agents.create("scout")
    user_id = await user_of(client)
    async with own_store(shared) as store:
        read = await store.get(user_id, "scout")
        changed = await agents.update("scout", description="changed")
        assert await store.delete(user_id, read, shared.clock.now()) is None
        assert await agents.all() == [changed]
        assert await store.delete(user_id, await store.get(user_id, "scout"), shared.clock.now())
    assert await agents.all() == []


async def test_erasing_a_user_leaves_no_agent(dsn: str) -> None:
    async with (
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        agents = Agents(client)
        await agents.enable_main()
        await agents.create("scout")
        await client.admin.erase_user("maria")
        for table in ("agents", "conversations", "memory_blocks", "turns", "events"):
            assert await rows(server, f"SELECT 1 FROM {table}") == []
        assert await agents.all() == []
        assert (await agents.enable_main()).name == "main"


async def test_the_agents_that_fit_a_task_best_come_first(agents: Agents, client: AsyncSageClient) -> None:
    assert await agents.find("cook dinner") == []
    await agents.create("cook", description="Cooks meals and writes recipes for dinner")
    await agents.create("lawyer", description="Reads contracts and explains the law")
    await agents.create("off", description="Cooks dinner", enabled=False)
    await agents.create("blank")
    await agents.create("space", description="  \n")
    await agents.enable_main(description="Talks about everything")
    found = await agents.find("which recipe shall I cook for dinner?")
    assert {name for name, _ in found} == {"cook", "lawyer", "main"}
    assert found[0][0] == "cook"
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert all(-1 <= score <= 1 for _, score in found)
    assert (await agents.find("compare three rental contracts", top_k=1))[0][0] == "lawyer"
    assert [
        score for _, score in await agents.find("Cooks meals and writes recipes for dinner", top_k=1)
    ] == [pytest.approx(1, abs=1e-5)]
    best = found[0][1]
    assert await agents.find("which recipe shall I cook for dinner?", min_score=best - 1e-6) == found[:1]
    assert await agents.find("which recipe shall I cook for dinner?", min_score=1.0) == []
    usage = await client.transport.unary(
        client.stubs.conversations.GetUsage, conversations_pb.GetUsageRequest(), repeat=Repeat.IF_REFUSED
    )
    (embedding,) = usage.records
    assert (embedding.purpose, embedding.calls) == (usage_pb2.USAGE_PURPOSE_EMBEDDING, 5)


async def test_a_provider_is_asked_for_a_description_once_until_its_user_is_erased(dsn: str) -> None:
    async with (
        FakeProvider.running() as provider,
        running_server(
            dsn, embedding="openai", embedding_base_url=provider.url, embedding_dimensions=provider.dimensions
        ) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        agents = Agents(client)

        async def embedded(task: str) -> list[str]:
            before = len(provider.requests)
            assert len(await agents.find(task)) == 2
            return [text for request in provider.requests[before:] for text in request.body["input"]]

        await agents.create("cook", description="Cooks dinner")
        await agents.create("lawyer", description="Reads contracts")
        assert sorted(await embedded("one")) == ["Cooks dinner", "Reads contracts", "one"]
        assert await embedded("two") == ["two"]
        await agents.update("cook", description="Bakes bread")
        assert sorted(await embedded("three")) == ["Bakes bread", "three"]
        (vectors,) = (
            cache for cache in server.application.replicas._caches._members if isinstance(cache, AgentVectors)
        )
        assert len(vectors._known) == 3
        await client.admin.erase_user("maria")
        assert len(vectors._known) == 0


async def test_no_more_agents_are_found_than_asked_for(agents: Agents) -> None:
    for n in range(8):
        await agents.create(f"agent-{n}", description="Cooks dinner")
    assert [name for name, _ in await agents.find("dinner")] == [f"agent-{n}" for n in range(5)]
    assert len(await agents.find("dinner", top_k=50)) == 8
    for fields in ({"top_k": 51}, {"top_k": -1}, {"min_score": float("nan")}, {"min_score": 1.1}):
        with pytest.raises(sage_client.InvalidArgument):
            await agents.find("dinner", **fields)
    for task in ("", "x" * 10_001, "a\0"):
        with pytest.raises(sage_client.InvalidArgument):
            await agents.find(task)
