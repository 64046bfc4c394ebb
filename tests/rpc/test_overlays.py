"""What an agent of OVERLAY writes on top of the user's memory, and how it becomes the user's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

import sage_client
from sage_client import (
    Block,
    BlockActor,
    BlockRevision,
    MemoryMode,
    MemorySource,
    MergedOverlay,
    NewMemory,
    OverlayChange,
    OverlayChangeKind,
    OverlayConflictPolicy,
    TurnDone,
)
from sage_server.adapters.crypto import CachedKeyRing, KeyWrapping
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.overlays import PostgresOverlayStore
from sage_server.adapters.postgres.users import PostgresKeyStore
from sage_server.bootstrap import open_root_keys
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.overlays import ConflictPolicy
from support.agent_calls import user_of
from support.agents import Stage, answer, heard, model_settings, only
from support.memory import found, indexed, listed, results
from support.postgres import TestPostgres
from support.provider import FakeProvider, chat_reply
from support.server import RunningServer, running_server, test_settings

INSERTED = OverlayChangeKind.MEMORY_INSERTED
CREATED = OverlayChangeKind.BLOCK_CREATED
UPDATED = OverlayChangeKind.BLOCK_UPDATED
SKIP, OVERWRITE, FAIL = OverlayConflictPolicy
BEANS = ("archival_insert", {"text": "Beans are sown in May", "tags": ["garden"]})
MARIA = ("memory_append", {"label": "human", "text": "Her name is Maria."})


@dataclass(frozen=True)
class Served:
    """A server and the provider that it asks."""

    server: RunningServer
    provider: FakeProvider


@pytest.fixture(scope="module")
async def served(postgres: TestPostgres) -> AsyncIterator[Served]:
    """One server for all: each test has a user of its own."""
    async with (
        postgres.database() as dsn,
        FakeProvider.running() as provider,
        running_server(dsn, **model_settings(provider)) as server,
    ):
        yield Served(server, provider)


@pytest.fixture
async def s(served: Served) -> AsyncIterator[Stage]:
    """A user with a main agent, and so with the blocks `persona` and `human`, and with the agent `scout`."""
    name = f"maria-{uuid4()}"
    async with sage_client.connect_async(served.server.address, user=name) as client:
        await client.agent("main").enable()
        await client.agents.create("scout", memory_mode=MemoryMode.OVERLAY)
        yield Stage(served.server, served.provider, client)


async def changes(s: Stage, **options: Any) -> list[OverlayChange]:
    return [change async for change in s.client.agents.overlay_changes("scout", **options)]


async def kinds(s: Stage, **options: Any) -> list[tuple[OverlayChangeKind, bool]]:
    return [(change.kind, change.conflicting) for change in await changes(s, **options)]


async def own_texts(s: Stage) -> list[str]:
    """What a search finds of what the scout keeps. What was said in its thread is its own anyway."""
    return await found(s.client, "beans", agent="scout", sources=[MemorySource.ARCHIVAL])


async def revisions(s: Stage, label: str) -> list[BlockRevision]:
    return [one async for one in s.client.memory.blocks.revisions(label)]


async def worked(s: Stage, *calls: tuple[str, dict[str, Any]]) -> str:
    """A turn of the scout that calls these tools, one a step; its id."""
    steps = [answer(calls=[call]) for call in calls]
    events = await heard(s.chat("The garden, please.", *steps, answer("Well."), agent="scout"))
    assert len(only(events, TurnDone)) == 1
    return events[0].turn_id


async def test_what_a_turn_writes_is_listed_the_newest_first_and_the_users_memory_stays_as_it_was(
    s: Stage,
) -> None:
    turn = await worked(s, BEANS, MARIA, ("memory_append", {"label": "human", "text": "She has a garden."}))
    await indexed(s.client)
    block, memory = await changes(s)
    assert (block.kind, block.conflicting, block.turn_id) == (UPDATED, False, turn)
    assert block.block is not None
    assert (block.block.label, block.block.value) == ("human", "Her name is Maria.\nShe has a garden.")
    assert (block.block.id, block.block.update_time, block.memory) == (block.id, block.create_time, None)
    assert (memory.kind, memory.conflicting, memory.turn_id) == (INSERTED, False, turn)
    assert memory.memory is not None
    assert (memory.memory.text, memory.memory.tags) == ("Beans are sown in May", ("garden",))
    assert (memory.memory.id, memory.memory.update_time, memory.block) == (
        memory.id,
        memory.create_time,
        None,
    )
    assert block.create_time > memory.create_time
    assert (await s.client.memory.blocks.get("human")).value == ""
    own = await s.client.agents.get("scout")
    assert {one.agent_id for one in await listed(s.client)} == {own.id}


async def test_what_callers_put_into_the_agents_own_memory_is_listed_too(s: Stage) -> None:
    blocks, memory = s.client.memory.blocks, s.client.memory
    await blocks.create("plan", agent="scout", value="Sow beans")
    await blocks.create("HUMAN ", agent="scout", value="Somebody")
    kept = (await memory.insert("Beans need water", agent="scout")).memory
    await memory.documents.add(b"A diary of the garden", agent="scout")
    await memory.insert("Beans are the user's")
    found = await changes(s)
    assert [(one.kind, one.conflicting, one.turn_id) for one in found] == [
        (INSERTED, False, ""),
        (UPDATED, True, ""),
        (CREATED, False, ""),
    ]
    assert found[0].memory == kept
    assert [one.block.value for one in found[1:] if one.block] == ["Somebody", "Sow beans"]
    assert await changes(s, conflicting_only=True) == [found[1]]


async def test_pages_hold_all_changes_once_in_the_order_of_when_they_were_last_made(s: Stage) -> None:
    memory = s.client.memory
    longest_ago = datetime(2001, 1, 1, tzinfo=UTC)
    for n in range(3):
        new = NewMemory(f"one {n}", agent="scout", create_time=longest_ago)
        await memory.insert_many([new, NewMemory(f"two {n}", agent="scout")])
        await memory.blocks.create(f"plan {n}", agent="scout")
    oldest = next(one for one in await listed(s.client) if one.text == "one 0")
    await memory.update(oldest.id, tags=["again"])
    await memory.blocks.update("plan 0", agent="scout", value="again")
    everything = await changes(s)
    assert len(everything) == 9
    assert [one.create_time for one in everything] == sorted(
        (one.create_time for one in everything), reverse=True
    )
    assert [one.block.label for one in everything[:1] if one.block] == ["plan 0"]
    assert everything[1].id == oldest.id
    for size in (1, 2, 4, 9):
        assert await changes(s, page_size=size) == everything
    page = await s.client.agents.overlay_changes_page("scout", page_size=4)
    await s.client.agents.create("guide", memory_mode=MemoryMode.OVERLAY)
    for call in (
        s.client.agents.overlay_changes_page("scout", page_token=page.next_page_token, conflicting_only=True),
        s.client.agents.overlay_changes_page("guide", page_token=page.next_page_token),
    ):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await call
        assert refused.value.reason == "INVALID_PAGE_TOKEN"


async def test_merged_changes_are_the_users_and_leave_the_overlay(s: Stage) -> None:
    turn = await worked(s, BEANS, MARIA)
    scout = await s.client.agents.get("scout")
    await s.client.memory.blocks.create("plan", agent="scout", value="Sow beans")
    (before,) = await results(s.client, "beans", sources=[MemorySource.ARCHIVAL])
    merged = await s.client.agents.merge_overlay("scout")
    assert (merged.merged_count, merged.skipped_count, merged.skipped_change_ids) == (3, 0, ())
    assert await changes(s) == []
    (after,) = await results(s.client, "beans", sources=[MemorySource.ARCHIVAL])
    assert (before.memory.agent_id, after.memory.agent_id) == (scout.id, "")
    assert after.memory.id == before.memory.id
    assert after.memory == await s.client.memory.get(before.memory.id)
    assert after.memory.etag != before.memory.etag
    assert await own_texts(s) == []
    human, plan = await s.client.memory.blocks.get("human"), await s.client.memory.blocks.get("plan")
    assert (human.value, human.agent_id, human.revision) == ("Her name is Maria.", "", 2)
    assert (plan.value, plan.agent_id, plan.revision) == ("Sow beans", "", 2)
    newest = (await revisions(s, "human"))[0]
    assert (newest.actor, newest.agent_id, newest.turn_id) == (BlockActor.AGENT, scout.id, turn)
    assert [one.actor for one in await revisions(s, "plan")] == [BlockActor.USER, BlockActor.USER]
    assert {block.agent_id async for block in s.client.memory.blocks.list(agent="scout")} == {""}
    changed = await s.client.agents.update("scout", memory_mode=MemoryMode.SHARED)
    assert changed.memory_mode is MemoryMode.SHARED


async def test_other_agents_find_what_was_merged_and_not_before(s: Stage) -> None:
    await worked(s, BEANS)
    search = ("archival_search", {"query": "beans"})
    (nothing,) = await s.called(search)
    await s.client.agents.merge_overlay("scout")
    (something,) = await s.called(search)
    assert nothing.output == "Nothing was found."
    assert "Beans are sown in May" in something.output


async def test_a_search_as_fresh_as_the_token_sees_the_merge_on_another_replica(s: Stage) -> None:
    await s.client.memory.insert("Beans need water", agent="scout")
    async with (
        running_server(s.server.dsn) as replica,
        sage_client.connect_async(replica.address, user=s.client.options.user) as elsewhere,
    ):
        assert await found(elsewhere, "beans", agent="scout") == ["Beans need water"]
        token = (await s.client.agents.merge_overlay("scout")).memory_token
        fresh = await results(elsewhere, "beans", at_least_as_fresh=token)
        assert [one.memory.agent_id for one in fresh] == [""]
        assert await found(elsewhere, "beans", agent="scout", at_least_as_fresh=token) == []


async def test_nothing_to_merge_is_no_change(s: Stage) -> None:
    await s.client.memory.insert("Beans are the user's")
    for _ in range(2):
        merged = await s.client.agents.merge_overlay("scout")
        assert (merged.merged_count, merged.skipped_count) == (0, 0)
        assert await found(s.client, "beans", at_least_as_fresh=merged.memory_token)


async def conflict(s: Stage, under: str) -> Block:
    """The scout's version of `human`, under which the user's has changed in some way; and a memory."""
    blocks = s.client.memory.blocks
    if under != "unseen":
        await worked(s, BEANS, MARIA)
    else:
        await blocks.create("human", agent="scout", value="Her name is Maria.")
        await worked(s, BEANS)
    if under == "changed":
        await blocks.update("human", value="Anna", char_limit=10)
    if under in ("deleted", "replaced"):
        await blocks.delete("human")
    if under == "replaced":
        await blocks.create("human", value="Anna")
    return await blocks.get("human", agent="scout")


UNDER = pytest.mark.parametrize("under", ["changed", "deleted", "replaced", "unseen"])


async def shared_value(s: Stage) -> str | None:
    try:
        return (await s.client.memory.blocks.get("human")).value
    except sage_client.NotFound:
        return None


@UNDER
async def test_a_conflict_stays_in_the_overlay_and_the_rest_is_merged(s: Stage, under: str) -> None:
    own = await conflict(s, under)
    before = await shared_value(s)
    assert sorted(await kinds(s)) == [(UPDATED, True), (INSERTED, False)]
    assert await kinds(s, conflicting_only=True) == [(UPDATED, True)]
    for count in (1, 0):
        merged = await s.client.agents.merge_overlay("scout")
        assert (merged.merged_count, merged.skipped_count) == (count, 1)
        assert merged.skipped_change_ids == (own.id,)
    assert await shared_value(s) == before
    assert await s.client.memory.blocks.get("human", agent="scout") == own
    assert await own_texts(s) == []


@UNDER
async def test_a_conflict_can_forbid_the_whole_merge(s: Stage, under: str) -> None:
    own = await conflict(s, under)
    before, listed_before = await shared_value(s), await changes(s)
    request_id = str(uuid4())
    with pytest.raises(sage_client.Aborted) as refused:
        await s.client.agents.merge_overlay("scout", on_conflict=FAIL, request_id=request_id)
    assert (refused.value.reason, refused.value.metadata) == ("OVERLAY_CONFLICT", {"conflicts": "1"})
    assert (await shared_value(s), await changes(s)) == (before, listed_before)
    assert await own_texts(s) == ["Beans are sown in May"]
    others = [one.id for one in listed_before if one.id != own.id]
    merged = await s.client.agents.merge_overlay("scout", others, on_conflict=FAIL)
    assert merged.merged_count == 1
    await s.client.memory.blocks.delete("human", agent="scout")
    again = await s.client.agents.merge_overlay("scout", on_conflict=FAIL, request_id=request_id)
    assert again.merged_count == 0


@UNDER
async def test_a_conflict_can_be_won_by_the_overlay(s: Stage, under: str) -> None:
    own = await conflict(s, under)
    merged = await s.client.agents.merge_overlay("scout", on_conflict=OVERWRITE)
    assert (merged.merged_count, merged.skipped_count) == (2, 0)
    shared = await s.client.memory.blocks.get("human")
    assert (shared.value, shared.char_limit, shared.agent_id) == (own.value, own.char_limit, "")
    assert await changes(s) == []
    history = await revisions(s, "human")
    assert [one.revision for one in history] == list(range(len(history), 0, -1))
    await worked(s, ("memory_append", {"label": "human", "text": "Again."}))
    assert await kinds(s) == [(UPDATED, False)]


async def test_a_version_that_says_the_same_makes_no_revision(s: Stage) -> None:
    await worked(s, MARIA, ("memory_replace", {"label": "human", "old": "Her name is Maria.", "new": ""}))
    assert await kinds(s) == [(UPDATED, False)]
    assert (await s.client.agents.merge_overlay("scout")).merged_count == 1
    assert (await s.client.memory.blocks.get("human")).revision == 1
    assert await changes(s) == []


async def test_only_the_changes_that_are_named_are_merged_and_all_must_be_there(s: Stage) -> None:
    agents, memory = s.client.agents, s.client.memory
    await worked(s, BEANS, MARIA)
    await indexed(s.client)
    await agents.create("guide", memory_mode=MemoryMode.OVERLAY)
    theirs = (await memory.insert("Beans of the guide", agent="guide")).memory
    users = (await memory.insert("Beans of the user")).memory
    shared = await memory.blocks.get("human")
    said = [one for one in await listed(s.client) if one.source is MemorySource.MESSAGE]
    block, kept = await changes(s)
    for missing in (str(uuid4()), theirs.id, users.id, shared.id, said[0].id):
        with pytest.raises(sage_client.NotFound) as refused:
            await agents.merge_overlay("scout", [block.id, missing, kept.id])
        assert refused.value.metadata == {"resource": "change"}
        assert await changes(s) == [block, kept]
    assert (await agents.merge_overlay("scout", [kept.id, kept.id])).merged_count == 1
    assert await changes(s) == [block]
    assert (await memory.get(kept.id)).agent_id == ""
    assert (await memory.blocks.get("human")).value == ""
    assert (await agents.merge_overlay("scout", [block.id])).merged_count == 1
    assert (await memory.blocks.get("human")).value == "Her name is Maria."
    assert (await memory.get(theirs.id)).agent_id != ""


async def test_a_repeat_gets_the_first_answer_whatever_has_become_of_changes_and_agent(s: Stage) -> None:
    agents, memory, mine = s.client.agents, s.client.memory, str(uuid4())
    own = await conflict(s, "changed")
    ids = [one.id for one in await changes(s)]

    async def merge() -> MergedOverlay:
        return await agents.merge_overlay("scout", ids, request_id=mine)

    answers = await asyncio.gather(*(merge() for _ in range(5)))
    await memory.insert("Beans need water", agent="scout")
    answers.append(await merge())
    await agents.delete("scout")
    answers.append(await merge())
    for one in answers:
        assert (one.merged_count, one.skipped_change_ids, one.skipped_count) == (1, (own.id,), 1)
        assert await found(s.client, "beans", at_least_as_fresh=one.memory_token)
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await agents.merge_overlay("scout", request_id=mine)
    assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_only_an_overlay_can_be_listed_and_merged(s: Stage) -> None:
    agents = s.client.agents
    await agents.create("hermit", memory_mode=MemoryMode.ISOLATED)
    for agent, mode in (("hermit", "ISOLATED"), ("main", "SHARED")):
        for call in (agents.overlay_changes_page(agent), agents.merge_overlay(agent)):
            with pytest.raises(sage_client.FailedPrecondition) as refused:
                await call
            assert (refused.value.reason, refused.value.metadata) == (
                "AGENT_NOT_OVERLAY",
                {"memory_mode": mode},
            )
    for call in (agents.overlay_changes_page("nobody"), agents.merge_overlay(str(uuid4()))):
        with pytest.raises(sage_client.NotFound) as missing:
            await call
        assert missing.value.metadata == {"resource": "agent"}


async def test_what_was_said_and_documents_are_no_changes_and_do_not_keep_an_agent_in_overlay(
    s: Stage,
) -> None:
    await worked(s)
    await indexed(s.client)
    await s.client.memory.documents.add(b"A diary of the garden", agent="scout")
    scout = await s.client.agents.get("scout")
    assert {one.agent_id for one in await listed(s.client)} == {scout.id}
    assert await changes(s) == []
    changed = await s.client.agents.update("scout", memory_mode=MemoryMode.SHARED)
    assert changed.memory_mode is MemoryMode.SHARED


async def test_no_change_of_the_users_block_is_lost_to_a_merge_at_the_same_time(s: Stage) -> None:
    blocks = s.client.memory.blocks
    for n in range(8):
        await worked(s, ("memory_append", {"label": "human", "text": f"scout {n}"}))
        _, merged = await asyncio.gather(
            blocks.update("human", value=f"user {n}"),
            s.client.agents.merge_overlay("scout"),
        )
        values = [one.value for one in await revisions(s, "human")]
        assert any(value == f"user {n}" for value in values)
        if merged.merged_count:
            # The merge was first, and the update knew of it.
            assert values[0] == f"user {n}"
            assert values[1].endswith(f"scout {n}")
        else:
            assert not any(value.endswith(f"scout {n}") for value in values)
            await blocks.delete("human", agent="scout")


@asynccontextmanager
async def thinking(s: Stage, call: tuple[str, dict[str, Any]]) -> AsyncIterator[None]:
    """A turn of the scout whose model answers with a call when the block ends."""
    hold = asyncio.Event()
    s.provider.asked.clear()
    s.provider.script_chat(
        chat_reply(answer(calls=[call]), hold=hold),
        chat_reply(answer("Well.")),
    )
    turn = asyncio.create_task(heard(s.client.agent("scout").chat("The garden, please.")))
    await s.provider.asked.wait()
    yield
    hold.set()
    assert len(only(await turn, TurnDone)) == 1


@pytest.mark.parametrize("label", ["plan", "human"])
async def test_a_turn_during_a_merge_goes_on_in_the_overlay(s: Stage, label: str) -> None:
    """Also when the block that it was about to change is the user's now."""
    own = await s.client.memory.blocks.create(label, agent="scout", value="Sow beans")
    async with thinking(s, ("memory_append", {"label": label, "text": "Water them."})):
        await s.client.agents.merge_overlay("scout", [own.id], on_conflict=OVERWRITE)
    assert (await s.client.memory.blocks.get(label)).value == "Sow beans"
    (change,) = await changes(s)
    assert change.block is not None
    assert (change.kind, change.conflicting) == (UPDATED, False)
    assert change.block.value == "Sow beans\nWater them."


