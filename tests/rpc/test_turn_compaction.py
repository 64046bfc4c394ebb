"""Compaction inside turns: failures, races and switches. The turn answers whatever becomes of it."""

from __future__ import annotations

import asyncio

import pytest

import sage_client
from sage.v1 import conversation_service_pb2 as pb
from sage_client import (
    AsyncSageClient,
    CompactionMode,
    CompactionSettings,
    FlagScope,
    ItemKind,
    MemorySource,
    NewItem,
    TurnCompaction,
    TurnEvent,
    TurnFailed,
    TurnMessage,
    TurnTyping,
)
from sage_client.retry import Repeat
from sage_server.domain.usage import UsagePurpose
from support.agents import (
    Stage,
    answer,
    heard,
    is_summary,
    model_settings,
    only,
    prompt_of,
    prompt_tokens,
    stage,
    summaries,
    usage,
)
from support.memory import found, indexed
from support.provider import ProviderReply, ProviderRequest, Step, StreamedReply, chat_reply, error_reply
from support.server import running_server

WINDOW = 3_000
LONG = "many words of one message " * 12


async def long_thread(s: Stage, messages: int = 40) -> str:
    """A thread that a turn must compact."""
    await s.client.agents.update("main", max_context_tokens=WINDOW)
    thread = await s.client.conversations.create("Long")
    items = [NewItem.user(f"Number{n}. {LONG}") for n in range(messages)]
    await s.client.conversations.append(thread.id, items)
    return thread.id


def summarising(s: Stage, *steps: Step) -> None:
    """Answer requests for summaries with these, then with the last of them; anything else well."""
    waiting = list(steps)

    def step(request: ProviderRequest) -> Step:
        if not is_summary(request):
            return chat_reply(answer("I see."))
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    s.provider.chat = step


async def respond(s: Stage, thread_id: str, text: str = "Hello.") -> list[TurnEvent]:
    events = await heard(s.client.conversations.continue_(thread_id).respond(text))
    assert [message.text for message in only(events, TurnMessage)] == ["I see."]
    steps = [request for request in s.provider.chats if not is_summary(request)]
    assert max(map(prompt_tokens, steps)) <= WINDOW
    return events


async def summarize(
    client: AsyncSageClient, thread_id: str, keep: int = 4
) -> pb.SummarizeConversationResponse:
    request = pb.SummarizeConversationRequest(conversation_id=thread_id, keep_newest=keep)
    method = client.stubs.conversations.SummarizeConversation
    return await client.transport.unary(method, request, repeat=Repeat.IF_REFUSED)


