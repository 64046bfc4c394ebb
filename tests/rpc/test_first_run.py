"""The first run: a server without a key, a network or any setting of a model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    NewItem,
    RetryPolicy,
    TurnDone,
    TurnMessage,
    TurnToolCall,
)
from sage_server.adapters.offline_model.answering import NOTICE
from support.agents import heard, only
from support.postgres import public_folder
from support.server import RunningServer, child_server, running_server

ONCE = RetryPolicy(max_attempts=1)
OFFLINE = (
    "  language model  offline "
    "(no model is configured: set SAGE_LLM_BASE_URL, SAGE_LLM_GGUF or OPENAI_API_KEY)\n"
)


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    async with public_folder() as made:
        yield made


async def answers(client: AsyncSageClient, text: str) -> list[str]:
    """What the main agent says to a message."""
    events = await heard(client.agent("main").chat(text, deltas=True))
    assert only(events, TurnDone)
    return [event.item.text for event in only(events, TurnMessage)]


async def test_a_second_chat_knows_what_the_first_said_after_a_restart(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    today = datetime.now(UTC).date().isoformat()
    async with (
        child_server(data_dir=folder) as server,
        sage_client.connect_async(server.address) as client,
    ):
        await client.agent("main").enable()
        assert await answers(client, "Hello, my name is Maria. Remember that Anna comes in May.") == [
            NOTICE,
            "Kept in core memory (human): “My name is Maria.”\nKept in archival memory: “Anna comes in May.”",
        ]
    assert OFFLINE in server.lines
    async with (
        child_server(data_dir=folder) as server,
        sage_client.connect_async(server.address) as client,
    ):
        (name,) = await answers(client, "What is my name?")
        (visit,) = await answers(client, "When does Anna come?")
        assert name == f"From your memory:\n- {today}, core memory (human): “My name is Maria.”"
        assert visit == f"From your memory:\n- {today}, archival memory: “Anna comes in May.”"


async def test_a_user_without_agents_is_told_how_to_get_one(client: AsyncSageClient) -> None:
    async def refused(asked: AsyncIterator[object]) -> sage_client.NotFound:
        with pytest.raises(sage_client.NotFound) as error:
            await anext(asked)
        assert error.value.reason == "NOT_FOUND"
        return error.value

    thread = await client.conversations.create("Garden")
    in_thread = client.conversations.continue_(thread.id).respond("Hello.")
    for asked in (client.agent("main").chat("Hello."), in_thread, client.agent("canary").chat("Hello.")):
        told = str(await refused(aiter(asked)))
        assert "`main` is made by UpdateAgent with `enabled`, once for each user" in told
        assert "canary" not in told


async def test_it_keeps_and_finds_with_the_real_tools(server: RunningServer, client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    await client.memory.documents.add(b"# Beans\n\nSow beans after the last frost.", title="Garden")
    today = server.clock.now().date().isoformat()
    assert await answers(client, "When do I sow beans?") == [
        NOTICE,
        f"From your memory:\n- {today}, document “Garden”: “Sow beans after the last frost.”",
    ]
    assert await answers(client, "I live in Porto. The slugs ate my lettuce.") == [
        "Kept in core memory (human): “I live in Porto.”\n"
        "Kept in archival memory: “The slugs ate my lettuce.”"
    ]
    assert (await client.memory.blocks.get("human")).value == f"{today}, the user: I live in Porto."
    (kept,) = [memory.text async for memory in client.memory.list() if memory.text.startswith("The slugs")]
    assert kept == "The slugs ate my lettuce."
    (asked,) = await answers(client, "What did the slugs eat?")
    assert "archival memory: “The slugs ate my lettuce.”" in asked


async def test_it_says_what_it_is_once_in_each_conversation(client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    thread = await client.conversations.create("Garden")
    said: list[str] = []
    for text in ("Hello.", "It rained today.", "What fell today?"):
        said += await answers(client, text)
        said += [
            event.item.text
            for event in only(
                await heard(client.conversations.continue_(thread.id).respond(text)), TurnMessage
            )
        ]
    assert said.count(NOTICE) == 2
    assert NOTICE in await answers(client, "Who are you?")


async def test_a_tool_that_is_not_allowed_is_not_called(client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    await client.agents.update("main", allowed_tools=["conversation_search"])
    events = await heard(client.agent("main").chat("I live in Porto. Where do I live?"))
    assert [call.name for call in only(events, TurnToolCall)] == ["conversation_search"]
    assert "I have no tool here to keep that with." in only(events, TurnMessage)[-1].item.text


async def test_what_it_cannot_keep_it_says(client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    await client.agents.update("main", allowed_tools=["memory_append"])
    await client.memory.blocks.update("human", value="x" * 4990)
    await answers(client, "Hello.")
    (told,) = await answers(client, "I live in Porto.")
    assert told.startswith("Not kept: The block would have")


async def test_what_core_memory_has_no_room_for_goes_to_archival_memory(client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    await client.memory.blocks.update("human", value="x" * 4990)
    await answers(client, "Hello.")
    assert await answers(client, "I live in Porto.") == ["Kept in archival memory: “I live in Porto.”"]
    (told,) = await answers(client, "Where do I live?")
    assert "“I live in Porto.”" in told


async def test_a_long_text_is_kept_in_pieces_whole(client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    await answers(client, "Hello.")
    words = " ".join(f"word{n}" for n in range(8_000))
    (told,) = await answers(client, words)
    assert told.count("Kept in archival memory") == len(told.splitlines())
    kept = [memory.text async for memory in client.memory.list()]
    assert max(map(len, kept)) <= 1_000
    assert {word for text in kept for word in text.lower().split()} == set(words.split())


async def test_what_is_to_be_forgotten_is_not_kept_and_the_way_is_told(client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    await answers(client, "Hello.")
    for text in ("Forget my name.", "Please delete everything you know about me.", "Vergiss, was ich sagte."):
        (told,) = await answers(client, text)
        assert "sage memory delete" in told
    assert [memory async for memory in client.memory.list()] == []
    assert await answers(client, "Who am I?") == ["I know nothing about you yet."]


async def test_asked_what_it_knows_it_lists_core_memory(client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    await answers(client, "My name is Maria. I like beans.")
    (told,) = await answers(client, "What do you know about me?")
    assert "“My name is Maria.”" in told
    assert "“I like beans.”" in told


@pytest.mark.parametrize("things", [33, 200])
async def test_of_a_message_with_many_things_to_keep_none_is_lost_unsaid(
    client: AsyncSageClient, things: int
) -> None:
    await client.agent("main").enable()
    await answers(client, "Hello.")
    (told,) = await answers(client, "\n".join(f"I like bean number {n}." for n in range(things)))
    block = await client.memory.blocks.get("human")
    said = [line for line in told.splitlines() if line.startswith("Kept in core memory")]
    assert block.value.count("I like bean number") == len(said) == min(things, 96)
    assert ("Not all of it is kept" in told) == (things > 96)


async def test_an_older_part_is_summarised_in_the_users_own_words(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Garden")
    said = [(NewItem.user(f"Bed {n} is dry. Well."), NewItem.assistant("Oh.")) for n in range(4)]
    items = [item for pair in said for item in pair]
    await client.conversations.append(thread.id, items)
    first = await client.conversations.summarize(thread.id, keep_newest=4)
    second = await client.conversations.summarize(thread.id, keep_newest=0)
    assert first.summary is not None
    assert second.summary is not None
    assert first.summary.text == "Bed 0 is dry. Bed 1 is dry."
    assert second.summary.text == "Bed 0 is dry. Bed 1 is dry. Bed 2 is dry. Bed 3 is dry."


async def test_it_stands_for_no_other_model_and_can_be_switched_off(dsn: str) -> None:
    async with (
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria", retry=ONCE) as client,
    ):
        await client.agent("main").enable()
        assert server.application.language_model == "offline/sage"
        await client.agents.update("main", model="offline/sage")
        await answers(client, "Hello.")
        with pytest.raises(sage_client.SageError) as unknown:
            await client.agents.update("main", model="openai/gpt-x")
        assert unknown.value.reason == "MODEL_UNKNOWN"
    async with running_server(dsn, offline_model=False) as server:
        assert server.application.language_model == ""
    async with running_server(dsn, llm_base_url="http://127.0.0.1:9/v1", llm_model="m") as server:
        assert server.application.language_model == "openai/m"
        async with sage_client.connect_async(server.address, user="maria", retry=ONCE) as client:
            with pytest.raises(sage_client.SageError) as gone:
                await heard(client.agent("main").chat("Hello.", request_id=str(uuid4())))
            assert gone.value.reason == "MODEL_UNKNOWN"


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (
            {"llm_base_url": "http://u:canary@127.0.0.1:9/v1"},
            "openai/gpt-5-mini at http://127.0.0.1:9/v1 (only the default name: SAGE_LLM_MODEL sets yours)",
        ),
        ({"llm_base_url": "http://127.0.0.1:9/v1", "llm_model": "m"}, "openai/m at http://127.0.0.1:9/v1"),
        ({"llm_api_key": "canary", "llm_model": "m"}, "openai/m at https://api.openai.com/v1"),
        (
            {"llm_model": "m"},
            "offline (SAGE_LLM_MODEL names nobody to ask: set SAGE_LLM_BASE_URL or OPENAI_API_KEY as well)",
        ),
    ],
)
async def test_the_start_says_which_model_answers_and_where(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], shown: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with child_server(data_dir=folder, **settings) as server:
        pass
    assert f"  language model  {shown}\n" in server.lines
