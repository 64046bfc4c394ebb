"""Turns on several replicas: one turn at a time in a thread, and one turn a request, wherever it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

import sage_client
from sage_client import (
    CancelCause,
    OnBusy,
    StopReason,
    TurnAccepted,
    TurnMessage,
    TurnStatus,
)
from support.agents import answer, heard, only, plain, prompt_of
from support.provider import ProviderRequest, Step, chat_reply, hang
from support.turn_replicas import Replicas, begun, cancelled, done, said, two_replicas


@pytest.fixture
async def replicas(dsn: str) -> AsyncIterator[Replicas]:
    async with two_replicas(dsn) as both:
        yield both


def echo(request: ProviderRequest) -> Step:
    """Say what the message was, at once."""
    _, conversation = prompt_of(request)
    line = json.loads(conversation.rpartition("Now:\n")[2].splitlines()[0])
    return chat_reply(answer(f"You said: {line['text']}"))


async def test_a_request_id_is_one_turn_however_often_and_wherever_it_is_sent(replicas: Replicas) -> None:
    replicas.provider.script_chat(chat_reply(answer("Hello.")))
    for policy in OnBusy:
        request_id = str(uuid4())
        if policy is not OnBusy.QUEUE:
            replicas.provider.script_chat(chat_reply(answer("Hello.")))
        chats = [
            replicas.at(number).agent("main").chat("Hi", request_id=request_id, on_busy=policy)
            for number in range(5)
        ]
        streams = await asyncio.gather(*map(heard, chats))
        assert all(stream == streams[0] for stream in streams)
        assert said(streams[0]) == ["Hello."]
        done(streams[0])
    assert len(replicas.provider.chats) == len(OnBusy)
    assert len([turn async for turn in replicas.here.turns.list()]) == len(OnBusy)


async def test_a_stream_on_another_replica_shows_the_turn_while_it_runs(replicas: Replicas) -> None:
    goes_on = asyncio.Event()
    replicas.provider.script_chat(
        chat_reply(answer("First.", calls=[("scratchpad_read", {})])),
        chat_reply(answer("Second."), hold=goes_on),
    )
    own = replicas.here.agent("main").chat("Hi")
    accepted = await begun(own)
    attached, seen = replicas.there.turns.attach(accepted.turn_id), []
    async for event in attached:
        seen.append(plain(event))
        if isinstance(event, TurnMessage) and event.text == "First.":
            goes_on.set()
    assert seen == [accepted, *await heard(own)]
    assert said(seen) == ["First.", "Second."]


async def test_a_disconnect_is_not_a_cancel(replicas: Replicas) -> None:
    goes_on = asyncio.Event()
    replicas.provider.script_chat(
        chat_reply(answer("One.", calls=[("scratchpad_read", {})]), hold=goes_on), chat_reply(answer("Two."))
    )
    async with replicas.here.agent("main").chat("Hi") as chat:
        accepted = await begun(chat)
    await replicas.provider.asked.wait()
    goes_on.set()
    streams = [
        await heard(client.turns.attach(accepted.turn_id)) for client in (replicas.there, replicas.here)
    ]
    assert streams[0] == streams[1]
    assert streams[0][0] == accepted
    assert said(streams[0]) == ["One.", "Two."]
    assert done(streams[0]).stop_reason is StopReason.ANSWERED
    later = replicas.here.turns.attach(accepted.turn_id, after_event_id=streams[0][2].event_id)
    assert await heard(later) == streams[0][3:]


async def test_a_turn_may_take_longer_than_a_lease(dsn: str) -> None:
    async with two_replicas(dsn, turn_lease=1) as replicas:
        replicas.provider.script_chat(chat_reply(answer("At last."), delay=2.5))
        assert await replicas.here.agent("main").chat("Hi").text() == "At last."
        assert len(replicas.provider.chats) == 1


async def test_a_message_to_a_busy_agent_waits_and_its_turn_sees_the_answer_before(
    replicas: Replicas,
) -> None:
    goes_on = asyncio.Event()
    replicas.provider.script_chat(
        chat_reply(answer("The cake is a lie."), hold=goes_on), chat_reply(answer("As I said."))
    )
    first, second = replicas.here.agent("main").chat("Cake?"), replicas.there.agent("main").chat("Sure?")
    assert (await begun(first)).queue_position == 0
    waiting = await begun(second)
    assert waiting.queue_position == 1
    assert (await replicas.here.turns.get(waiting.turn_id)).status is TurnStatus.QUEUED
    goes_on.set()
    before, after = await heard(first), await heard(second)
    assert done(before).event_id < after[0].event_id
    assert said(after) == ["As I said."]
    sooner, later = (prompt_of(request)[1] for request in replicas.provider.chats)
    assert "Sure?" not in sooner
    assert later.index("Cake?") < later.index("The cake is a lie.") < later.index("Sure?")


async def test_messages_that_come_at_once_run_in_the_order_that_they_are_told(replicas: Replicas) -> None:
    """Each is told how many are before it, and sees all of those, and none of the others."""
    replicas.provider.chat = echo
    chats = [replicas.at(number).agent("main").chat(f"Number {number}") for number in range(8)]
    streams = await asyncio.gather(*map(heard, chats))
    streams.sort(key=lambda stream: stream[0].event_id)
    ends = [done(stream).event_id for stream in streams]
    assert ends == sorted(ends)
    texts = [one.input.text for (one,) in (only(stream, TurnAccepted) for stream in streams) if one.input]
    assert [said(stream) for stream in streams] == [[f"You said: {text}"] for text in texts]
    for number, request in enumerate(replicas.provider.chats):
        _, conversation = prompt_of(request)
        assert [text in conversation for text in texts] == [True] * (number + 1) + [False] * (7 - number)


async def test_the_place_in_the_queue_is_exact(replicas: Replicas) -> None:
    goes_on = asyncio.Event()
    replicas.provider.script_chat(chat_reply(answer("One."), hold=goes_on))
    replicas.provider.chat = echo
    running = replicas.here.agent("main").chat("One")
    await begun(running)
    chats = [replicas.at(number).agent("main").chat(f"Number {number}") for number in range(12)]
    places = [one.queue_position for one in await asyncio.gather(*map(begun, chats))]
    assert sorted(places) == list(range(1, 13))
    goes_on.set()
    await asyncio.gather(*map(heard, [running, *chats]))


async def test_a_message_that_must_not_wait_is_refused_with_the_turn_that_is_in_its_way(
    replicas: Replicas,
) -> None:
    goes_on = asyncio.Event()
    replicas.provider.script_chat(chat_reply(answer("One."), hold=goes_on), chat_reply(answer("Two.")))
    running = replicas.here.agent("main").chat("One")
    turn_id = (await begun(running)).turn_id
    for client in (replicas.here, replicas.there):
        with pytest.raises(sage_client.Aborted) as refused:
            await client.agent("main").chat("Two", on_busy=OnBusy.REJECT).text()
        assert (refused.value.reason, refused.value.metadata) == ("TURN_BUSY", {"turn_id": turn_id})
        with pytest.raises(sage_client.Aborted) as refused:
            await client.agent("main").clear()
        assert (refused.value.reason, refused.value.metadata) == ("TURN_BUSY", {"turn_id": turn_id})
    goes_on.set()
    await heard(running)
    assert await replicas.there.agent("main").chat("Two", on_busy=OnBusy.REJECT).text() == "Two."
    assert len([item async for item in replicas.here.agent("main").items()]) == 4
    assert (await replicas.there.agent("main").clear()).deleted_item_count == 4


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_interruption_ends_what_runs_and_what_waits_and_stops_the_model(
    replicas: Replicas, elsewhere: bool
) -> None:
    replicas.provider.script_chat(hang, chat_reply(answer("At your service.")))
    running, waiting = (replicas.here.agent("main").chat(text) for text in ("One", "Two"))
    for chat in (running, waiting):
        await begun(chat)
    await replicas.provider.asked.wait()
    client = replicas.there if elsewhere else replicas.here
    stream = await heard(client.agent("main").chat("Stop!", on_busy=OnBusy.INTERRUPT))
    assert said(stream) == ["At your service."]
    assert only(stream, TurnAccepted)[0].queue_position == 0
    for chat in (running, waiting):
        end = cancelled(await heard(chat))
        assert end.cause is CancelCause.INTERRUPTED
        assert end.interrupted_by_turn_id == stream[0].turn_id
    async with asyncio.timeout(10):
        await replicas.provider.left.wait()


async def test_a_queue_has_an_end(replicas: Replicas) -> None:
    replicas.provider.script_chat(hang, chat_reply(answer("Free again.")))
    chats = [replicas.at(number).agent("main").chat(f"Number {number}") for number in range(17)]
    accepted = [await begun(chat) for chat in chats]
    assert [one.queue_position for one in accepted] == list(range(17))
    once = replicas.there.with_options(retry=sage_client.RetryPolicy(max_attempts=1))
    with pytest.raises(sage_client.ResourceExhausted) as refused:
        await once.agent("main").chat("One too many").text()
    assert (refused.value.reason, refused.value.metadata) == ("TURN_QUEUE_FULL", {"limit": "16"})
    assert refused.value.retry_after is not None
    assert await once.agent("main").chat("Stop!", on_busy=OnBusy.INTERRUPT).text() == "Free again."
    ends = [cancelled(await heard(chat)) for chat in chats]
    assert {end.cause for end in ends} == {CancelCause.INTERRUPTED}
    assert sum("One too many" in prompt_of(request)[1] for request in replicas.provider.chats) == 0