FAILURES: dict[str, tuple[Step, str]] = {
    "broken": (error_reply(500), "MODEL_UNAVAILABLE"),
    "blank": (chat_reply(" \n "), "MODEL_OUTPUT_EMPTY"),
    "limited": (error_reply(429), "MODEL_RATE_LIMITED"),
    "refusing": (chat_reply("x", finish="content_filter"), "MODEL_REFUSED"),
    "too small": (error_reply(400, code="context_length_exceeded"), "MODEL_CONTEXT_TOO_LONG"),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_summary_model_that_fails_leaves_the_old_summary_and_the_turn_answers(
    dsn: str, failure: str
) -> None:
    async with stage(dsn, embedding="hash") as s:
        thread_id = await long_thread(s)
        summarising(s, chat_reply("They talked."))
        assert all(told.applied for told in only(await respond(s, thread_id), TurnCompaction))
        before = await summaries(s.client, thread_id)
        assert before
        await s.client.conversations.append(thread_id, [NewItem.user(LONG) for _ in range(30)])
        step, reason = FAILURES[failure]
        summarising(s, step)
        (told,) = only(await respond(s, thread_id), TurnCompaction)
        assert (told.applied, told.reason, told.summary_id) == (False, reason, "")
        assert told.tokens_before == told.tokens_after > WINDOW
        assert await summaries(s.client, thread_id) == before
        assert "They talked." in prompt_of(s.provider.chats[-1])[0]
        summarising(s, chat_reply("They talked on."))
        assert only(await respond(s, thread_id), TurnCompaction)[0].applied
        assert (await summaries(s.client, thread_id))[: len(before)] == before


async def test_a_summary_is_told_and_paid_for_even_if_the_turn_fails_then(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        thread_id = await long_thread(s)
        s.provider.chat = lambda request: chat_reply("Summed.") if is_summary(request) else error_reply(500)
        events = await heard(s.client.conversations.continue_(thread_id).respond("Hello."))
        told = only(events, TurnCompaction)
        chain = await summaries(s.client, thread_id)
        assert [one.summary_id for one in told] == [one.id for one in chain]
        (failed,) = only(events, TurnFailed)
        assert (failed.reason, failed.usage.model_calls) == ("MODEL_UNAVAILABLE", len(chain))
        (record,) = await usage(s.client, UsagePurpose.SUMMARY)
        assert record.calls == len(chain)
        kinds = [type(event) for event in events]
        assert kinds.index(TurnTyping) < kinds.index(TurnCompaction)


async def test_of_two_compactors_at_once_one_applies_and_the_chain_stays_whole(dsn: str) -> None:
    async with (
        stage(dsn, embedding="hash") as s,
        running_server(dsn, **model_settings(s.provider, embedding="hash")) as other,
        sage_client.connect_async(other.address, user="maria") as elsewhere,
    ):
        thread_id = await long_thread(s)
        asked, goes_on = asyncio.Event(), asyncio.Event()

        async def slowly(request: ProviderRequest) -> ProviderReply | StreamedReply:
            asked.set()
            await goes_on.wait()
            return await chat_reply("Too late.")(request)

        summarising(s, slowly, chat_reply("In time."))
        turn = asyncio.create_task(respond(s, thread_id))
        await asyncio.wait_for(asked.wait(), 30)
        assert (await summarize(elsewhere, thread_id)).applied
        before = await summaries(s.client, thread_id)
        goes_on.set()
        (told,) = only(await turn, TurnCompaction)
        assert (told.applied, told.reason, told.summary_id) == (False, None, "")
        chain = await summaries(s.client, thread_id)
        assert chain == before
        assert {one.text for one in chain} == {"In time."}
        assert "In time." in prompt_of(s.provider.chats[-1])[0]
        assert await found(s.client, "Too late", sources=[MemorySource.SUMMARY]) == ["In time."] * len(chain)


async def test_many_compactors_at_once_on_two_replicas_leave_one_whole_chain(dsn: str) -> None:
    async with (
        stage(dsn, embedding="hash") as s,
        running_server(dsn, **model_settings(s.provider, embedding="hash")) as other,
        sage_client.connect_async(other.address, user="maria") as elsewhere,
    ):
        thread_id = await long_thread(s, 120)
        summarising(s, chat_reply("They talked.", delay=0.02))
        clients = [s.client, elsewhere]
        turn = asyncio.create_task(respond(s, thread_id))
        await asyncio.gather(*(summarize(clients[n % 2], thread_id, 4 + n) for n in range(8)))
        events = await turn
        chain = await summaries(s.client, thread_id)
        assert chain[0].from_seq == 1
        assert sum(one.message_count for one in chain) == chain[-1].to_seq
        told = [one for one in only(events, TurnCompaction) if one.applied]
        assert {one.summary_id for one in told} <= {one.id for one in chain}
        await indexed(s.client)
        memories = [memory.id async for memory in s.client.memory.list() if memory.source == "summary"]
        # A summary that says the same as the one before it is not kept in memory twice.
        assert set(memories) == {chain[0].id}


async def test_a_message_that_waits_or_is_being_answered_is_never_summarised_away(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        thread_id = await long_thread(s, 8)
        goes_on, asked = asyncio.Event(), asyncio.Event()

        async def slowly(request: ProviderRequest) -> ProviderReply | StreamedReply:
            asked.set()
            await goes_on.wait()
            return await chat_reply(answer("I see."))(request)

        s.provider.chat = lambda request: chat_reply("Summed.") if is_summary(request) else slowly
        first = asyncio.create_task(
            heard(s.client.conversations.continue_(thread_id).respond("First question?"))
        )
        await asyncio.wait_for(asked.wait(), 30)
        waiting = s.client.conversations.continue_(thread_id).respond("Second question?")
        accepted = await anext(aiter(waiting))
        assert (await summarize(s.client, thread_id, keep=0)).applied
        (summary,) = await summaries(s.client, thread_id)
        items = [item async for item in s.client.conversations.items(thread_id)]
        assert summary.to_seq == items[-3].seq
        assert [item.text for item in items[-2:]] == ["First question?", "Second question?"]
        goes_on.set()
        await first
        await heard(s.client.turns.attach(accepted.turn_id))
        await waiting.close()
        assert "Second question?" in prompt_of(s.provider.chats[-1])[1].rpartition("Now:\n")[2]


async def test_a_summary_covers_what_is_not_to_be_recalled_and_does_not_tell_it(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        thread = await s.client.conversations.create("Garden")
        s.provider.script_chat(chat_reply(answer("Secret peas, then.")))
        await heard(s.client.conversations.continue_(thread.id).respond("My secret is peas.", store=False))
        await s.client.conversations.append(thread.id, [NewItem.user("I like beans.")] * 4)
        s.provider.script_chat(chat_reply("They like beans."))
        assert (await summarize(s.client, thread.id, keep=0)).applied
        (summary,) = await summaries(s.client, thread.id)
        assert (summary.from_seq, summary.to_seq) == (1, 6)
        told = prompt_of(s.provider.chats[-1])[1]
        assert "I like beans." in told
        assert "ecret" not in told


async def test_a_flag_or_the_agent_switches_compaction_off(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        thread_id = await long_thread(s)
        summarising(s, chat_reply("Never said."))
        await s.client.admin.set_flag("compaction", FlagScope.USER, enabled=False, external_id="maria")
        assert only(await respond(s, thread_id), TurnCompaction) == []
        await s.client.admin.clear_flag("compaction", FlagScope.USER, external_id="maria")
        off = CompactionSettings(mode=CompactionMode.OFF)
        await s.client.agents.update("main", compaction=off)
        assert only(await respond(s, thread_id), TurnCompaction) == []
        assert await summaries(s.client, thread_id) == []
        assert not any(is_summary(request) for request in s.provider.chats)
        await s.client.agents.update("main", compaction=None)
        assert only(await respond(s, thread_id), TurnCompaction)[-1].applied


async def test_a_long_summary_is_kept_short_enough_for_the_smallest_window(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        thread_id = await long_thread(s)
        rules = CompactionSettings(summary_words=2_000)
        await s.client.agents.update("main", max_context_tokens=2_000, compaction=rules)
        summarising(s, chat_reply("words " * 5_000))
        for text in ("Hello.", LONG, LONG, LONG):
            await respond(s, thread_id, text)
        assert max(map(prompt_tokens, s.provider.chats)) <= 2_000


async def test_tool_calls_and_their_outputs_are_summarised_together(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        await s.client.agents.update("main", max_context_tokens=2_500)
        await s.client.memory.insert(LONG)
        told: list[TurnCompaction] = []
        for _ in range(12):
            steps = [answer(calls=[("archival_search", {"query": "words"})] * 3), answer("I see.")]
            s.provider.chat = lambda request, steps=steps: chat_reply(
                "They searched." if is_summary(request) else steps.pop(0)
            )
            told += only(await heard(s.client.agent("main").chat("Look.")), TurnCompaction)
        s.provider.chat = None
        assert len(told) > 1
        assert max(map(prompt_tokens, s.provider.chats)) <= 2_500
        items = [item async for item in s.client.agent("main").items(show_hidden=True)]
        ends = {one.to_seq for one in told if one.applied}
        for number, item in enumerate(items):
            if item.kind is ItemKind.TOOL_CALL and item.tool is not None:
                output = next(o for o in items[number:] if o.tool and o.kind is ItemKind.TOOL_OUTPUT)
                assert not ends & set(range(item.seq, output.seq))
