"""What a model is sent: PreviewContext shows it, and the budget holds."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    CompactionMode,
    CompactionSettings,
    ContextPreview,
    ContextSectionKind,
    NewItem,
    NewMemory,
    TurnDone,
    TurnFailed,
    TurnToolResult,
)
from support.agents import (
    COUNTER,
    MODEL,
    Call,
    answer,
    heard,
    is_summary,
    only,
    prompt_of,
    prompt_tokens,
    stage,
)
from support.clock import StoppedClock
from support.memory import indexed
from support.provider import ProviderRequest, Step, chat_reply

Kind = ContextSectionKind
STANDING = (Kind.INSTRUCTION, Kind.TIME, Kind.BLOCKS, Kind.MEMORY_METADATA, Kind.TOOLS, Kind.SUMMARY)


def joined(preview: ContextPreview, *, standing: bool) -> str:
    return "\n\n".join(one.text for one in preview.sections if (one.kind in STANDING) is standing)


def is_what_was_sent(preview: ContextPreview, request: ProviderRequest) -> None:
    assert (joined(preview, standing=True), joined(preview, standing=False)) == prompt_of(request)
    assert prompt_tokens(request) <= preview.token_count <= prompt_tokens(request) + 64
    for section in preview.sections:
        assert section.token_count == COUNTER.count(section.text)


def kinds(preview: ContextPreview) -> list[Kind]:
    return [section.kind for section in preview.sections]


async def test_a_preview_is_what_the_next_turn_sends_section_by_section(dsn: str) -> None:
    async with stage(dsn, StoppedClock()) as s:
        main = s.client.agent("main")
        await s.client.agents.update("main", time_zone="Asia/Tokyo", preferences={"tone": "plain"})
        await s.client.memory.insert_many([NewMemory("Beans."), NewMemory("Tea.")])
        await s.client.memory.scratchpads.write(["ask Anna"])
        for text in ("Hello.", "And again?"):
            await indexed(s.client)
            preview = await main.preview_context(input=text)
            await heard(s.chat(text, answer("Yes?")))
            is_what_was_sent(preview, s.provider.chats[-1])
        assert kinds(preview) == [*STANDING[:-1], Kind.ITEMS, Kind.INPUT]
        assert (preview.model, preview.tokenizer) == (MODEL, "o200k_base")
        assert preview.max_context_tokens == 100_000
        assert (preview.compaction_tokens, preview.would_compact) == (80_000, False)
        shown = {section.kind: section for section in preview.sections}
        assert "Asia/Tokyo" in shown[Kind.TIME].text
        assert 'Preferences: {"tone": "plain"}' in shown[Kind.MEMORY_METADATA].text
        assert "Archival memories: 2. Messages that can be searched: 2." in shown[Kind.MEMORY_METADATA].text
        entries = [shown[kind].entry_count for kind in (Kind.BLOCKS, Kind.ITEMS, Kind.INPUT)]
        assert entries == [2, 2, 1]


async def test_a_preview_of_a_thread_is_what_a_turn_in_it_sends(dsn: str) -> None:
    async with stage(dsn, StoppedClock()) as s:
        thread = await s.client.conversations.create("Garden")
        items = [NewItem.user("Peas?", author="Anna"), NewItem.assistant("In May.")]
        await s.client.conversations.append(thread.id, items)
        await indexed(s.client)
        preview = await s.client.agent("main").preview_context(input="Beans?", conversation_id=thread.id)
        s.provider.script_chat(chat_reply(answer("In June.")))
        await heard(s.client.conversations.continue_(thread.id).respond("Beans?"))
        is_what_was_sent(preview, s.provider.chats[-1])
        assert "Anna" in preview.sections[-2].text


async def test_a_preview_asks_no_model_and_stores_nothing(dsn: str) -> None:
    async with stage(dsn) as s:
        before = await s.client.agent("main").get()
        preview = await s.client.agent("main").preview_context(input="Hello.")
        assert Kind.ITEMS not in kinds(preview)
        assert kinds(await s.client.agent("main").preview_context()) == list(STANDING[:-1])
        assert (await s.client.agent("main").get(), s.provider.requests) == (before, [])
        with pytest.raises(sage_client.NotFound):
            await s.client.agent("scout").preview_context()
        thread = await s.client.conversations.create("Garden")
        await s.client.conversations.delete(thread.id)
        with pytest.raises(sage_client.NotFound):
            await s.client.agent("main").preview_context(conversation_id=thread.id)


async def test_a_preview_says_whether_the_next_turn_compacts_and_so_it_does(dsn: str) -> None:
    async with stage(dsn) as s:
        s.provider.chat = lambda request: chat_reply("Short." if is_summary(request) else answer("Well."))
        await s.client.agents.update("main", max_context_tokens=4_000)
        main, text, turns = s.client.agent("main"), "many words of one message " * 30, 0
        while not (preview := await main.preview_context(input=text)).would_compact:
            await heard(main.chat(text))
            turns += 1
        assert turns > 4
        assert not any(is_summary(request) for request in s.provider.chats)
        assert preview.compaction_tokens == 3_200 < preview.token_count
        await heard(main.chat(text))
        assert any(is_summary(request) for request in s.provider.chats)
        after = await s.client.agent("main").preview_context()
        assert Kind.SUMMARY in kinds(after)
        assert (after.would_compact, after.token_count < 2_600) == (False, True)


async def test_what_must_be_there_and_does_not_fit_is_a_status_and_ends_a_turn(dsn: str) -> None:
    async with stage(dsn) as s:
        main = s.client.agent("main")
        await s.client.agents.update("main", max_context_tokens=2_000, system_prompt="many words " * 1_500)
        with pytest.raises(sage_client.FailedPrecondition) as refused:
            await main.preview_context(input="Hello.")
        assert refused.value.reason == "CONTEXT_BUDGET_EXCEEDED"
        assert refused.value.metadata["max_context_tokens"] == "2000"
        assert int(refused.value.metadata["needed"]) > 3_000
        (failed,) = only(await heard(main.chat("Hello.")), TurnFailed)
        assert (failed.reason, failed.retryable) == ("CONTEXT_BUDGET_EXCEEDED", False)
        await s.client.agents.update("main", system_prompt="Be brief.")
        assert only(await heard(s.chat("Hello.", answer("Yes?"))), TurnDone)
        long = "many words of one message " * 500
        (failed,) = only(await heard(main.chat(long)), TurnFailed)
        assert failed.reason == "CONTEXT_BUDGET_EXCEEDED"
        assert only(await heard(s.chat("Hello.", "They talked.", answer("Yes?"))), TurnDone)
        assert [is_summary(request) for request in s.provider.chats[-2:]] == [True, False]
        assert max(map(prompt_tokens, s.provider.chats)) <= 2_000


async def first_time(client: AsyncSageClient, conversation_id: str = "") -> bool:
    preview = await client.agent("main").preview_context(conversation_id=conversation_id)
    return preview.is_first_time_user


async def test_a_user_is_new_until_the_agent_has_talked_with_them_anywhere(dsn: str) -> None:
    async with stage(dsn) as s:
        thread = await s.client.conversations.create("Garden")
        assert await first_time(s.client)
        assert await first_time(s.client, thread.id)
        call: Call = ("scratchpad_read", {})
        s.provider.script_chat(chat_reply(answer(calls=[call])), chat_reply(answer("Hello.")))
        await heard(s.client.conversations.continue_(thread.id).respond("Hello."))
        told = [prompt_of(request)[0] for request in s.provider.chats]
        assert ["is_first_time_user: true" in one for one in told] == [True, True]
        assert not await first_time(s.client)
        assert not await first_time(s.client, thread.id)
        await heard(s.chat("Hello again.", answer("Yes?")))
        assert "is_first_time_user: false" in prompt_of(s.provider.chats[-1])[0]


def lines_of(request: ProviderRequest) -> Sequence[str]:
    return [json.loads(line)["text"] for line in prompt_of(request)[1].splitlines() if line[:1] == "{"]


async def test_without_compaction_as_many_of_the_newest_are_sent_as_fit_whole(dsn: str) -> None:
    async with stage(dsn) as s:
        thread = await s.client.conversations.create("Garden")
        said = [f"{n} " + "many words of one message " * (5 + n % 40) for n in range(200)]
        await s.client.conversations.append(thread.id, [NewItem.user(text) for text in said])
        off = CompactionSettings(mode=CompactionMode.OFF)
        await s.client.agents.update("main", max_context_tokens=5_000, compaction=off)
        preview = await s.client.agent("main").preview_context(conversation_id=thread.id)
        assert not preview.would_compact
        s.provider.script_chat(chat_reply(answer("Well.")))
        await heard(s.client.conversations.continue_(thread.id).respond("Hello."))
        (request,) = s.provider.chats
        assert 4_000 < prompt_tokens(request) <= 5_000
        *kept, last = lines_of(request)
        assert last == "Hello."
        assert 0 < len(kept) < 200
        assert kept == said[-len(kept) :]


async def test_outputs_of_tools_that_grow_too_large_are_told_by_their_length(dsn: str) -> None:
    async with stage(dsn) as s:
        await s.client.agents.update("main", max_context_tokens=6_000)
        text = "many beans of one garden " * 150
        await s.client.memory.insert_many([NewMemory(f"{n} {text}") for n in range(3)])
        search: Call = ("archival_search", {"query": "beans", "limit": 3})
        steps: list[Step] = [chat_reply(answer(calls=[search]))] * 5
        s.provider.script_chat(*steps, chat_reply(answer("Well.")))
        events = await heard(s.client.agent("main").chat("Look."))
        assert only(events, TurnDone)
        assert len(only(events, TurnToolResult)) == 5
        assert max(map(prompt_tokens, s.provider.chats)) <= 6_000
        assert "[left out: " in prompt_of(s.provider.chats[-1])[1]
