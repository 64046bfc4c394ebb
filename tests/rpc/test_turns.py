"""Turns through the real client and server: their events in order, what they leave, and how they are read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

import sage_client
from sage_client import (
    CancelCause,
    EventChannel,
    ItemKind,
    MemorySource,
    MemoryTrust,
    RetryPolicy,
    StopReason,
    TokenUsage,
    ToolOutcome,
    TurnAccepted,
    TurnCancelled,
    TurnDelta,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnMessage,
    TurnOrigin,
    TurnRetrieval,
    TurnSilent,
    TurnStatus,
    TurnToolCall,
    TurnToolResult,
    TurnTyping,
)
from sage_server.domain.usage import UsagePurpose
from support.agents import MODEL, Stage, answer, heard, only, plain, prompt_of, stage, usage
from support.provider import chat_reply, error_reply

FIVE_STEPS = (
    answer("Nice to meet you.", calls=[("scratchpad_write", {"items": ["ask about beans"]})]),
    answer(calls=[("memory_append", {"label": "human", "text": "Her name is Maria."})]),
    answer(calls=[("archival_insert", {"text": "Maria sows beans in May.", "tags": ["Garden"]})]),
    answer(calls=[("archival_search", {"query": "when to sow beans"})]),
    answer("I will remember.", calls=[("done", {})]),
)
COSTS = [(11, 2), (13, 3), (17, 5), (19, 7), (23, 29)]


async def five_steps(s: Stage, **options: Any) -> list[TurnEvent]:
    replies = zip(FIVE_STEPS, COSTS, strict=True)
    s.provider.script_chat(*(chat_reply(step, usage=cost) for step, cost in replies))
    return await heard(s.chat("Hello, I am Maria.", **options))


async def asked(s: Stage, times: int) -> None:
    """Wait until the model has been asked so often: `typing` comes before it is."""
    async with asyncio.timeout(30):
        while len(s.provider.chats) < times:  # noqa: ASYNC110 (the provider has no event for it)
            await asyncio.sleep(0.01)


async def test_five_steps_tell_the_events_of_the_contract_in_order(dsn: str) -> None:
    async with stage(dsn) as s:
        request_id = str(uuid4())
        events = await five_steps(s, request_id=request_id)
        main = await s.client.agent("main").get()
    called = [TurnToolCall, TurnToolResult]
    by_step = [
        [TurnTyping, TurnMessage, *called],
        [TurnTyping, *called],
        [TurnTyping, *called],
        [TurnTyping, TurnToolCall, TurnRetrieval, TurnToolResult],
        [TurnTyping, TurnMessage, *called, TurnDone],
    ]
    steps = [(number, kind) for number, of in enumerate(by_step, 1) for kind in of]
    assert [(event.step, type(event)) for event in events] == [(0, TurnAccepted), *steps]
    assert [event.event_id for event in events] == list(range(1, len(events) + 1))
    for event in events:
        assert (event.agent_id, event.turn_id) == (main.id, events[0].turn_id)
        assert (event.conversation_id, event.channel) == ("", EventChannel.TURN)
    accepted, done = events[0], events[-1]
    assert isinstance(accepted, TurnAccepted)
    assert accepted.input is not None
    assert (accepted.input.text, accepted.input.seq) == ("Hello, I am Maria.", 1)
    assert (accepted.agent, accepted.queue_position, accepted.request_id) == ("main", 0, request_id)
    assert {typing.model for typing in only(events, TurnTyping)} == {MODEL}
    calls, results = only(events, TurnToolCall), only(events, TurnToolResult)
    assert [call.call_id for call in calls] == [result.call_id for result in results]
    assert len({call.call_id for call in calls}) == len(calls)
    assert {result.outcome for result in results} == {ToolOutcome.OK}
    assert isinstance(done, TurnDone)
    assert (done.stop_reason, done.step_count) == (StopReason.DONE_TOOL, 5)
    assert (done.message_count, done.tool_call_count) == (2, 5)


async def test_five_steps_leave_a_changed_block_a_memory_and_items(dsn: str) -> None:
    async with stage(dsn) as s:
        events = await five_steps(s)
        results = only(events, TurnToolResult)
        block = await s.client.memory.blocks.get("human")
        assert (block.value, block.id) == ("Her name is Maria.", results[1].block_id)
        memory = await s.client.memory.get(results[2].memory_id)
        assert (memory.text, memory.tags) == ("Maria sows beans in May.", ("garden",))
        assert (memory.trust, memory.provenance.turn_id) == (MemoryTrust.AGENT, events[0].turn_id)
        assert (await s.client.memory.scratchpads.get(agent="main")).items == ("ask about beans",)
        items = [item async for item in s.client.agent("main").items()]
    (retrieval,) = only(events, TurnRetrieval)
    assert (retrieval.call_id, retrieval.query) == (results[3].call_id, "when to sow beans")
    assert retrieval.sources == (MemorySource.ARCHIVAL, MemorySource.DOCUMENT)
    (found,) = retrieval.results
    assert found.memory == memory
    assert set(found.matched_terms) == {"sow", "beans"}
    assert (found.rank, found.vector_score is not None) == (1, True)
    one_call = [ItemKind.TOOL_CALL, ItemKind.TOOL_OUTPUT]
    said = [ItemKind.ASSISTANT, *one_call]
    assert [item.kind for item in items] == [ItemKind.USER, *said, *one_call * 3, *said]
    assert [item.seq for item in items] == list(range(1, len(items) + 1))
    assert {item.turn_id for item in items} == {events[0].turn_id}
    shown = [message.item for message in only(events, TurnMessage)]
    assert shown == [item for item in items if item.kind is ItemKind.ASSISTANT]
    outputs = {item.id: item.text for item in items if item.kind is ItemKind.TOOL_OUTPUT}
    assert {result.item_id: result.output for result in results} == outputs


async def test_what_a_turn_costs_is_counted_once_in_the_providers_own_counts(dsn: str) -> None:
    async with stage(dsn) as s:
        request_id = str(uuid4())
        events = await five_steps(s, request_id=request_id)
        await heard(s.chat("Hello, I am Maria.", request_id=request_id))
        turn = await s.client.turns.get(events[0].turn_id)
        (record,) = await usage(s.client, UsagePurpose.STEP)
    cost = TokenUsage(sum(prompt for prompt, _ in COSTS), sum(said for _, said in COSTS), 0, 5)
    (done,) = only(events, TurnDone)
    assert done.usage == turn.usage == cost
    assert (record.calls, record.model) == (5, MODEL)
    assert (record.prompt_tokens, record.completion_tokens) == (cost.prompt_tokens, cost.completion_tokens)
    assert (turn.status, turn.origin, turn.agent) == (TurnStatus.DONE, TurnOrigin.CHAT, "main")
    assert (turn.stop_reason, turn.step, turn.request_id) == (StopReason.DONE_TOOL, 5, request_id)
    assert (turn.first_event_id, turn.last_event_id) == (1, len(events))


async def test_what_one_turn_kept_is_found_by_a_turn_in_another_thread(dsn: str) -> None:
    async with stage(dsn) as s:
        first = await heard(s.chat("Hello, I am Maria.", *FIVE_STEPS))
        kept = only(first, TurnToolResult)[2].memory_id
        thread = await s.client.conversations.create("Garden")
        steps = (answer(calls=[("archival_search", {"query": "beans"})]), answer("In May."))
        s.provider.script_chat(*map(chat_reply, steps))
        events = await heard(s.client.conversations.continue_(thread.id).respond("When do I sow beans?"))
        (retrieval,) = only(events, TurnRetrieval)
        assert [result.memory.id for result in retrieval.results] == [kept]
        assert {event.conversation_id for event in events} == {thread.id}
        assert [message.text for message in only(events, TurnMessage)] == ["In May."]
        system, conversation = prompt_of(s.provider.chats[-1])
        assert "Her name is Maria." in system
        assert "Maria sows beans in May." in conversation
        texts = [item.text async for item in s.client.conversations.items(thread.id)]
        assert (texts[0], texts[-1]) == ("When do I sow beans?", "In May.")


async def test_deltas_are_words_and_together_the_messages(dsn: str) -> None:
    said = ('She said "tea"\nand 😀 smiled; é', "Second: {not} [JSON]")
    async with stage(dsn) as s:
        call = ("scratchpad_write", {"items": ["never shown as words"]})
        s.provider.script_chat(
            chat_reply(answer(*said, calls=[call]), piece=3), chat_reply(answer("Last."), piece=1)
        )
        events = await heard(s.chat("Talk to me.", deltas=True))
        told: dict[tuple[int, int], str] = {}
        for delta in only(events, TurnDelta):
            assert delta.event_id == 0
            key = (delta.step, delta.index)
            assert delta.offset == len(told.get(key, ""))
            told[key] = told.get(key, "") + delta.text
        messages = {(one.step, one.index): one.text for one in only(events, TurnMessage)}
        assert told == messages == {(1, 0): said[0], (1, 1): said[1], (2, 0): "Last."}
        assert len(only(events, TurnDelta)) > 10
        assert all(request.body.get("stream") for request in s.provider.chats)

        again = await heard(s.client.turns.attach(events[0].turn_id, deltas=True))
        assert again == [event for event in events if not isinstance(event, TurnDelta)]


async def test_words_are_seen_while_the_model_still_writes(dsn: str) -> None:
    async with stage(dsn) as s:
        writes_on = asyncio.Event()
        s.provider.script_chat(chat_reply(answer("Hello Maria."), piece=20, hold=writes_on))
        async with s.client.agent("main").chat("Hello.", deltas=True) as chat:
            async for event in chat:
                if isinstance(event, TurnDelta):
                    assert not writes_on.is_set() or event.offset
                    writes_on.set()
            assert await chat.text() == "Hello Maria."


async def test_a_turn_is_attached_to_after_any_of_its_events(dsn: str) -> None:
    async with stage(dsn) as s:
        await heard(s.chat("Before.", answer("Yes?")))
        events = await heard(s.chat("Hello, I am Maria.", *FIVE_STEPS))
        turn_id = events[0].turn_id
        for seen in (0, events[0].event_id, events[7].event_id, events[-2].event_id):
            later = [event for event in events if event.event_id > seen]
            assert await heard(s.client.turns.attach(turn_id, after_event_id=seen)) == later
        assert await heard(s.client.turns.attach(turn_id, after_event_id=events[-1].event_id)) == []
        with pytest.raises(sage_client.InvalidArgument) as invalid:
            await heard(s.client.turns.attach(turn_id, after_event_id=10_000))
        assert invalid.value.reason == "EVENT_CURSOR_INVALID"


async def test_whoever_leaves_stops_nothing(dsn: str) -> None:
    async with stage(dsn) as s:
        writes_on = asyncio.Event()
        s.provider.script_chat(chat_reply(answer("Hello Maria."), hold=writes_on))
        async with s.client.agent("main").chat("Hello.") as chat:
            async for event in chat:
                if isinstance(event, TurnTyping):
                    break
            turn_id = chat.turn_id
        writes_on.set()
        events = await heard(s.client.turns.attach(turn_id))
        assert [message.text for message in only(events, TurnMessage)] == ["Hello Maria."]
        assert isinstance(events[-1], TurnDone)


async def test_a_cancelled_turn_leaves_the_model_and_says_who_cancelled_it(dsn: str) -> None:
    async with stage(dsn) as s:
        never = asyncio.Event()
        first = answer("One moment.", calls=[("scratchpad_write", {"items": ["kept"]})])
        s.provider.script_chat(chat_reply(first), chat_reply(answer("Too late."), hold=never))
        events = []
        async for event in (chat := s.client.agent("main").chat("Hello.")):
            events.append(event)
            if isinstance(event, TurnTyping) and event.step == 2:
                await asked(s, 2)
                cancelled = await chat.cancel()
                assert (cancelled.status, cancelled.cancel_cause) == (
                    TurnStatus.CANCELLED,
                    CancelCause.CALLER,
                )
        last = events[-1]
        assert isinstance(last, TurnCancelled)
        assert (last.cause, last.step_count, last.message_count) == (CancelCause.CALLER, 1, 1)
        assert (await s.client.memory.scratchpads.get(agent="main")).items == ("kept",)
        again = await s.client.turns.cancel(chat.turn_id)
        assert plain(again) == plain(await s.client.turns.get(chat.turn_id))
        async with asyncio.timeout(30):
            await s.provider.left.wait()
        assert await s.chat("Again.", answer("Here I am.")).text() == "Here I am."


async def test_cancelling_a_turn_that_has_ended_changes_nothing(dsn: str) -> None:
    async with stage(dsn) as s:
        events = await heard(s.chat("Hello.", answer("Yes?")))
        turn = await s.client.turns.get(events[0].turn_id)
        assert plain(await s.client.turns.cancel(turn.id)) == plain(turn)
        assert turn.status is TurnStatus.DONE
        assert await heard(s.client.turns.attach(turn.id)) == events


async def test_an_agent_that_says_nothing_leaves_a_hidden_item(dsn: str) -> None:
    async with stage(dsn) as s:
        events = await heard(s.chat("Say nothing.", answer()))
        assert [type(event) for event in events] == [TurnAccepted, TurnTyping, TurnSilent, TurnDone]
        (silent,), (done,) = only(events, TurnSilent), only(events, TurnDone)
        assert (done.stop_reason, done.message_count) == (StopReason.SILENT, 0)
        agent = s.client.agent("main")
        assert [item.text async for item in agent.items()] == ["Say nothing."]
        hidden = [item async for item in agent.items(show_hidden=True)][-1]
        assert (hidden.id, hidden.hidden, hidden.kind) == (silent.item_id, True, ItemKind.ASSISTANT)


async def test_turns_are_listed_the_newest_first_by_every_condition_and_page_by_page(dsn: str) -> None:
    async with stage(dsn) as s:
        await s.client.agents.create("scout")
        thread = await s.client.conversations.create("Garden")
        began = datetime.now(UTC)
        done = (await heard(s.chat("One.", answer("1"))))[0].turn_id
        s.provider.script_chat(error_reply(500))
        failed = (await heard(s.chat("Two.")))[0].turn_id
        of_scout = (await heard(s.chat("Three.", answer("3"), agent="scout")))[0].turn_id
        s.provider.script_chat(chat_reply(answer("4")))
        responded = (await heard(s.client.conversations.continue_(thread.id).respond("Four.")))[0].turn_id
        held = asyncio.Event()
        s.provider.script_chat(chat_reply(answer("5"), hold=held))
        chat = s.client.agent("main").chat("Five.")
        before = len(s.provider.chats)
        async for event in chat:
            if isinstance(event, TurnTyping):
                await asked(s, before + 1)
                running = await s.client.turns.get(chat.turn_id)
                assert (running.status, running.end_time) == (TurnStatus.RUNNING, None)
                await chat.cancel()
        cancelled = chat.turn_id
        every = [cancelled, responded, of_scout, failed, done]
        turns = s.client.turns
        assert [turn.id async for turn in turns.list()] == every
        for size in (1, 2, 3):
            assert [turn.id async for turn in turns.list(page_size=size)] == every
        assert [turn.id async for turn in turns.list(agent="scout")] == [of_scout]
        assert [turn.id async for turn in turns.list(conversation_id=thread.id)] == [responded]
        assert [turn.id async for turn in turns.list(statuses=[TurnStatus.DONE])] == [
            responded,
            of_scout,
            done,
        ]
        ended_badly = [TurnStatus.FAILED, TurnStatus.CANCELLED]
        assert [turn.id async for turn in turns.list(statuses=ended_badly)] == [cancelled, failed]
        assert [turn.id async for turn in turns.list(origins=[TurnOrigin.RESPOND])] == [responded]
        assert [turn.id async for turn in turns.list(after=began)] == every
        assert [turn.id async for turn in turns.list(before=began)] == []
        third = await turns.get(of_scout)
        later = third.create_time + timedelta(microseconds=1)
        assert [turn.id async for turn in turns.list(after=third.create_time, before=later)] == [of_scout]
        for missing in (turns.list(agent="nobody"), turns.list(conversation_id=str(uuid4()))):
            with pytest.raises(sage_client.NotFound):
                await anext(missing)
        with pytest.raises(sage_client.NotFound):
            await turns.get(str(uuid4()))


async def test_a_repeated_message_attaches_and_another_body_is_refused(dsn: str) -> None:
    once = RetryPolicy(max_attempts=1)
    async with (
        stage(dsn) as s,
        sage_client.connect_async(s.server.address, user="maria", retry=once) as client,
    ):
        request_id = str(uuid4())
        first = await heard(s.chat("Hello.", answer("Yes?"), request_id=request_id))
        again = await heard(client.agent("main").chat("Hello.", request_id=request_id))
        assert again == first
        for other in ("Hello!", "Hello. "):
            with pytest.raises(sage_client.InvalidArgument) as reused:
                await heard(client.agent("main").chat(other, request_id=request_id))
            assert reused.value.reason == "REQUEST_ID_REUSED"
        assert len([turn async for turn in client.turns.list()]) == 1
        assert not only(first, TurnFailed)
