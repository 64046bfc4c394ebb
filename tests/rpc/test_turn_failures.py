"""Turns that fail, with a reason that a caller can act on, and messages that no turn is made of."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    FlagScope,
    ItemKind,
    RetryPolicy,
    TurnAccepted,
    TurnDone,
    TurnFailed,
    TurnMessage,
    TurnStatus,
    TurnTyping,
)
from support.agents import answer, heard, model_settings, only, prompt_of, stage
from support.memory import indexed, texts
from support.provider import FakeProvider, Step, chat_reply, drop, error_reply, hang
from support.server import running_server

ONCE = RetryPolicy(max_attempts=1)


@dataclass(frozen=True)
class Fails:
    """How a model fails, and what is told of it."""

    reason: str
    steps: tuple[Step, ...]
    retryable: bool
    delay: float | None = None


TOO_MUCH = answer(calls=[("scratchpad_read", {})] * 33)
UNREADABLE = '{"messages": 7, "tool_calls": {"name"'
FAILURES = {
    "refused": Fails("MODEL_REFUSED", (chat_reply("no", finish="content_filter"),), retryable=False),
    "limited": Fails("MODEL_RATE_LIMITED", (error_reply(429, retry_after="7"),), retryable=True, delay=7),
    "slow": Fails("MODEL_TIMEOUT", (hang,), retryable=True, delay=1),
    "broken": Fails("MODEL_UNAVAILABLE", (error_reply(500),), retryable=True, delay=1),
    "gone": Fails("MODEL_UNAVAILABLE", (drop,), retryable=True, delay=1),
    "too long": Fails(
        "MODEL_CONTEXT_TOO_LONG", (error_reply(400, code="context_length_exceeded"),), retryable=False
    ),
    "silent": Fails("MODEL_OUTPUT_EMPTY", (chat_reply(" \n"),), retryable=True),
    "rejected": Fails("MODEL_REJECTED", (error_reply(401),), retryable=False),
    "garbage": Fails("MODEL_OUTPUT_INVALID", (chat_reply(UNREADABLE),) * 2, retryable=True),
    "corrected away": Fails(
        "MODEL_OUTPUT_INVALID", (chat_reply(TOO_MUCH), chat_reply(answer())), retryable=True
    ),
}


async def test_each_failure_of_a_model_ends_the_turn_with_its_reason_and_leaves_nothing(dsn: str) -> None:
    async with stage(dsn, llm_timeout=0.5, embedding="hash") as s:
        for number, (name, case) in enumerate(FAILURES.items()):
            async with sage_client.connect_async(s.server.address, user=f"user-{number}") as client:
                await client.agent("main").enable()
                s.provider.script_chat(*case.steps)
                events = await heard(client.agent("main").chat("Hello."))
                kinds = [type(event) for event in events]
                assert kinds == [TurnAccepted, TurnTyping, TurnFailed], name
                (failed,) = only(events, TurnFailed)
                told = (failed.reason, failed.retryable)
                assert told == (case.reason, case.retryable), name
                delay = None if case.delay is None else timedelta(seconds=case.delay)
                assert failed.retry_delay == delay, name
                assert failed.message, name
                turn = await client.turns.get(failed.turn_id)
                assert (turn.status, turn.error_reason) == (TurnStatus.FAILED, case.reason), name
                assert turn.retryable is case.retryable, name
                kinds_of_items = [item.kind async for item in client.agent("main").items(show_hidden=True)]
                assert kinds_of_items == [ItemKind.USER], name
                s.provider.script_chat(chat_reply(answer("Here.")))
                assert await client.agent("main").chat("Again.").text() == "Here.", name


async def test_what_was_done_before_a_failure_stays_and_what_failed_has_left_nothing(dsn: str) -> None:
    async with stage(dsn) as s:
        append = ("memory_append", {"label": "human", "text": "Her name is Maria."})
        s.provider.script_chat(chat_reply(answer("One moment.", calls=[append])), error_reply(500))
        with pytest.raises(sage_client.TurnFailedError) as failed:
            await s.client.agent("main").chat("Hello.").text()
        assert failed.value.messages == ("One moment.",)
        event = failed.value.event
        assert (event.reason, event.step_count, event.message_count) == ("MODEL_UNAVAILABLE", 1, 1)
        assert event.usage == sage_client.TokenUsage(7, 5, 0, 1)
        assert (await s.client.memory.blocks.get("human")).value == "Her name is Maria."
        assert len([item async for item in s.client.agent("main").items()]) == 4


async def test_an_unreadable_answer_is_corrected_once_and_both_calls_are_counted(dsn: str) -> None:
    async with stage(dsn) as s:
        events = await heard(s.chat("Hello.", UNREADABLE, answer("As I meant.")))
        assert [message.text for message in only(events, TurnMessage)] == ["As I meant."]
        (done,) = only(events, TurnDone)
        assert (done.usage.model_calls, done.usage.prompt_tokens) == (2, 14)
        assert json.loads(prompt_of(s.provider.chats[1])[1]) == {"text": UNREADABLE}


@pytest.mark.parametrize("correction", [chat_reply(UNREADABLE), chat_reply(" "), error_reply(500)])
async def test_prose_that_no_correction_shapes_is_a_message(dsn: str, correction: Step) -> None:
    async with stage(dsn, embedding="hash") as s:
        s.provider.script_chat(chat_reply("Good morning, Maria."), correction)
        events = await heard(s.client.agent("main").chat("Hello."))
        assert [message.text for message in only(events, TurnMessage)] == ["Good morning, Maria."]
        assert only(events, TurnDone)


async def test_no_word_of_anybody_is_in_the_log_of_a_turn_that_failed(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    garbage = chat_reply('{"secret beans"')
    async with stage(dsn, log_level="debug") as s:
        for steps in ((error_reply(401, "your secret beans"),), (garbage, garbage)):
            s.provider.script_chat(*steps)
            assert only(await heard(s.client.agent("main").chat("My secret beans.")), TurnFailed)
    assert caplog.records
    assert "secret beans" not in caplog.text


async def refused(client: AsyncSageClient, agent: str = "main") -> sage_client.SageError:
    """Why a message was not accepted. Nothing of it is stored."""
    before = [turn.id async for turn in client.turns.list()]
    with pytest.raises(sage_client.SageError) as error:
        await heard(client.agent(agent).chat("Hello."))
    assert [turn.id async for turn in client.turns.list()] == before
    return error.value


async def test_a_message_to_nobody_is_refused_before_it_is_accepted(dsn: str) -> None:
    async with (
        stage(dsn) as s,
        sage_client.connect_async(s.server.address, user="nobody", retry=ONCE) as stranger,
    ):
        assert (await refused(s.client, "scout")).reason == "NOT_FOUND"
        assert (await refused(s.client, str(uuid4()))).reason == "NOT_FOUND"
        assert (await refused(stranger)).reason == "NOT_FOUND"
        with pytest.raises(sage_client.NotFound):
            await heard(s.client.conversations.continue_(str(uuid4())).respond("Hello."))


async def test_a_disabled_agent_and_switched_off_turns_refuse_before_anything_is_accepted(dsn: str) -> None:
    async with stage(dsn) as s:
        thread = await s.client.conversations.create("Garden")
        await s.client.agents.update("main", enabled=False)
        disabled = await refused(s.client)
        assert isinstance(disabled, sage_client.FailedPrecondition)
        assert disabled.reason == "AGENT_DISABLED"
        with pytest.raises(sage_client.FailedPrecondition) as in_a_thread:
            await heard(s.client.conversations.continue_(thread.id).respond("Hello."))
        assert in_a_thread.value.reason == "AGENT_DISABLED"
        await s.client.agent("main").enable()
        await s.client.admin.set_flag("turns", FlagScope.USER, enabled=False, external_id="maria")
        off = await refused(s.client)
        assert isinstance(off, sage_client.FailedPrecondition)
        assert off.reason == "FEATURE_DISABLED"
        await s.client.admin.clear_flag("turns", FlagScope.USER, external_id="maria")
        assert await s.chat("Hello.", answer("Yes?")).text() == "Yes?"


async def test_without_a_model_no_message_is_accepted(dsn: str) -> None:
    async with (
        running_server(dsn, offline_model=False) as server,
        sage_client.connect_async(server.address, user="maria", retry=ONCE) as client,
    ):
        await client.agent("main").enable()
        error = await refused(client)
        assert isinstance(error, sage_client.FailedPrecondition)
        assert error.reason == "MODEL_NOT_CONFIGURED"


async def test_a_repeat_shows_the_turn_even_if_by_now_it_would_be_refused(dsn: str) -> None:
    async with FakeProvider.running() as provider:
        request_id = str(uuid4())
        settings = model_settings(provider, embedding="hash")
        async with (
            running_server(dsn, **settings) as server,
            sage_client.connect_async(server.address, user="maria", retry=ONCE) as client,
        ):
            await client.agent("main").enable()
            provider.script_chat(chat_reply(answer("Yes?")))
            first = await heard(client.agent("main").chat("Hello.", request_id=request_id))
            await client.agents.update("main", enabled=False)
            assert await heard(client.agent("main").chat("Hello.", request_id=request_id)) == first
            with pytest.raises(sage_client.InvalidArgument) as reused:
                await heard(client.agent("main").chat("Other words.", request_id=request_id))
            assert reused.value.reason == "REQUEST_ID_REUSED"


async def test_a_message_can_be_searched_whatever_becomes_of_its_turn(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        agent, never = s.client.agent("main"), asyncio.Event()
        await heard(s.chat("answered", answer("Said.", "Said again.")))
        await heard(s.chat("silent", answer()))
        await heard(s.chat("forgotten", answer("Not kept."), store=False))
        s.provider.script_chat(error_reply(401))
        await heard(agent.chat("failed"))
        s.provider.script_chat(chat_reply(answer("Never."), hold=never))
        running = agent.chat("running")
        await anext(aiter(running))
        waiting = agent.chat("waiting")
        await anext(aiter(waiting))
        for chat in (waiting, running):
            await chat.cancel()
        await indexed(s.client)
        said = {"answered", "Said.", "Said again.", "silent", "failed", "running", "waiting"}
        assert set(await texts(s.client)) == said
