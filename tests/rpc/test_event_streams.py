"""WatchEvents and AttachTurn: what a caller sees of the log of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest

import sage_client
from sage.v1 import agent_service_pb2 as pb
from sage.v1 import turn_event_pb2 as event_pb
from sage_server.adapters.crypto import CachedKeyRing, EnvironmentRootKeys, KeyWrapping
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.users import PostgresKeyStore
from sage_server.domain.events import EVENTS_KEPT, EventChannel, Payload, Told
from sage_server.domain.turns import TurnOrigin, TurnStatus
from support.clock import FakeClock
from support.contract import BY_NAME, Answer, call
from support.event_log import AGENT, DONE, EventWriter, numbered, words
from support.server import ROOT_KEY, RunningServer, running_server

TURN, PROACTIVE = event_pb.EVENT_CHANNEL_TURN, event_pb.EVENT_CHANNEL_PROACTIVE


@dataclass
class World:
    """A server, and somebody who stores events beside it."""

    server: RunningServer
    channel: grpc.aio.Channel
    database: asyncpg.Connection
    writer: EventWriter
    user_id: UUID
    thread: UUID

    def told(self, channel: EventChannel = EventChannel.PROACTIVE, agent: UUID = AGENT) -> Told:
        return Told(uuid4(), agent, self.thread, channel)

    async def tell(self, told: Told, *payloads: Payload) -> list[int]:
        """As another replica would: this one is not told."""
        return [event.seq for event in await self.writer.store(self.user_id, *payloads, told=told)]

    async def turn(self, status: TurnStatus, *payloads: Payload) -> Told:
        """A turn with these events."""
        told = self.told(EventChannel.TURN)
        numbers = await self.tell(told, *payloads)
        await self.database.execute(
            "INSERT INTO turns (user_id, id, conversation_id, agent_id, own_thread, status, origin, store, "
            "first_event, last_event, created_at, lease_until) "
            "VALUES ($1, $2, $3, $4, false, $5, $6, true, $7, $8, now(), now() + interval '1 day')",
            *(self.user_id, told.turn_id, self.thread, AGENT, status, TurnOrigin.CHAT),
            *(numbers[0], numbers[-1]),
        )
        return told

    @asynccontextmanager
    async def stream(self, method: str, request: Any) -> AsyncIterator[AsyncIterator[event_pb.TurnEvent]]:
        """The events of a call, for a while."""
        path = f"/sage.v1.AgentService/{method}"
        response = getattr(pb, f"{method}Response")
        opened: grpc.aio.UnaryStreamMultiCallable[Any, Any] = self.channel.unary_stream(
            path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        running = opened(request, metadata=(("x-sage-user", "maria"),))
        try:
            async with asyncio.timeout(30):
                yield (one.event async for one in running)
        finally:
            running.cancel()

    async def refused(self, method: str, request: Any) -> Answer:
        return await call(self.channel, BY_NAME[method], request, (("x-sage-user", "maria"),))


@asynccontextmanager
async def world(dsn: str, clock: FakeClock | None = None, **settings: Any) -> AsyncIterator[World]:
    async with running_server(dsn, clock, **settings) as server:
        async with sage_client.connect_async(server.address, user="maria") as client:
            thread = await client.conversations.create()
        database = await asyncpg.connect(dsn)
        pool = await Database.open(dsn, PoolOptions(1, 2, 10, 30))
        keys = CachedKeyRing(
            PostgresKeyStore(pool, server.clock), KeyWrapping(EnvironmentRootKeys(ROOT_KEY, [])), 10
        )
        user_id = await database.fetchval("SELECT id FROM users WHERE external_id = 'maria'")
        try:
            async with grpc.aio.insecure_channel(server.address) as channel:
                writer = EventWriter(pool, keys, server.clock)
                yield World(server, channel, database, writer, user_id, UUID(thread.id))
        finally:
            await pool.close()
            await database.close()


async def _take(events: AsyncIterator[event_pb.TurnEvent], count: int) -> list[event_pb.TurnEvent]:
    return [await anext(events) for _ in range(count)]


async def test_a_watch_begins_with_where_it_starts_and_shows_what_agents_do_by_themselves(dsn: str) -> None:
    async with world(dsn) as at:
        await at.tell(at.told(), *numbered(3))
        async with at.stream("WatchEvents", pb.WatchEventsRequest()) as events:
            first = await anext(events)
            assert first.heartbeat.last_event_id == 3
            assert (first.event_id, first.turn_id, first.agent_id, first.conversation_id) == (0, "", "", "")
            await at.tell(at.told(EventChannel.TURN), *numbered(1))
            told = at.told()
            await at.tell(told, *numbered(1))
            shown = await anext(events)
            assert (shown.event_id, shown.turn_id, shown.step) == (5, str(told.turn_id), 1)
            assert (shown.channel, shown.typing.model) == (PROACTIVE, "test/0")
            assert (shown.agent_id, shown.conversation_id) == (str(AGENT), str(at.thread))
            assert shown.create_time.ToSeconds() > 0


async def test_a_watch_resumes_after_an_event_and_shows_the_channels_it_is_asked_for(dsn: str) -> None:
    async with world(dsn) as at:
        await at.tell(at.told(), *numbered(2))
        await at.tell(at.told(EventChannel.TURN), *numbered(2))
        request = pb.WatchEventsRequest(after_event_id=1, channels=[TURN, PROACTIVE])
        async with at.stream("WatchEvents", request) as events:
            shown = await _take(events, 4)
            assert shown[0].heartbeat.last_event_id == 1
            assert [event.event_id for event in shown] == [0, 2, 3, 4]
        async with at.stream("WatchEvents", pb.WatchEventsRequest(after_event_id=0)) as events:
            assert [event.event_id for event in await _take(events, 3)] == [0, 1, 2]


async def test_a_quiet_watch_gets_heartbeats_that_pass_what_it_does_not_want(dsn: str) -> None:
    async with world(dsn) as at:
        request = pb.WatchEventsRequest()
        request.heartbeat_interval.FromTimedelta(timedelta(seconds=1))
        async with at.stream("WatchEvents", request) as events:
            await anext(events)
            await at.tell(at.told(EventChannel.TURN), *numbered(4))
            async for event in events:
                assert event.WhichOneof("event") == "heartbeat"
                if event.heartbeat.last_event_id == 4:
                    break


async def test_cursors_that_are_too_old_or_too_new_are_refused_with_what_would_do(dsn: str) -> None:
    clock = FakeClock()
    async with world(dsn, clock) as at:
        ended = await at.turn(TurnStatus.DONE, *numbered(1), DONE)
        await at.tell(at.told(), *numbered(1))
        clock.advance(EVENTS_KEPT + timedelta(minutes=1))
        running = await at.turn(TurnStatus.RUNNING, *numbered(1))
        await at.server.application.retention.run()
        for request in (
            pb.WatchEventsRequest(after_event_id=2),
            pb.AttachTurnRequest(turn_id=str(ended.turn_id)),
        ):
            old = await at.refused(type(request).__name__.removesuffix("Request"), request)
            assert (old.code, old.reason) == (
                grpc.StatusCode.OUT_OF_RANGE,
                "ERROR_REASON_EVENT_CURSOR_EXPIRED",
            )
            assert dict(old.metadata) == {"oldest_event_id": "4"}
        for request in (
            pb.WatchEventsRequest(after_event_id=5),
            pb.AttachTurnRequest(turn_id=str(running.turn_id), after_event_id=5),
        ):
            new = await at.refused(type(request).__name__.removesuffix("Request"), request)
            assert (new.code, new.reason) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "ERROR_REASON_EVENT_CURSOR_INVALID",
            )
            assert dict(new.metadata) == {"last_event_id": "4"}
        async with at.stream("WatchEvents", pb.WatchEventsRequest(after_event_id=3)) as events:
            assert (await anext(events)).heartbeat.last_event_id == 3
        async with at.stream("AttachTurn", pb.AttachTurnRequest(turn_id=str(running.turn_id))) as events:
            assert (await anext(events)).event_id == 4


async def test_an_agent_or_a_turn_that_is_not_there_is_not_found(dsn: str) -> None:
    async with world(dsn) as at:
        agent = await at.refused("WatchEvents", pb.WatchEventsRequest(agent="nobody"))
        turn = await at.refused("AttachTurn", pb.AttachTurnRequest(turn_id=str(uuid4())))
        assert {agent.code, turn.code} == {grpc.StatusCode.NOT_FOUND}


async def test_a_turn_is_shown_from_any_event_on_and_to_its_end(dsn: str) -> None:
    async with world(dsn) as at:
        ended = await at.turn(TurnStatus.DONE, *numbered(2), DONE)
        await at.tell(at.told(), *numbered(1))
        request = pb.AttachTurnRequest(turn_id=str(ended.turn_id))
        async with at.stream("AttachTurn", request) as events:
            shown = [event async for event in events]
        assert [event.event_id for event in shown] == [1, 2, 3]
        assert shown[-1].done.stop_reason == event_pb.STOP_REASON_ANSWERED
        assert shown[-1].done.memory_token
        request.after_event_id = 2
        async with at.stream("AttachTurn", request) as events:
            assert [event.event_id async for event in events] == [3]
        request.after_event_id = 3
        async with at.stream("AttachTurn", request) as events:
            assert [event.event_id async for event in events] == []


async def test_a_running_turn_is_followed_wherever_it_runs(dsn: str) -> None:
    async with world(dsn) as at:
        running = await at.turn(TurnStatus.RUNNING, *numbered(1))
        async with at.stream(
            "AttachTurn", pb.AttachTurnRequest(turn_id=str(running.turn_id), include_deltas=True)
        ) as events:
            assert (await anext(events)).event_id == 1
            at.server.application.events.hub.delta(at.user_id, words(running, 1, "Hel"))
            assert (await anext(events)).delta.text == "Hel"
            await at.tell(at.told(EventChannel.TURN), *numbered(1), DONE)
            await at.tell(running, *numbered(1), DONE)
            assert [event.event_id async for event in events] == [4, 5]


async def test_a_turn_whose_events_were_deleted_says_so(dsn: str) -> None:
    async with world(dsn) as at:
        ended = await at.turn(TurnStatus.DONE, *numbered(2), DONE)
        await at.database.execute("DELETE FROM events")
        answer = await at.refused("AttachTurn", pb.AttachTurnRequest(turn_id=str(ended.turn_id)))
        assert (answer.code, answer.reason) == (
            grpc.StatusCode.OUT_OF_RANGE,
            "ERROR_REASON_EVENT_CURSOR_EXPIRED",
        )


async def test_too_many_watchers_are_refused(dsn: str) -> None:
    async with world(dsn, max_watchers_per_user=1) as at:
        async with at.stream("WatchEvents", pb.WatchEventsRequest()) as events:
            await anext(events)
            answer = await at.refused("WatchEvents", pb.WatchEventsRequest())
            assert (answer.code, answer.reason) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "ERROR_REASON_OVERLOADED",
            )
            assert dict(answer.metadata) == {"scope": "user"}
        async with asyncio.timeout(20):
            while at.server.application.events.hub._watchers:  # noqa: ASYNC110 (the server hears of it soon)
                await asyncio.sleep(0.01)
        async with at.stream("WatchEvents", pb.WatchEventsRequest()) as events:
            await anext(events)


async def test_a_server_that_stops_ends_watches_at_once_and_lets_turns_go_on(dsn: str) -> None:
    async with world(dsn) as at:
        running = await at.turn(TurnStatus.RUNNING, *numbered(1))
        attach = pb.AttachTurnRequest(turn_id=str(running.turn_id))
        async with (
            at.stream("WatchEvents", pb.WatchEventsRequest()) as watched,
            at.stream("AttachTurn", attach) as turn,
        ):
            await anext(watched)
            await anext(turn)
            draining = asyncio.create_task(at.server.application.server.drain(600))
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await anext(watched)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "stopping" in (ended.value.details() or "")
            assert not draining.done()
            await at.tell(running, DONE)
            assert [event.event_id async for event in turn] == [2]
            await draining


async def test_a_server_whose_patience_ends_tells_those_who_follow_turns(dsn: str) -> None:
    async with world(dsn) as at:
        running = await at.turn(TurnStatus.RUNNING, *numbered(1))
        async with at.stream("AttachTurn", pb.AttachTurnRequest(turn_id=str(running.turn_id))) as events:
            await anext(events)
            draining = asyncio.create_task(at.server.application.server.drain(0.1))
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await anext(events)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "stopping" in (ended.value.details() or "")
            await draining


async def test_a_watch_of_an_erased_user_ends(dsn: str) -> None:
    async with world(dsn) as at:
        async with at.stream("WatchEvents", pb.WatchEventsRequest()) as events:
            await anext(events)
            async with sage_client.connect_async(at.server.address) as admin:
                await admin.admin.erase_user("maria")
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await anext(events)
            assert ended.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_events_are_read_after_a_rotation_of_the_users_key(dsn: str) -> None:
    async with world(dsn) as at:
        ended = await at.turn(TurnStatus.DONE, *numbered(2), DONE)
        async with sage_client.connect_async(at.server.address) as admin:
            await admin.admin.rotate_user_key("maria")
        await at.server.application.rotation.reseal_pending()
        assert await at.database.fetchval("SELECT min(key_version) FROM events") == 2
        async with at.stream("AttachTurn", pb.AttachTurnRequest(turn_id=str(ended.turn_id))) as events:
            assert [event.event_id async for event in events] == [1, 2, 3]
