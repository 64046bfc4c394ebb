"""Watches against a server on a real socket that breaks its streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration

import sage_client
from sage.v1 import agent_service_pb2 as pb
from sage.v1 import turn_event_pb2 as events_pb
from sage_client import (
    AsyncSageClient,
    EventChannel,
    SageClient,
    TurnAccepted,
    TurnEvent,
    TurnHeartbeat,
    TurnToolResult,
)
from support.agent_server import AgentServer, Break, running
from support.turn_log import (
    BREAKS,
    CODE,
    LOG,
    QUICK,
    SHOWN,
    Listen,
    heartbeat,
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


# What a stream does not show moves its position as well.
WATCHED = (heartbeat(2, turn_id=""), *LOG[:2], *LOG[4:6], heartbeat(9, turn_id=""), *LOG[7:])
SOME = len(SHOWN)


async def watch_async(server: AgentServer) -> list[TurnEvent]:
    async with sage_client.connect_async(server.address, retry=QUICK) as client:
        watch = client.watch()
        return [await anext(watch) for _ in range(SOME)]


async def watch_sync(server: AgentServer) -> list[TurnEvent]:
    def work(client: SageClient) -> list[TurnEvent]:
        watch = client.watch()
        return [next(watch) for _ in range(SOME)]

    return await in_thread(server, work)


@pytest.mark.parametrize("listen", [watch_async, watch_sync], ids=["async", "sync"])
@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("place", range(len(WATCHED)))
async def test_a_watch_that_breaks_anywhere_goes_on_without_a_lost_or_repeated_event(
    server: AgentServer, listen: Listen, how: str, place: int
) -> None:
    server.log, broken = WATCHED, BREAKS[how]
    server.breaks = [Break(place, broken.code, broken.reason, retry_after=broken.retry_after)]

    shown = await listen(server)

    assert numbers(shown) == SHOWN
    positions = [max(one.event_id, one.heartbeat.last_event_id) for one in WATCHED[:place]]
    assert server.seen == [
        pb.WatchEventsRequest(),
        pb.WatchEventsRequest(after_event_id=max(positions) if positions else None),
    ]


async def test_events_that_come_once_more_are_not_shown_again(server: AgentServer) -> None:
    server.log, server.breaks, server.overlap = WATCHED, [Break(5), Break(5)], 3

    assert numbers(await watch_async(server)) == SHOWN


async def test_a_watch_knows_where_to_go_on(server: AgentServer, client: AsyncSageClient) -> None:
    server.log = [heartbeat(0, turn_id=""), LOG[0], heartbeat(9, turn_id=""), LOG[8]]
    server.breaks = [Break(1), Break(4, hang=True)]
    watch = client.watch()
    before = watch.cursor
    assert before is None

    assert isinstance(await anext(watch), TurnAccepted)
    assert watch.cursor == 3
    assert isinstance(await anext(watch), TurnToolResult)
    assert watch.cursor == 11
    await watch.close()

    first, second = server.seen
    assert not first.HasField("after_event_id")
    assert second.HasField("after_event_id"), "from the first event is not from now on"
    assert second.after_event_id == 0
    assert isinstance(await anext(client.watch(after_event_id=3)), TurnToolResult)


async def test_heartbeats_are_shown_to_who_asks_for_them(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.log = [heartbeat(2, turn_id=""), LOG[0]]
    shown = await anext(client.watch(heartbeats=True))

    assert isinstance(shown, TurnHeartbeat)
    assert shown.last_event_id == 2


async def test_a_watch_asks_for_what_it_is_told(server: AgentServer, client: AsyncSageClient) -> None:
    server.log = [LOG[0]]
    watch = client.watch(
        after_event_id=0,
        channels=[EventChannel.TURN, EventChannel.PROACTIVE],
        agent="scout",
        heartbeat_interval=timedelta(seconds=2.5),
        deltas=True,
    )
    await anext(watch)

    assert server.seen == [
        pb.WatchEventsRequest(
            after_event_id=0,
            channels=[events_pb.EVENT_CHANNEL_TURN, events_pb.EVENT_CHANNEL_PROACTIVE],
            agent="scout",
            heartbeat_interval=Duration(seconds=2, nanos=500_000_000),
            include_deltas=True,
        )
    ]
    with pytest.raises(ValueError, match=r"EventChannel\.UNKNOWN cannot be sent"):
        client.watch(channels=[EventChannel.UNKNOWN])


async def test_a_watch_whose_position_is_no_longer_kept_says_so(
    server: AgentServer, client: AsyncSageClient
) -> None:
    expired = Break(0, CODE.OUT_OF_RANGE, "EVENT_CURSOR_EXPIRED", {"oldest_event_id": "1042"})
    server.breaks = [expired]

    with pytest.raises(sage_client.OutOfRange) as caught:
        await anext(client.watch(after_event_id=7))

    assert (caught.value.reason, caught.value.metadata["oldest_event_id"]) == ("EVENT_CURSOR_EXPIRED", "1042")
    assert len(server.seen) == 1


async def test_a_watch_may_be_quiet_for_longer_than_a_stream(server: AgentServer) -> None:
    server.log = [heartbeat(2, turn_id=""), LOG[0]]
    server.breaks = [Break(1, hang=True)] * 3
    async with sage_client.connect_async(server.address, retry=QUICK, stream_timeout=0.2) as client:
        assert isinstance(await anext(client.watch()), TurnAccepted)

    assert len(server.seen) == 4
    assert [request.after_event_id for request in server.seen] == [0, 2, 2, 2]


async def test_leaving_a_watch_ends_it(server: AgentServer, client: AsyncSageClient) -> None:
    server.log, server.breaks = [heartbeat(2, turn_id=""), LOG[0]], [Break(2, hang=True)]
    async with client.watch() as watch:
        async for one in watch:
            assert isinstance(one, TurnAccepted)
            break

    await asyncio.wait_for(server.cancelled.wait(), 5)
    assert [one async for one in watch] == []
