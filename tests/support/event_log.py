"""A log of events in memory, and one on Postgres that tests write to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, bindparam, select, update

from sage_server.adapters.postgres.database import Database, Statement
from sage_server.adapters.postgres.event_rows import inserted_events, sealed_events, told_events
from sage_server.adapters.postgres.schema import heads
from sage_server.adapters.postgres.sealed_rows import write_sealed
from sage_server.domain.errors import database_unavailable, user_erased
from sage_server.domain.events import (
    Delta,
    Done,
    Event,
    EventChannel,
    EventRange,
    NewEvent,
    Payload,
    Told,
    Typing,
)
from sage_server.domain.ids import new_id
from sage_server.domain.turns import StopReason, TokenUsage
from sage_server.ports.clock import Clock
from sage_server.ports.keys import KeyRing, UserCipher

AGENT = UUID(int=7)
MAIN = Told(UUID(int=1), AGENT, None, EventChannel.TURN)
"""A turn in an agent's own thread."""
DONE = Done(StopReason.ANSWERED, 1, 1, 0, TokenUsage(), 0, duration=datetime.resolution)


def words(told: Told, step: int, text: str, offset: int = 0) -> Event:
    """Some words of a message in the making."""
    now = datetime.now(UTC)
    whose = (told.turn_id, step, now, told.agent_id, told.conversation_id, told.channel)
    return Event(0, *whose, Delta(0, offset, text))


@dataclass
class MemoryEventLog:
    """Implements EventStore."""

    logs: dict[UUID, list[Event]] = field(default_factory=dict)
    pruned: dict[UUID, int] = field(default_factory=dict)
    cleared: set[int] = field(default_factory=set)
    """Numbers whose events are gone."""
    away: bool = False
    """Whether every read fails."""
    reads: int = 0
    """How often events were read."""

    def store(self, user_id: UUID, *payloads: Payload, told: Told = MAIN, step: int = 0) -> list[Event]:
        """Append."""
        log = self.logs.setdefault(user_id, [])
        new = [(told, NewEvent(uuid4(), payload, step)) for payload in payloads]
        events = told_events(new, datetime.now(UTC), base=len(log))
        log += events
        return events

    def prune(self, user_id: UUID, upto: int) -> None:
        """Remove the oldest."""
        self.pruned[user_id] = upto

    def erase(self, user_id: UUID) -> None:
        del self.logs[user_id]

    async def range(self, user_id: UUID) -> EventRange:
        await self._asked()
        if user_id not in self.logs:
            raise user_erased()
        return EventRange(self.pruned.get(user_id, 0) + 1, len(self.logs[user_id]))

    async def after(self, user_id: UUID, seq: int, limit: int) -> Sequence[Event]:
        return await self._read(user_id, seq, limit, lambda _: True)

    async def of_turn(self, user_id: UUID, turn_id: UUID, seq: int, limit: int) -> Sequence[Event]:
        return await self._read(user_id, seq, limit, lambda event: event.turn_id == turn_id)

    async def last(self, user_ids: Sequence[UUID]) -> dict[UUID, int]:
        await self._asked()
        return {user_id: len(self.logs[user_id]) for user_id in user_ids if user_id in self.logs}

    async def _read(
        self, user_id: UUID, seq: int, limit: int, wanted: Callable[[Event], bool]
    ) -> list[Event]:
        self.reads += 1
        await self._asked()
        if user_id not in self.logs:
            raise user_erased()
        first = max(seq, self.pruned.get(user_id, 0))
        kept = (event for event in self.logs[user_id] if event.seq not in self.cleared)
        return [event for event in kept if event.seq > first and wanted(event)][:limit]

    async def _asked(self) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise database_unavailable()


_head = (
    update(heads)
    .where(heads.c.user_id == bindparam("user_id"))
    .values(last_event=heads.c.last_event + bindparam("count", type_=BigInteger()))
    .returning((heads.c.last_event - bindparam("count", type_=BigInteger())).label("base"))
    .cte("head")
)
_STORE = Statement(select(_head.c.base).add_cte(inserted_events(_head, None).cte("stored")))


@dataclass(frozen=True)
class EventWriter:
    """Stores events on Postgres as turns do: numbers and rows in one statement."""

    database: Database
    keys: KeyRing
    clock: Clock

    async def store(self, user_id: UUID, *payloads: Payload, told: Told = MAIN) -> list[Event]:
        now = self.clock.now()
        new = [(told, NewEvent(new_id(now), payload, 1)) for payload in payloads]

        async def write(cipher: UserCipher) -> int:
            row = await self.database.fetchrow(
                _STORE,
                user_id=user_id,
                key_version=cipher.key_version,
                count=len(new),
                **sealed_events(cipher, new, now),
            )
            assert row is not None
            return int(row["base"])

        return told_events(new, now, base=await write_sealed(self.keys, user_id, write))


def numbered(count: int) -> list[Payload]:
    """Events that can be told apart."""
    return [Typing(f"test/{number}") for number in range(count)]
