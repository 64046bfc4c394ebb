"""What turns see and write of a user's memory, by the agent's mode, the thread and the message."""

from __future__ import annotations

from sage_client import (
    ConversationMemory,
    MemoryFilter,
    MemoryMode,
    MemorySource,
    ToolOutcome,
    TurnRetrieval,
    TurnToolResult,
)
from support.agents import Call, Stage, answer, heard, only, outcomes, prompt_of, stage
from support.memory import indexed, listed, texts
from support.provider import chat_reply

OK, INVALID, REFUSED = ToolOutcome.OK, ToolOutcome.INVALID, ToolOutcome.REFUSED
APPEND: Call = ("memory_append", {"label": "human", "text": "Likes tea."})
INSERT: Call = ("archival_insert", {"text": "The scout found green tea."})
SEARCH: Call = ("archival_search", {"query": "green tea"})


async def with_agent(s: Stage, mode: MemoryMode) -> str:
    """An agent of a mode, beside a shared block and a shared memory. Its id."""
    await s.client.memory.blocks.update("human", value="Maria")
    await s.client.memory.insert("The user drinks green tea.")
    return (await s.client.agents.create("scout", memory_mode=mode)).id


async def found_by_scout(s: Stage) -> set[str]:
    events = await heard(s.chat("Look.", answer(calls=[SEARCH]), answer("Well."), agent="scout"))
    return {one.memory.text for one in only(events, TurnRetrieval)[0].results}


async def test_a_shared_agent_reads_and_writes_the_users_memory(dsn: str) -> None:
    async with stage(dsn) as s:
        await with_agent(s, MemoryMode.SHARED)
        assert outcomes(await s.called(APPEND, INSERT, agent="scout")) == [OK, OK]
        assert (await s.client.memory.blocks.get("human")).value == "Maria\nLikes tea."
        both = {"The user drinks green tea.", "The scout found green tea."}
        assert await found_by_scout(s) == both
        assert {memory.agent_id for memory in await listed(s.client) if memory.text in both} == {""}


async def test_an_isolated_agent_sees_and_writes_only_its_own(dsn: str) -> None:
    async with stage(dsn) as s:
        scout = await with_agent(s, MemoryMode.ISOLATED)
        append, insert = await s.called(APPEND, INSERT, agent="scout")
        assert (append.outcome, insert.outcome) == (INVALID, OK)
        assert "The labels are: none." in append.output
        assert "Maria" not in prompt_of(s.provider.chats[-1])[0]
        assert (await s.client.memory.blocks.get("human")).value == "Maria"
        await s.client.memory.blocks.create("human", "My own.", agent="scout")
        assert outcomes(await s.called(APPEND, agent="scout")) == [OK]
        own = await s.client.memory.blocks.get("human", agent="scout")
        assert own.value == "My own.\nLikes tea."
        assert await found_by_scout(s) == {"The scout found green tea."}
        (kept,) = [memory for memory in await listed(s.client) if memory.text.startswith("The scout")]
        assert kept.agent_id == scout


async def test_what_is_said_to_an_isolated_agent_is_recalled_by_it_alone(dsn: str) -> None:
    async with stage(dsn) as s:
        await with_agent(s, MemoryMode.ISOLATED)
        await heard(s.chat("My secret is peas.", answer("Safe."), agent="scout"))
        await heard(s.chat("I told everybody of peas.", answer("Fine.")))
        await indexed(s.client)
        search: Call = ("conversation_search", {"query": "peas"})
        told = {}
        for agent in ("main", "scout"):
            events = await heard(s.chat("Look.", answer(calls=[search]), answer("Well."), agent=agent))
            told[agent] = {one.memory.text for one in only(events, TurnRetrieval)[0].results}
        assert "I told everybody of peas." in told["main"]
        assert "My secret is peas." not in told["main"]
        assert "My secret is peas." in told["scout"]
        assert "I told everybody of peas." not in told["scout"]


