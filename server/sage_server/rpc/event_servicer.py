"""AgentService, its streams of events: decode, one call, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from uuid import UUID

from sage.v1 import agent_service_pb2 as pb
from sage_server.domain.events import EventChannel
from sage_server.domain.identity import Caller
from sage_server.rpc.event_mapping import TurnEvents
from sage_server.services.event_streams import EventStreams, Watch


class EventServicer:
    """Events of turns, past and to come."""

    def __init__(self, streams: EventStreams, events: TurnEvents) -> None:
        self._streams = streams
        self._events = events

    async def attach_turn(
        self, request: pb.AttachTurnRequest, caller: Caller
    ) -> AsyncIterator[pb.AttachTurnResponse]:
        """A turn's events until it ends."""
        events = self._streams.attach(
            caller.user_id, UUID(request.turn_id), request.after_event_id, deltas=request.include_deltas
        )
        async with aclosing(events):
            async for event in events:
                yield pb.AttachTurnResponse(event=await self._events.encode(caller.user_id, event))

    async def watch_events(
        self, request: pb.WatchEventsRequest, caller: Caller
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        """The user's events until the caller leaves."""
        events = self._streams.watch(caller.user_id, _watch(request))
        async with aclosing(events):
            async for event in events:
                yield pb.WatchEventsResponse(event=await self._events.encode(caller.user_id, event))


def _watch(request: pb.WatchEventsRequest) -> Watch:
    """What to watch, with the contract's defaults."""
    default = Watch()
    return Watch(
        after=request.after_event_id if request.HasField("after_event_id") else None,
        channels=frozenset(EventChannel(one) for one in request.channels) or default.channels,
        agent=request.agent,
        heartbeat=request.heartbeat_interval.ToTimedelta().total_seconds() or default.heartbeat,
        deltas=request.include_deltas,
    )