async def test_a_version_made_while_the_users_block_changed_is_a_conflict(s: Stage) -> None:
    async with thinking(s, MARIA):
        await s.client.memory.blocks.update("human", value="Anna")
    # The step knew only the block of before.
    assert await kinds(s) == [(UPDATED, True)]


async def until_waiting(connection: asyncpg.Connection, count: int) -> None:
    """Until so many others wait for what this connection has locked."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
    async with asyncio.timeout(30):
        # Postgres tells nobody of it.
        while await connection.fetchval(waits + " AND datname = current_database()") < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_change_of_a_memory_at_the_same_time_does_not_make_it_the_agents_again(s: Stage) -> None:
    """Not even in the index: whoever changes it has read it as the agent's."""
    memory = (await s.client.memory.insert("Beans need water", agent="scout")).memory
    assert await own_texts(s) == ["Beans need water"]
    connection = await asyncpg.connect(s.server.dsn)
    try:
        async with connection.transaction():
            await connection.execute(
                "SELECT FROM heads WHERE user_id = $1 FOR UPDATE", await user_of(s.client)
            )
            merging = asyncio.create_task(s.client.agents.merge_overlay("scout"))
            await until_waiting(connection, 1)
            changing = asyncio.create_task(s.client.memory.update(memory.id, text="Beans need sun"))
            await until_waiting(connection, 2)
    finally:
        await connection.close()
    assert (await merging).merged_count == 1
    assert (await changing).memory.agent_id == ""
    (hit,) = await results(s.client, "beans")
    assert (hit.memory.text, hit.memory.agent_id) == ("Beans need sun", "")
    assert await own_texts(s) == []


