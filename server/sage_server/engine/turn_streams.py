"""The events of one turn, past and to come."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from uuid import UUID

from sage_server.domain.errors import SageError
from sage_server.domain.events import (
    Event,
    Heartbeat,
    Unknown,
    cursor_expired,
    cursor_invalid,
    told_of,
)
from sage_server.domain.turns import Turn
from sage_server.engine.event_hub import PASSING, EventHub
from sage_server.ports.events import EventStore
from sage_server.ports.turns import TurnStore

_BATCH = 200


class TurnStreams:
    """Attaches to turns, whoever runs them."""

    def __init__(self, hub: EventHub, events: EventStore, turns: TurnStore) -> None:
        self._hub = hub
        self._events = events
        self._turns = turns

    async def attach(
        self, user_id: UUID, turn_id: UUID, after: int, *, deltas: bool, heartbeat: float
    ) -> AsyncGenerator[Event]:
        """A turn's events after a number: those that happened, then those to come, until it ends.

        Raises NOT_FOUND, EVENT_CURSOR_INVALID for a number in the future, and EVENT_CURSOR_EXPIRED if events
        that it needs are gone. Otherwise as EventHub.follow_turn.
        """
        # In this order: a turn that is active after the last number was read ends after that number.
        kept = await self._events.range(user_id)
        turn = await self._turns.get(user_id, turn_id)
        if after > kept.last:
            raise cursor_invalid(kept.last)
        if not turn.active and turn.last_event <= after:
            return
        start = max(after, turn.first_event - 1)
        if start < kept.oldest - 1:
            raise cursor_expired(kept.oldest)
        if turn.active:
            shown = self._live(user_id, turn, start, deltas=deltas, heartbeat=heartbeat)
        else:
            shown = self._past(user_id, turn, start)
        async with aclosing(shown):
            async for event in shown:
                yield event

    async def _past(self, user_id: UUID, turn: Turn, after: int) -> AsyncGenerator[Event]:
        """The events of a turn that has ended."""
        while events := await self._events.of_turn(user_id, turn.id, after, _BATCH):
            for event in events:
                if not isinstance(event.payload, Unknown):
                    yield event
            after = events[-1].seq
            if events[-1].last:
                return
        raise cursor_expired((await self._events.range(user_id)).oldest)

    async def _live(
        self, user_id: UUID, turn: Turn, after: int, *, deltas: bool, heartbeat: float
    ) -> AsyncGenerator[Event]:
        """The events of a turn that was active a moment ago."""
        following = self._hub.follow_turn(user_id, turn.id, after, deltas=deltas, heartbeat=heartbeat)
        async with aclosing(following):
            async for event in following:
                if isinstance(event.payload, Heartbeat):
                    await self._check(user_id, turn, event.payload.last_event)
                    yield replace(event, **told_of(turn)._asdict())
                else:
                    yield event

    async def _check(self, user_id: UUID, turn: Turn, passed: int) -> None:
        """Who waits for the end of a turn whose events were deleted with its thread would wait for ever."""
        try:
            now = await self._turns.get(user_id, turn.id)
            if not now.active and now.last_event <= passed:
                raise cursor_expired((await self._events.range(user_id)).oldest)
        except SageError as error:
            if error.reason not in PASSING:
                raise
