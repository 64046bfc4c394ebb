"""Turns that reach a limit: what they said and did stays, and they say which limit it was."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import sage_client
from sage_client import StopReason, TurnDone, TurnFailed, TurnMessage, TurnStatus
from support.agents import Call, answer, heard, only, stage
from support.clock import FakeClock
from support.provider import Answering, ProviderReply, ProviderRequest, StreamedReply, chat_reply

NOTE: Call = ("scratchpad_write", {"items": ["x"]})


@pytest.mark.parametrize("most", [1, 3])
async def test_a_turn_takes_only_as_many_steps_as_it_may(dsn: str, most: int) -> None:
    async with stage(dsn, embedding="hash") as s:
        await s.client.agents.update("main", max_steps=most)
        events = await heard(s.chat("Go on.", *[answer("More.", calls=[NOTE])] * most))
        (done,) = only(events, TurnDone)
        assert (done.stop_reason, done.step_count) == (StopReason.STEP_LIMIT, most)
        assert len(only(events, TurnMessage)) == most
        assert (await s.client.memory.scratchpads.get()).items == ("x",)


async def test_a_turn_uses_only_as_many_tokens_as_it_may(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        await s.client.agents.update("main", max_turn_tokens=250)
        step = chat_reply(answer("More.", calls=[NOTE]), usage=(100, 20))
        s.provider.script_chat(*[step] * 3)
        (done,) = only(await heard(s.client.agent("main").chat("Go on.")), TurnDone)
        assert (done.stop_reason, done.step_count) == (StopReason.TOKEN_LIMIT, 3)
        assert done.usage.prompt_tokens == 300

        silent = chat_reply(answer(calls=[NOTE]), usage=(250, 0))
        s.provider.script_chat(silent)
        with pytest.raises(sage_client.TurnFailedError) as failed:
            await s.client.agent("main").chat("Go on.").text()
        assert (failed.value.reason, failed.value.retryable) == ("TURN_LIMIT_EXCEEDED", False)
        assert (await s.client.memory.scratchpads.get()).items == ("x",)


def later(step: Answering, clock: FakeClock, by: timedelta) -> Answering:
    """The same answer, while time passes."""

    async def answering(request: ProviderRequest) -> ProviderReply | StreamedReply:
        clock.advance(by)
        return await step(request)

    return answering


async def test_a_turn_ends_when_its_time_is_over_before_the_next_step(dsn: str) -> None:
    clock = FakeClock()
    async with stage(dsn, clock, embedding="hash") as s:
        await s.client.agents.update("main", max_turn_duration=timedelta(minutes=5))
        first = chat_reply(answer("More.", calls=[NOTE]))
        s.provider.script_chat(later(first, clock, timedelta(minutes=6)))
        (done,) = only(await heard(s.client.agent("main").chat("Go on.")), TurnDone)
        assert (done.stop_reason, done.step_count) == (StopReason.TIME_LIMIT, 1)
        assert done.duration >= timedelta(minutes=6)


@pytest.mark.parametrize("says_something", [True, False])
async def test_a_turn_ends_when_its_time_is_over_while_the_model_thinks(
    dsn: str, *, says_something: bool
) -> None:
    clock = FakeClock()
    async with stage(dsn, clock, embedding="hash") as s:
        await s.client.agents.update("main", max_turn_duration=timedelta(minutes=5))
        first = chat_reply(answer(*["More."] * says_something, calls=[NOTE]), usage=(10, 0))
        never = chat_reply(answer("Late."), hold=asyncio.Event())
        s.provider.script_chat(later(first, clock, timedelta(seconds=298)), never)
        events = await heard(s.client.agent("main").chat("Go on."))
        turn = await s.client.turns.get(events[0].turn_id)
        if says_something:
            assert only(events, TurnDone)[0].stop_reason is StopReason.TIME_LIMIT
            assert turn.status is TurnStatus.DONE
        else:
            (failed,) = only(events, TurnFailed)
            assert (failed.reason, failed.step_count) == ("TURN_LIMIT_EXCEEDED", 1)
            assert turn.status is TurnStatus.FAILED
        assert turn.usage.prompt_tokens == 10