@asynccontextmanager
async def process_of_its_own(s: Stage) -> AsyncIterator[tuple[PostgresOverlayStore, CachedKeyRing]]:
    """A store that is told nothing of what the server does."""
    database = await Database.open(s.server.dsn, PoolOptions(1, 4, 10, 10))
    try:
        wrapping = KeyWrapping(open_root_keys(test_settings(s.server.dsn)))
        keys = CachedKeyRing(PostgresKeyStore(database, s.server.clock), wrapping, 10)
        yield PostgresOverlayStore(database, keys), keys
    finally:
        await database.close()


async def test_a_process_that_missed_a_new_key_merges_all_the_same(s: Stage) -> None:
    await worked(s, MARIA)
    user_id, agent_id = await user_of(s.client), UUID((await s.client.agents.get("scout")).id)
    async with process_of_its_own(s) as (store, keys):
        await keys.cipher(user_id)
        await s.client.admin.rotate_user_key(s.client.options.user or "")
        await s.client.memory.blocks.update("human", agent="scout", value="Maria")
        done = await store.merge(
            user_id, agent_id, (), ConflictPolicy.FAIL, once=None, now=s.server.clock.now()
        )
    assert (done.count, done.skipped) == (1, [])
    assert (await s.client.memory.blocks.get("human")).value == "Maria"


