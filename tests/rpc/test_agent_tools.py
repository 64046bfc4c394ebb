"""What agents do with their tools, through the model: what works, what is answered, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sage_client import (
    Block,
    BlockActor,
    FlagScope,
    MemorySource,
    NewItem,
    NewMemory,
    StopReason,
    ToolOutcome,
    TurnDone,
    TurnMessage,
    TurnRetrieval,
    TurnToolCall,
    TurnToolResult,
)
from support.agents import Call, Stage, answer, heard, only, outcomes, prompt_of, stage
from support.memory import indexed, said, texts

OK, INVALID, REFUSED = ToolOutcome.OK, ToolOutcome.INVALID, ToolOutcome.REFUSED


async def human(s: Stage) -> Block:
    return await s.client.memory.blocks.get("human")


async def test_blocks_are_appended_to_inserted_into_and_replaced_in(dsn: str) -> None:
    async with stage(dsn) as s:
        results = await s.called(
            ("memory_append", {"label": "human", "text": "Maria"}),
            ("memory_append", {"label": "Human", "text": "sows beans"}),
            ("memory_insert", {"label": "human", "text": "About her:", "line": 0}),
            ("memory_insert", {"label": "human", "text": "the end", "line": -1}),
            ("memory_insert", {"label": "human", "text": "in May", "line": 3}),
            ("memory_replace", {"label": "human", "old": "the end", "new": ""}),
            ("memory_replace", {"label": "human", "old": "Maria", "new": "Maria Berg"}),
        )
        assert outcomes(results) == [OK] * 7
        block = await human(s)
        assert block.value == "About her:\nMaria Berg\nsows beans\nin May\n"
        assert {result.block_id for result in results} == {block.id}


async def test_one_step_is_one_revision_of_a_block_by_the_agent_in_its_turn(dsn: str) -> None:
    async with stage(dsn) as s:
        append: Call = ("memory_append", {"label": "human", "text": "Maria"})
        events = await heard(s.chat("Hello.", answer(calls=[append, append]), answer("Well.")))
        newest, first = [one async for one in s.client.memory.blocks.revisions("human")]
        main = await s.client.agent("main").get()
        assert (newest.revision, newest.value, newest.actor) == (2, "Maria\nMaria", BlockActor.AGENT)
        assert (newest.agent_id, newest.turn_id) == (main.id, events[0].turn_id)
        assert first.actor is not BlockActor.AGENT


@pytest.mark.parametrize(
    ("call", "outcome", "says"),
    [
        (("memory_append", {"label": "nothing", "text": "x"}), INVALID, "human, notes, persona, rules"),
        (("memory_append", {"label": "rules", "text": "x"}), REFUSED, "read-only"),
        (("memory_append", {"label": "notes", "text": "x" * 60}), REFUSED, "80 characters, and may have 40"),
        (("memory_insert", {"label": "notes", "text": "x", "line": 3}), INVALID, "only 2 lines"),
        (("memory_insert", {"label": "notes", "text": "x", "line": -2}), INVALID, "line"),
        (("memory_insert", {"label": "notes", "text": "x"}), INVALID, "line: Field required"),
        (("memory_replace", {"label": "notes", "old": "peas", "new": "x"}), INVALID, "not in the block"),
        (("memory_replace", {"label": "notes", "old": "ea", "new": "x"}), INVALID, "3 times"),
        (("memory_replace", {"label": "notes", "old": "", "new": "x"}), INVALID, "old"),
        (("memory_append", {"label": "notes", "text": ""}), INVALID, "text"),
        (("memory_append", {"label": "notes", "txt": "x"}), INVALID, "txt"),
        (("memory_append", {"label": 7, "text": ["x"]}), INVALID, "label"),
        (("archival_insert", {"text": "x", "tags": "garden"}), INVALID, "tags"),
        (("archival_insert", {"text": "x", "tags": [" "]}), INVALID, "tags"),
        (("archival_insert", {"text": " \n"}), INVALID, "blank"),
        (("archival_search", {"query": "x", "limit": 51}), INVALID, "limit"),
        (("conversation_search", {}), INVALID, "query"),
        (("scratchpad_write", {"items": ["x" * 241]}), INVALID, "items.0"),
        (("scratchpad_write", {"items": ["x"] * 33}), INVALID, "items"),
        (("done", {"why": "x"}), INVALID, "why"),
        (("no_such_tool", {}), INVALID, "archival_insert, archival_search"),
    ],
)
async def test_what_is_wrong_comes_back_readable_and_changes_nothing(
    shared: Stage, call: Call, outcome: ToolOutcome, says: str
) -> None:
    before = await everything(shared)
    (result,) = await shared.called(call)
    assert result.outcome is outcome
    assert says in result.output
    assert (result.block_id, result.memory_id) == ("", "")
    assert await everything(shared) == before
    assert json.dumps(result.output)[1:-1] in prompt_of(shared.provider.chats[-1])[1]


@pytest.fixture(scope="module")
async def shared(postgres: Any) -> Any:
    """One server for calls that change nothing."""
    async with postgres.database() as dsn, stage(dsn, embedding="hash") as s:
        blocks = s.client.memory.blocks
        await blocks.create("rules", "Be kind.", read_only=True)
        await blocks.create("notes", "tea, bread\nbeans, x", char_limit=40)
        yield s


async def everything(s: Stage) -> list[Any]:
    """All that tools could change."""
    blocks = [block async for block in s.client.memory.blocks.list()]
    kept = [memory async for memory in s.client.memory.list()]
    kept = [memory for memory in kept if memory.source is MemorySource.ARCHIVAL]
    return [blocks, kept, await s.client.memory.scratchpads.get()]


async def test_of_a_step_with_a_wrong_call_the_others_are_carried_out(dsn: str) -> None:
    async with stage(dsn) as s:
        results = await s.called(
            ("memory_append", {"label": "human", "text": "Maria"}),
            ("memory_append", {"label": "nothing", "text": "x"}),
            ("memory_replace", {"label": "human", "old": "Maria", "new": "Anna"}),
        )
        assert outcomes(results) == [OK, INVALID, OK]
        assert (await human(s)).value == "Anna"


@pytest.mark.parametrize("most", [0, 2])
async def test_a_turn_changes_memory_only_as_often_as_it_may(dsn: str, most: int) -> None:
    async with stage(dsn) as s:
        await s.client.agents.update("main", max_memory_writes=most)
        writes: list[Call] = [
            ("memory_append", {"label": "human", "text": "Maria"}),
            ("archival_insert", {"text": "beans"}),
            ("scratchpad_write", {"items": ["note"]}),
        ]
        steps = [answer(calls=[one]) for one in writes]
        events = await heard(s.chat("Go on.", *steps, answer("Well.")))
        assert outcomes(only(events, TurnToolResult)) == [OK] * most + [REFUSED] * (3 - most)
        assert (await human(s)).value == ("Maria" if most else "")
        assert await texts(s.client) == (["beans"] if most else [])
        assert (await s.client.memory.scratchpads.get()).items == ()
        assert outcomes(await s.called(*writes)) == [OK] * most + [REFUSED] * (3 - most)


async def test_what_is_kept_is_found_by_words_and_by_tags(dsn: str) -> None:
    async with stage(dsn) as s:
        await s.called(
            ("archival_insert", {"text": "Beans are sown in May.", "tags": ["Garden", "garden", "May"]}),
            ("archival_insert", {"text": "Tea is made at 80 degrees."}),
        )
        search: list[Call] = [
            ("archival_search", {"query": "beans", "limit": 1}),
            ("archival_search", {"query": "beans or tea", "tags": ["GARDEN"]}),
            ("archival_search", {"query": "beans", "tags": ["music"]}),
        ]
        events = await heard(s.chat("Look.", answer(calls=search), answer("Well.")))
        found = [[one.memory.text for one in each.results] for each in only(events, TurnRetrieval)]
        assert found == [["Beans are sown in May."], ["Beans are sown in May."], []]
        outputs = [result.output for result in only(events, TurnToolResult)]
        assert outputs[2] == "Nothing was found."
        told = json.loads(outputs[0].splitlines()[1])
        assert (told["text"], told["tags"]) == ("Beans are sown in May.", ["garden", "may"])
        assert (told["source"], told["trust"]) == ("archival", "agent")


async def test_what_was_said_is_found_in_all_threads_or_in_this_one(dsn: str) -> None:
    async with stage(dsn) as s:
        elsewhere = await said(s.client, "Anna promised peas.", NewItem.assistant("Peas, noted."))
        await heard(s.chat("I like peas.", answer("So do I.")))
        await indexed(s.client)
        calls: list[Call] = [
            ("conversation_search", {"query": "peas"}),
            ("conversation_search", {"query": "peas", "this_thread": True}),
        ]
        events = await heard(s.chat("Look.", answer(calls=calls), answer("Well.")))
        everywhere, here = only(events, TurnRetrieval)
        threads = {one.memory.provenance.conversation_id for one in everywhere.results}
        assert threads == {elsewhere.id, ""}
        assert {"Anna promised peas.", "I like peas."} <= {one.memory.text for one in everywhere.results}
        assert {one.memory.provenance.conversation_id for one in here.results} == {""}
        assert here.results[0].memory.text == "I like peas."
        assert set(here.sources) == {MemorySource.MESSAGE, MemorySource.SUMMARY}


async def test_notes_are_written_read_and_cleared_and_stand_in_the_context(dsn: str) -> None:
    async with stage(dsn) as s:
        write: Call = ("scratchpad_write", {"items": ["ask Anna", "buy tea"]})
        wrote, read = await s.called(write, ("scratchpad_read", {}))
        assert (wrote.outcome, json.loads(read.output)) == (OK, ["ask Anna", "buy tea"])
        assert (await s.client.memory.scratchpads.get()).items == ("ask Anna", "buy tea")
        read, cleared, after = await s.called(
            ("scratchpad_read", {}), ("scratchpad_clear", {}), ("scratchpad_read", {})
        )
        assert json.loads(read.output) == ["ask Anna", "buy tea"]
        assert (cleared.outcome, json.loads(after.output)) == (OK, [])
        system, _ = prompt_of(s.provider.chats[-2])
        assert '["ask Anna", "buy tea"]' in system
        assert (await s.client.memory.scratchpads.get()).items == ()
        thread = await s.client.conversations.create("Garden")
        await s.client.memory.scratchpads.write(["of the thread"], thread.id)
        assert (await s.client.memory.scratchpads.get(agent="main")).items == ()


async def test_done_ends_the_turn_with_what_was_said_and_done_in_its_step(dsn: str) -> None:
    async with stage(dsn) as s:
        calls: list[Call] = [
            ("done", {}),
            ("memory_append", {"label": "human", "text": "Maria"}),
            ("archival_search", {"query": "beans"}),
        ]
        events = await heard(s.chat("Hello.", answer("Bye.", calls=calls)))
        assert outcomes(only(events, TurnToolResult)) == [OK] * 3
        assert [message.text for message in only(events, TurnMessage)] == ["Bye."]
        (done,) = only(events, TurnDone)
        assert (done.stop_reason, done.step_count) == (StopReason.DONE_TOOL, 1)
        assert (await human(s)).value == "Maria"


async def test_only_allowed_tools_are_offered_and_called(dsn: str) -> None:
    async with stage(dsn) as s:
        await s.client.agents.update("main", allowed_tools=["archival_search", "done"])
        append: Call = ("memory_append", {"label": "human", "text": "Maria"})
        refused, found = await s.called(append, ("archival_search", {"query": "beans"}))
        assert (refused.outcome, found.outcome) == (REFUSED, OK)
        assert (await human(s)).value == ""
        system, _ = prompt_of(s.provider.chats[0])
        offered = [json.loads(line)["name"] for line in system.splitlines() if line.startswith('{"name"')]
        assert offered == ["archival_search", "done"]
        enabled = {tool.name async for tool in s.client.agent("main").tools() if tool.enabled}
        assert enabled == {"archival_search", "done"}
        await s.client.agents.update("main", allowed_tools=[])
        assert outcomes(await s.called(append)) == [REFUSED]
        assert "You have no tools." in prompt_of(s.provider.chats[-1])[0]


async def test_a_flag_switches_all_tools_off_and_one_the_web(dsn: str) -> None:
    async with stage(dsn, web_fetch=True) as s:
        tools = [tool async for tool in s.client.agent("main").tools()]
        assert {tool.name for tool in tools if not tool.enabled} == set()
        for name, off in (("web_access", {"fetch_page"}), ("tools", {tool.name for tool in tools})):
            await s.client.admin.set_flag(name, FlagScope.USER, enabled=False, external_id="maria")
            shown = [tool async for tool in s.client.agent("main").tools()]
            assert {tool.name for tool in shown if not tool.enabled} == off
            assert {tool.disabled_by_flag for tool in shown if not tool.enabled} >= {name}
            calls: list[Call] = [
                ("fetch_page", {"url": "http://127.0.0.1:9/"}),
                ("memory_append", {"label": "human", "text": name}),
            ]
            assert outcomes(await s.called(*calls)) == [REFUSED, OK if name == "web_access" else REFUSED]
        assert (await human(s)).value == "web_access"


async def test_every_retrieval_is_an_event_with_what_was_found_and_why(dsn: str) -> None:
    async with stage(dsn) as s:
        await s.client.memory.insert_many([NewMemory("Beans are sown in May."), NewMemory("Tea is green.")])
        calls: list[Call] = [("archival_search", {"query": "beans"})] * 2
        events = await heard(s.chat("Look.", answer(calls=calls), answer("Well.")))
        ids = [call.call_id for call in only(events, TurnToolCall)]
        retrievals = only(events, TurnRetrieval)
        assert [one.call_id for one in retrievals] == ids
        for retrieval in retrievals:
            best = retrieval.results[0]
            assert (best.memory.text, best.matched_terms) == ("Beans are sown in May.", ("beans",))
            assert best.hybrid_score == pytest.approx(
                0.7 * best.normalized_vector_score + 0.3 * best.normalized_text_score
            )
            assert [one.rank for one in retrieval.results] == list(range(1, len(retrieval.results) + 1))