async def test_an_overlay_agent_reads_the_users_memory_and_writes_a_copy_of_its_own(dsn: str) -> None:
    async with stage(dsn) as s:
        scout = await with_agent(s, MemoryMode.OVERLAY)
        twice = [APPEND, ("memory_append", {"label": "human", "text": "And bread."}), INSERT]
        results = await s.called(*twice, agent="scout")
        assert outcomes(results) == [OK] * 3
        blocks = s.client.memory.blocks
        shared, own = await blocks.get("human"), await blocks.get("human", agent="scout")
        assert (shared.value, own.value) == ("Maria", "Maria\nLikes tea.\nAnd bread.")
        assert own.agent_id == scout
        assert {result.block_id for result in results[:2]} == {own.id}
        assert await found_by_scout(s) == {"The user drinks green tea.", "The scout found green tea."}
        assert outcomes(await s.called(APPEND, agent="scout")) == [OK]
        assert (await blocks.get("human", agent="scout")).revision == 2
        assert (await blocks.get("human")).value == "Maria"
        system, _ = prompt_of(s.provider.chats[-1])
        assert system.count('"label": "human"') == 1
        main = await heard(s.chat("Look.", answer(calls=[SEARCH]), answer("Well.")))
        found = [one.memory.text for one in only(main, TurnRetrieval)[0].results]
        assert found == ["The user drinks green tea."]


async def test_a_message_that_is_not_to_be_stored_stays_in_the_thread_and_out_of_recall(dsn: str) -> None:
    async with stage(dsn) as s:
        await heard(s.chat("My secret is peas.", answer("Peas, then."), store=False))
        await heard(s.chat("I like beans.", answer("Beans, then.")))
        thread = await s.client.conversations.create("Garden")
        s.provider.script_chat(chat_reply(answer("Peas again.")))
        await heard(s.client.conversations.continue_(thread.id).respond("Secret peas.", store=False))
        await indexed(s.client)
        messages = MemoryFilter(sources=[MemorySource.MESSAGE])
        assert set(await texts(s.client, messages)) == {"I like beans.", "Beans, then."}
        said = [item.text async for item in s.client.agent("main").items()]
        assert said == ["My secret is peas.", "Peas, then.", "I like beans.", "Beans, then."]
        assert "My secret is peas." in prompt_of(s.provider.chats[1])[1]


async def test_what_is_said_in_a_private_thread_is_not_recalled(dsn: str) -> None:
    async with stage(dsn) as s:
        thread = await s.client.conversations.create("Secret", private=True)
        s.provider.script_chat(chat_reply(answer("Peas, then.")))
        await heard(s.client.conversations.continue_(thread.id).respond("My secret is peas."))
        await indexed(s.client)
        assert await texts(s.client) == []
        assert len([item async for item in s.client.conversations.items(thread.id)]) == 2


async def test_nothing_of_a_private_thread_or_message_is_written_into_memory(dsn: str) -> None:
    async with stage(dsn) as s:
        await with_agent(s, MemoryMode.SHARED)
        thread = await s.client.conversations.create("Secret", private=True)
        steps = (answer(calls=[APPEND, INSERT, SEARCH]), answer("Well."))
        s.provider.script_chat(*map(chat_reply, steps))
        private = await heard(s.client.conversations.continue_(thread.id).respond("Note it."))
        unkept = await heard(s.chat("Note it.", *steps, store=False))
        for events in (private, unkept):
            assert outcomes(only(events, TurnToolResult)) == [REFUSED, REFUSED, OK]
        assert (await s.client.memory.blocks.get("human")).value == "Maria"
        assert await texts(s.client) == ["The user drinks green tea."]


async def test_a_thread_without_memory_knows_only_itself(dsn: str) -> None:
    async with stage(dsn) as s:
        await with_agent(s, MemoryMode.SHARED)
        await heard(s.chat("I grow peas elsewhere.", answer("Peas, then.")))
        thread = await s.client.conversations.create("Apart", memory=ConversationMemory.NONE)
        search: Call = ("conversation_search", {"query": "peas"})
        calls = [APPEND, INSERT, SEARCH, search, ("scratchpad_write", {"items": ["here"]})]
        s.provider.script_chat(chat_reply(answer("Peas are green here.")))
        await heard(s.client.conversations.continue_(thread.id).respond("What are peas?"))
        await indexed(s.client)
        s.provider.script_chat(chat_reply(answer(calls=calls)), chat_reply(answer("Well.")))
        events = await heard(s.client.conversations.continue_(thread.id).respond("Look."))
        assert outcomes(only(events, TurnToolResult)) == [REFUSED, REFUSED, REFUSED, OK, OK]
        (retrieval,) = only(events, TurnRetrieval)
        assert {one.memory.provenance.conversation_id for one in retrieval.results} == {thread.id}
        system, _ = prompt_of(s.provider.chats[-1])
        assert "core memory, one block a line" not in system
        assert "memory_append" not in system.split("Your tools")[1]
        assert (await s.client.memory.blocks.get("human")).value == "Maria"