async def test_an_agent_that_leaves_overlay_or_is_deleted_meanwhile_keeps_what_is_its_own(s: Stage) -> None:
    """The store looks itself: what the service saw may be old by then."""
    user_id, agent_id = await user_of(s.client), UUID((await s.client.agents.get("scout")).id)
    await s.client.agents.update("scout", memory_mode=MemoryMode.ISOLATED)
    await s.client.memory.insert("Beans need water", agent="scout")
    async with process_of_its_own(s) as (store, _):
        for whose, reason in ((agent_id, Reason.AGENT_NOT_OVERLAY), (uuid4(), Reason.NOT_FOUND)):
            with pytest.raises(SageError) as refused:
                await store.merge(
                    user_id, whose, (), ConflictPolicy.SKIP, once=None, now=s.server.clock.now()
                )
            assert refused.value.reason is reason
    assert await own_texts(s) == ["Beans need water"]


async def test_a_merge_waits_for_a_change_of_the_users_block_and_then_sees_it(s: Stage) -> None:
    await worked(s, MARIA)
    own = await s.client.memory.blocks.get("human", agent="scout")
    human = UUID((await s.client.memory.blocks.get("human")).id)
    connection = await asyncpg.connect(s.server.dsn)
    try:
        change = connection.transaction()
        await change.start()
        await connection.execute("UPDATE memory_blocks SET revision = 2 WHERE id = $1", human)
        await connection.execute(
            "INSERT INTO block_revisions SELECT user_id, $2, block_id, 2, description_enc, value_enc,"
            " char_limit, read_only, actor, NULL, NULL, NULL, created_at, key_version"
            " FROM block_revisions WHERE block_id = $1",
            *(human, uuid4()),
        )
        merging = asyncio.create_task(s.client.agents.merge_overlay("scout"))
        await until_waiting(connection, 1)
        await change.commit()
    finally:
        await connection.close()
    assert (await merging).skipped_change_ids == (own.id,)
    assert await kinds(s) == [(UPDATED, True)]
