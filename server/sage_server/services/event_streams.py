"""Events for callers: of all of a user's turns, or of one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from uuid import UUID

from sage_server.domain.events import Event, EventChannel, Heartbeat, cursor_expired, cursor_invalid
from sage_server.engine.event_hub import EventHub
from sage_server.engine.turn_streams import TurnStreams
from sage_server.ports.agents import AgentDirectory
from sage_server.ports.clock import Clock
from sage_server.ports.events import EventStore

HEARTBEAT = 15.0
"""Seconds of silence before a heartbeat, unless the caller says otherwise."""


@dataclass(frozen=True)
class Watch:
    """Which events to watch, and how."""

    after: int | None = None
    """None for those that happen from now on."""
    channels: frozenset[EventChannel] = frozenset({EventChannel.PROACTIVE})
    agent: str = ""
    """A name or an id; empty for all agents."""
    heartbeat: float = HEARTBEAT
    deltas: bool = False


class EventStreams:
    """Shows events as they happen, and those that happened."""

    def __init__(
        self,
        *,
        hub: EventHub,
        events: EventStore,
        turns: TurnStreams,
        agents: AgentDirectory,
        clock: Clock,
    ) -> None:
        self._hub = hub
        self._events = events
        self._turns = turns
        self._agents = agents
        self._clock = clock

    async def watch(self, user_id: UUID, watch: Watch) -> AsyncGenerator[Event]:
        """First a heartbeat that says where it begins, then events for ever."""
        agent_id = await self._agents.resolve(user_id, watch.agent) if watch.agent else None
        kept = await self._events.range(user_id)
        start = kept.last if watch.after is None else watch.after
        if start > kept.last:
            raise cursor_invalid(kept.last)
        if start < kept.oldest - 1:
            raise cursor_expired(kept.oldest)

        def wanted(event: Event) -> bool:
            return event.channel in watch.channels and agent_id in (None, event.agent_id)

        following = self._hub.follow(
            user_id, start, wanted=wanted, deltas=watch.deltas, heartbeat=watch.heartbeat
        )
        async with aclosing(following):
            yield Event(
                seq=0,
                turn_id=None,
                step=0,
                created_at=self._clock.now(),
                agent_id=None,
                conversation_id=None,
                channel=EventChannel.PROACTIVE,
                payload=Heartbeat(start),
            )
            async for event in following:
                yield event

    def attach(self, user_id: UUID, turn_id: UUID, after: int, *, deltas: bool) -> AsyncGenerator[Event]:
        """A turn's events after a number: those that happened, then those to come, until it ends."""
        return self._turns.attach(user_id, turn_id, after, deltas=deltas, heartbeat=HEARTBEAT)
