"""Everything of a user in one file: nothing is missing, and it can be brought in elsewhere and again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    MemoryMode,
    MemorySource,
    MemoryTrust,
    NewItem,
    TakeoutCounts,
    TakeoutImported,
)
from support.memory import indexed, results
from support.server import RunningServer

THEN = datetime(2024, 5, 1, 12, tzinfo=UTC)


async def live(client: AsyncSageClient) -> None:
    """A life with one of everything."""
    await client.agent("main").enable(preferences={"tone": "short"})
    await client.agent("main").chat("My name is Maria. The slugs ate my lettuce.").text()
    await client.agent("main").chat("Hush.", store=False).text()
    await client.agents.create("diary", description="Listens.", memory_mode=MemoryMode.ISOLATED)
    await client.agent("diary").chat("I miss the sea.").text()
    await client.memory.insert("Own", agent="diary", tags=["sea"], trust=MemoryTrust.AGENT, create_time=THEN)
    await client.memory.blocks.create("plans", "Beans in May.", description="What is next", read_only=True)
    await client.memory.blocks.create("mood", "Blue.", agent="diary")
    await client.memory.documents.add(b"Sow beans after the last frost.", title="Beans", tags=["garden"])
    thread = await client.conversations.new("Garden", metadata={"bed": "1"})
    await thread.append([NewItem.user("When do I sow peas?", author="Anna")])
    gone = await client.conversations.new("Gone")
    await gone.delete()


async def memories(client: AsyncSageClient) -> Sequence[object]:
    """What is kept, whatever it came from."""
    kept = [one async for one in client.memory.list() if one.source in {"archival", "document"}]
    names = {agent.id: agent.name async for agent in client.agents.list()}
    return sorted(
        (one.text, one.tags, one.trust, one.create_time, names.get(one.agent_id, "")) for one in kept
    )


async def blocks(client: AsyncSageClient) -> Sequence[object]:
    names = {agent.id: agent.name async for agent in client.agents.list()}
    found = [one async for one in client.memory.blocks.list()]
    return sorted(
        (one.label, names.get(one.agent_id, ""), one.description, one.value, one.char_limit, one.read_only)
        for one in found
    )


async def test_all_of_it_comes_along_and_a_second_time_changes_nothing(
    server: RunningServer, client: AsyncSageClient, tmp_path: Path
) -> None:
    await live(client)
    file = tmp_path / "maria.jsonl"
    written = await client.takeout.export_to(file)
    own = sum([(await client.agents.get(name)).message_count for name in ("main", "diary")])
    assert written == TakeoutCounts(agents=2, blocks=4, memories=4, conversations=4, items=1 + own)
    assert file.stat().st_mode & 0o077 == 0
    async with sage_client.connect_async(server.address, user="maria again") as other:
        done = await other.takeout.import_(file)
        # The agent came with a persona, which is the same.
        assert done.skipped == TakeoutCounts(blocks=1)
        assert done.created + done.skipped == written
        assert await memories(other) == await memories(client)
        assert await blocks(other) == await blocks(client)
        assert (await other.agents.get("main")).preferences == {"tone": "short"}
        diary = await other.agents.get("diary")
        assert (diary.description, diary.memory_mode) == ("Listens.", MemoryMode.ISOLATED)
        threads = {one.title: one async for one in other.conversations.list()}
        assert {title: one.private for title, one in threads.items()} == {
            "main": False,
            "diary": True,
            "Garden": False,
        }
        assert dict(threads["main"].metadata) == {"agent": "main"}
        texts = [item.text async for item in other.conversations.items(threads["main"].id)]
        assert texts == [item.text async for item in client.agent("main").items()]
        assert await other.takeout.import_(file) == TakeoutImported(skipped=written)
        assert await memories(other) == await memories(client)


async def test_what_was_not_to_be_remembered_is_not_remembered_elsewhere(
    server: RunningServer, client: AsyncSageClient, tmp_path: Path
) -> None:
    await live(client)
    await client.takeout.export_to(tmp_path / "all")
    async with sage_client.connect_async(server.address, user="maria again") as other:
        await other.takeout.import_(tmp_path / "all")
        await indexed(other)
        recalled = [one async for one in other.memory.list() if one.source is MemorySource.MESSAGE]
        texts = {one.text for one in recalled}
        assert "My name is Maria. The slugs ate my lettuce." in texts
        assert not texts & {"Hush.", "I miss the sea."}
        assert (await results(other, "Who is Maria?"))[0].memory.text.startswith("My name is Maria.")


async def test_a_block_that_somebody_changed_stays_and_one_that_nobody_did_is_filled(
    server: RunningServer, client: AsyncSageClient, tmp_path: Path
) -> None:
    await live(client)
    await client.memory.blocks.update("persona", value="I am terse.")
    await client.takeout.export_to(tmp_path / "all")
    async with sage_client.connect_async(server.address, user="somebody") as other:
        await other.agent("main").enable()
        await other.memory.blocks.update("human", value="I am Ben.")
        done = await other.takeout.import_((tmp_path / "all").read_bytes())
        assert (done.created.blocks, done.skipped.blocks) == (3, 1)
        assert done.different_blocks == ("human",)
        assert (await other.memory.blocks.get("human")).value == "I am Ben."
        assert (await other.memory.blocks.get("persona")).value == "I am terse."


async def test_a_file_that_was_cut_short_is_told_and_can_be_brought_in_again(
    server: RunningServer, client: AsyncSageClient, tmp_path: Path
) -> None:
    await live(client)
    file = tmp_path / "all"
    written = await client.takeout.export_to(file)
    lines = file.read_bytes().splitlines(keepends=True)
    async with sage_client.connect_async(server.address, user="somebody") as other:
        with pytest.raises(ValueError, match="cut short"):
            await other.takeout.import_(b"".join(lines[:-1]))
        done = await other.takeout.import_(file)
        assert done.created == TakeoutCounts()
        assert done.skipped == written


@pytest.mark.parametrize(
    "line",
    [
        {"type": "takeout", "version": 2},
        {"type": "memory", "text": "x"},
        {"type": "memory", "text": 1, "agent": "", "tags": [], "metadata": {}, "trust": "user"},
        {"type": "block", "label": "x", "agent": "", "description": "", "value": "", "char_limit": "9"},
        {"type": "agent", "name": "x", "memory_mode": "odd"},
    ],
)
async def test_a_wrong_line_is_named_and_not_quoted(client: AsyncSageClient, line: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^line 2 is not a line of an export$"):
        await client.takeout.import_(b"\n" + json.dumps(line).encode())


async def test_a_line_that_the_server_refuses_keeps_its_number(client: AsyncSageClient) -> None:
    agent = {"type": "agent", "name": "cook", "description": "", "enabled": True, "memory_mode": "shared"}
    agent |= {"system_prompt": "", "time_zone": "", "preferences": {}}
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.takeout.import_(json.dumps(agent).encode() + b'\n{"type": "odd"}\n')
    assert "line 2 " in str(refused.value)


async def test_agents_own_threads_go_only_together_with_all_conversations(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Garden")
    with pytest.raises(sage_client.InvalidArgument) as refused:
        async for _ in client.conversations.export([thread.id], include_agents=True):
            pass
    assert "include_agents" in str(refused.value)
