"""What the log of events and its streams are built of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sage_server.adapters.postgres.database import Database
from sage_server.adapters.postgres.event_notices import PostgresEventNotices, connect_for_notices
from sage_server.adapters.postgres.events import PostgresEventStore
from sage_server.engine.event_hub import EventHub, HubOptions
from sage_server.engine.turn_streams import TurnStreams
from sage_server.ports.agents import AgentDirectory
from sage_server.ports.clock import Clock
from sage_server.ports.keys import KeyRing
from sage_server.ports.turns import TurnStore
from sage_server.rpc.event_mapping import TurnEvents
from sage_server.rpc.event_servicer import EventServicer
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.services.event_streams import EventStreams
from sage_server.settings import Settings
from sage_server.workers.loops import Loop

_RESTART = 0.05
_NOTICES_RESTART = 1.0


@dataclass(frozen=True)
class EventParts:
    """What the rest of the application needs of it."""

    store: PostgresEventStore
    hub: EventHub
    messages: TurnEvents
    loops: list[Loop]

    def servicers(self, turns: TurnStore, agents: AgentDirectory, clock: Clock) -> list[object]:
        """The streams of AgentService that only show events."""
        streams = EventStreams(
            hub=self.hub,
            events=self.store,
            turns=TurnStreams(self.hub, self.store, turns),
            agents=agents,
            clock=clock,
        )
        return [EventServicer(streams, self.messages)]


def build_events(settings: Settings, database: Database, dsn: str, keys: KeyRing, clock: Clock) -> EventParts:
    """The log, and what wakes its followers."""
    notices = PostgresEventNotices(partial(connect_for_notices, dsn)) if settings.notify else None
    store = PostgresEventStore(database, keys)
    options = HubOptions(settings.max_watchers, settings.max_watchers_per_user)
    hub = EventHub(store, notices, clock, options)
    loops = [Loop("events", _RESTART, hub.run)]
    if notices is not None:
        loops.append(Loop("event-notices", _NOTICES_RESTART, partial(notices.run, hub.heard)))
    return EventParts(store, hub, TurnEvents(MemoryTokens(keys)), loops)
