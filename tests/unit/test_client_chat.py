"""Chats against a server on a real socket that breaks its streams."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import pytest
from google.protobuf.duration_pb2 import Duration

import sage_client
from sage.v1 import agent_pb2, error_reason_pb2
from sage.v1 import agent_service_pb2 as pb
from sage.v1 import conversation_service_pb2 as conversation_pb
from sage.v1 import turn_event_pb2 as events_pb
from sage_client import (
    AsyncSageClient,
    CancelCause,
    EventChannel,
    OnBusy,
    RetryPolicy,
    SageClient,
    TurnAccepted,
    TurnDelta,
    TurnDone,
    TurnEvent,
    TurnMessage,
    TurnStatus,
)
from support.agent_server import AgentServer, Break, running
from support.turn_log import (
    BREAKS,
    CODE,
    LOG,
    MINE,
    QUICK,
    SHOWN,
    THREAD,
    TURN,
    Listen,
    event,
    in_thread,
    numbers,
)


@pytest.fixture
async def server() -> AsyncIterator[AgentServer]:
    handler = AgentServer(log=LOG)
    async with running(handler):
        yield handler


@pytest.fixture
async def client(server: AgentServer) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(server.address, retry=QUICK) as connected:
        yield connected


async def chat_async(server: AgentServer) -> list[TurnEvent]:
    async with sage_client.connect_async(server.address, retry=QUICK) as client:
        return [one async for one in client.agent().chat("What did I promise?", deltas=True)]


async def chat_sync(server: AgentServer) -> list[TurnEvent]:
    return await in_thread(
        server, lambda client: list(client.agent().chat("What did I promise?", deltas=True))
    )


BOTH = pytest.mark.parametrize("listen", [chat_async, chat_sync], ids=["async", "sync"])


@BOTH
async def test_a_chat_shows_the_events_of_its_turn_in_order(server: AgentServer, listen: Listen) -> None:
    shown = await listen(server)

    assert numbers(shown) == SHOWN
    assert "".join(one.text for one in shown if isinstance(one, TurnDelta)) == "Let me look."
    assert isinstance(shown[0], TurnAccepted)
    assert isinstance(shown[-1], TurnDone)
    assert shown[0].create_time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert {(one.turn_id, one.agent_id, one.channel) for one in shown} == {(TURN, "a1", EventChannel.TURN)}
    assert len(server.seen) == 1


@BOTH
@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("place", range(len(LOG)))
async def test_a_stream_that_breaks_anywhere_goes_on_without_a_lost_or_repeated_event(
    server: AgentServer, listen: Listen, how: str, place: int
) -> None:
    broken = BREAKS[how]
    server.breaks = [Break(place, broken.code, broken.reason, retry_after=broken.retry_after)]

    shown = await listen(server)

    assert numbers(shown) == SHOWN
    first, second = server.seen
    if place == 0:
        assert second == first
    else:
        seen = max(one.event_id for one in LOG[:place])
        assert second == pb.AttachTurnRequest(turn_id=TURN, after_event_id=seen, include_deltas=True)


@BOTH
async def test_what_breaks_after_the_last_event_breaks_nothing(server: AgentServer, listen: Listen) -> None:
    server.breaks = [Break(len(LOG))]

    assert numbers(await listen(server)) == SHOWN
    assert len(server.seen) == 1


@BOTH
async def test_a_stream_may_break_after_every_single_event(server: AgentServer, listen: Listen) -> None:
    server.breaks = [Break(1) for _ in range(20)]

    assert numbers(await listen(server)) == SHOWN
    assert [request.after_event_id for request in server.seen[1:]] == [3, 4, 7, 8, 10, 11, 20]


@BOTH
async def test_events_that_come_once_more_are_not_shown_again(server: AgentServer, listen: Listen) -> None:
    server.breaks, server.overlap = [Break(5), Break(4)], 3

    assert numbers(await listen(server)) == SHOWN


async def test_a_chat_that_nobody_answers_ends_with_the_last_attempt(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.breaks = [Break(0)] * (QUICK.max_attempts + 1)
    with pytest.raises(sage_client.Unavailable):
        await anext(client.agent().chat("x"))
    assert len(server.seen) == QUICK.max_attempts


async def test_attempts_that_get_no_further_end_with_the_patience_for_a_turn_that_had_begun(
    server: AgentServer,
) -> None:
    server.breaks = [Break(1), *[Break(0)] * 1000]
    retry = RetryPolicy(max_attempts=2, initial_backoff=0.01, max_backoff=0.01, patience=0.5)
    async with sage_client.connect_async(server.address, retry=retry) as client:
        chat = client.agent().chat("x")
        assert isinstance(await anext(chat), TurnAccepted)

        with pytest.raises(sage_client.Unavailable):
            await anext(chat)

        assert len(server.seen) > retry.max_attempts
        server.breaks = []
        assert numbers([one async for one in chat]) == SHOWN[1:], "who asks again goes on where it broke off"


async def test_who_iterates_comes_to_the_end_when_somebody_else_closes(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.breaks = [Break(1, hang=True)]
    chat = client.agent().chat("x")
    assert isinstance(await anext(chat), TurnAccepted)
    reading = asyncio.create_task(anext(chat, None))
    await asyncio.sleep(0.05)

    await chat.close()

    assert await asyncio.wait_for(reading, 5) is None
    await asyncio.wait_for(server.cancelled.wait(), 5)
    assert [one async for one in chat] == []


async def test_who_iterates_in_a_thread_comes_to_the_end_when_another_closes(server: AgentServer) -> None:
    server.breaks = [Break(1, hang=True)]

    def work(client: SageClient) -> list[TurnEvent]:
        chat = client.agent().chat("x")
        assert isinstance(next(chat), TurnAccepted)
        threading.Timer(0.05, chat.close).start()
        return list(chat)

    assert await asyncio.wait_for(in_thread(server, work), 5) == []
    await asyncio.wait_for(server.cancelled.wait(), 5)


async def test_a_reader_that_is_cancelled_is_cancelled(server: AgentServer, client: AsyncSageClient) -> None:
    """gRPC tells of a call that was cancelled in the same way."""
    server.breaks = [Break(1, hang=True)]
    chat = client.agent().chat("x")
    assert isinstance(await anext(chat), TurnAccepted)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(chat), 0.05)
    assert numbers([one async for one in chat]) == SHOWN[1:]


async def test_a_client_without_retries_raises_at_once(server: AgentServer) -> None:
    server.breaks = [Break(3)]
    async with sage_client.connect_async(server.address, retry=RetryPolicy(max_attempts=1)) as client:
        with pytest.raises(sage_client.Unavailable):
            await client.agent().chat("x").text()

    assert len(server.seen) == 1


@pytest.mark.parametrize("place", [0, 4])
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (Break(0, CODE.NOT_FOUND, "NOT_FOUND"), sage_client.NotFound),
        (Break(0, CODE.ABORTED, "TURN_BUSY"), sage_client.Aborted),
        (Break(0, CODE.FAILED_PRECONDITION, "AGENT_DISABLED"), sage_client.FailedPrecondition),
        (Break(0, CODE.OUT_OF_RANGE, "EVENT_CURSOR_EXPIRED"), sage_client.OutOfRange),
        (Break(0, CODE.INTERNAL, "INTERNAL"), sage_client.Internal),
        (Break(0, CODE.UNAUTHENTICATED, "UNAUTHENTICATED"), sage_client.Unauthenticated),
    ],
    ids=lambda value: value.reason if isinstance(value, Break) else "",
)
async def test_a_final_error_is_raised_at_once(
    server: AgentServer,
    client: AsyncSageClient,
    broken: Break,
    expected: type[sage_client.SageError],
    place: int,
) -> None:
    server.breaks = [Break(place, broken.code, broken.reason)]

    with pytest.raises(expected) as caught:
        await client.agent().chat("x").text()

    assert caught.value.reason == broken.reason
    assert len(server.seen) == 1


async def test_a_server_that_is_full_gets_the_same_message_again(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.breaks = [Break(0, CODE.RESOURCE_EXHAUSTED, "TURN_QUEUE_FULL", retry_after=0.001)]

    assert await client.agent().chat("x").text() == "Let me look.\n\nYou promised her a cake."
    assert server.seen[0] == server.seen[1]


async def test_a_turn_may_last_longer_than_a_stream(server: AgentServer) -> None:
    server.breaks = [Break(3, hang=True), Break(2, hang=True)]
    async with sage_client.connect_async(server.address, retry=QUICK, stream_timeout=0.3) as client:
        shown = [one async for one in client.agent().chat("x")]

    assert numbers(shown) == SHOWN
    assert len(server.seen) == 3


async def test_a_stream_that_stays_silent_is_a_deadline(server: AgentServer) -> None:
    server.breaks = [Break(0, hang=True)] * 2
    async with sage_client.connect_async(server.address, retry=QUICK, stream_timeout=0.2) as client:
        with pytest.raises(sage_client.DeadlineExceeded):
            await client.agent().chat("x").text()

    assert len(server.seen) == 1


async def test_a_turn_goes_on_at_another_replica(server: AgentServer) -> None:
    other = AgentServer(log=LOG)
    first = AgentServer(log=LOG, breaks=[Break(5, hang=True)])
    async with running(first) as stopped, running(other):
        both = f"ipv4:{first.address},{other.address}"
        async with sage_client.connect_async(both, retry=QUICK) as client:
            chat = client.agent().chat("x")
            shown = [await anext(chat) for _ in range(5)]
            await stopped.stop(None)
            shown += [one async for one in chat]

    assert numbers(shown) == SHOWN
    assert other.seen == [pb.AttachTurnRequest(turn_id=TURN, after_event_id=7)]


async def test_a_reader_that_ran_out_of_patience_can_go_on_later(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.breaks = [Break(2, hang=True)]
    chat = client.agent().chat("x")
    shown = [await anext(chat), await anext(chat)]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(chat), 0.05)

    shown += [one async for one in chat]

    assert numbers(shown) == SHOWN
    await asyncio.wait_for(server.cancelled.wait(), 5)


async def test_leaving_early_ends_the_stream_and_nothing_else(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.breaks = [Break(2, hang=True)]
    async with client.agent().chat("x") as chat:
        await anext(chat)

    await asyncio.wait_for(server.cancelled.wait(), 5)
    assert [one async for one in chat] == []
    with pytest.raises(sage_client.Internal, match="before it was complete"):
        await chat.text()
    assert len(server.seen) == 1


async def test_a_chat_that_was_heard_to_its_end_is_not_cancelled(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.breaks = [Break(len(LOG), None, pause=0.05)]

    await client.agent().chat("x").text()
    await client.turns.get(TURN)  # the server has seen by then what the client did before

    assert not server.cancelled.is_set()


async def test_every_chat_has_a_request_id_of_its_own_or_the_callers(
    server: AgentServer, client: AsyncSageClient
) -> None:
    agent = client.agent("scout")
    await agent.chat("x").text()
    await agent.chat("x").text()
    await agent.chat("x", request_id=MINE, on_busy=OnBusy.INTERRUPT, store=False, deltas=True).text()

    first, second, third = server.seen
    assert UUID(first.request_id).version == 4
    assert first.request_id != second.request_id
    assert third == pb.ChatRequest(
        agent="scout",
        input="x",
        request_id=MINE,
        on_busy=events_pb.ON_BUSY_INTERRUPT,
        include_deltas=True,
        store=False,
    )


async def test_nothing_is_sent_before_somebody_listens(server: AgentServer, client: AsyncSageClient) -> None:
    chat = client.agent().chat("x")
    with pytest.raises(RuntimeError, match="after its first event"):
        await chat.cancel()
    assert (server.seen, chat.turn_id) == ([], "")

    await anext(chat)
    assert chat.turn_id == TURN


async def test_a_chat_can_cancel_its_turn(server: AgentServer, client: AsyncSageClient) -> None:
    server.script(pb.CancelTurnResponse(turn=agent_pb2.Turn(id=TURN, status=agent_pb2.TURN_STATUS_CANCELLED)))
    chat = client.agent().chat("x")
    await anext(chat)

    turn = await chat.cancel()

    assert turn.status is TurnStatus.CANCELLED
    assert server.seen[1] == pb.CancelTurnRequest(turn_id=TURN)


@pytest.mark.parametrize("heard", [0, 3, len(SHOWN) + 2])
async def test_the_text_is_all_that_the_agent_said_whoever_heard_a_part_before(
    client: AsyncSageClient, heard: int
) -> None:
    chat = client.agent().chat("x")
    for _ in range(heard):
        await anext(chat)

    assert await chat.text() == "Let me look.\n\nYou promised her a cake."
    assert await chat.text() == "Let me look.\n\nYou promised her a cake."


async def test_a_silent_turn_has_no_text(server: AgentServer, client: AsyncSageClient) -> None:
    silent = event(4, silent=events_pb.TurnSilent(item_id="i"))
    server.log = [LOG[0], silent, event(5, done=events_pb.TurnDone())]

    assert await client.agent().chat("x").text() == ""


FAILED = event(
    22,
    failed=events_pb.TurnFailed(
        reason=error_reason_pb2.ERROR_REASON_MODEL_RATE_LIMITED,
        retryable=True,
        message="The model is busy.",
        retry_delay=Duration(seconds=7),
    ),
)
CANCELLED = event(22, cancelled=events_pb.TurnCancelled(cause=events_pb.CANCEL_CAUSE_INTERRUPTED))


async def test_the_text_of_a_turn_that_failed_is_a_typed_error(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.log = [*LOG[:5], FAILED]
    chat = client.agent().chat("x")

    with pytest.raises(sage_client.TurnFailedError) as caught:
        await chat.text()

    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert (error.reason, error.retryable, error.retry_after) == ("MODEL_RATE_LIMITED", True, 7.0)
        assert error.messages == ("Let me look.",)
        assert error.event.turn_id == TURN
        assert str(error) == f"The model is busy. (reason=MODEL_RATE_LIMITED, turn_id={TURN})"
    assert [one async for one in client.agent().chat("x")][-1] == caught.value.event, "an event, no error"


async def test_the_text_of_a_turn_that_was_cancelled_is_a_typed_error(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.log = [*LOG[:5], CANCELLED]

    with pytest.raises(sage_client.TurnCancelledError) as caught:
        await client.agent().chat("x").text()

    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.event.cause is CancelCause.INTERRUPTED
        assert error.messages == ("Let me look.",)
        assert str(error) == f"The turn was cancelled. (cause=interrupted, turn_id={TURN})"


@pytest.mark.parametrize("ending", [FAILED, CANCELLED])
async def test_the_sync_client_raises_alike(server: AgentServer, ending: events_pb.TurnEvent) -> None:
    server.log, server.breaks = [*LOG[:5], ending], [Break(2)]

    def work(client: SageClient) -> None:
        with pytest.raises(sage_client.SageError) as caught:
            client.agent().chat("x").text()
        assert isinstance(caught.value, sage_client.TurnFailedError | sage_client.TurnCancelledError)
        assert caught.value.messages == ("Let me look.",)

    await in_thread(server, work)


async def test_a_message_in_a_thread_gives_the_same_events(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.breaks = [Break(0), Break(3)]
    chat = client.conversations.continue_(THREAD).respond(
        "@scout look", author="Maria", request_id=MINE, store=False
    )

    shown = [one async for one in chat]

    assert numbers(shown) == SHOWN
    assert server.seen[0] == conversation_pb.RespondRequest(
        conversation_id=THREAD,
        input="@scout look",
        author="Maria",
        request_id=MINE,
        on_busy=events_pb.ON_BUSY_QUEUE,
        store=False,
    )
    assert server.seen[1:] == [
        server.seen[0],
        pb.AttachTurnRequest(turn_id=TURN, after_event_id=4),
    ]


async def test_attaching_shows_what_was_not_seen_and_goes_on_alike(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.breaks = [Break(0), Break(2)]
    chat = client.turns.attach(TURN, after_event_id=7, deltas=True)

    shown = [one async for one in chat]

    assert numbers(shown) == [8, 11, 20, 21]
    assert [request.after_event_id for request in server.seen] == [7, 7, 10]
    assert all(request.include_deltas for request in server.seen)
    assert chat.last_event_id == 21
    assert numbers([one async for one in client.turns.attach(TURN)]) == SHOWN


async def test_attaching_after_the_last_event_shows_nothing(
    server: AgentServer, client: AsyncSageClient
) -> None:
    assert [one async for one in client.turns.attach(TURN, after_event_id=21)] == []
    assert len(server.seen) == 1


async def test_a_message_knows_its_text(client: AsyncSageClient) -> None:
    said = [one.text async for one in client.agent().chat("x") if isinstance(one, TurnMessage)]

    assert said == ["Let me look.", "You promised her a cake."]
