"""Turns: accepting messages, showing what agents do, and cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from sage_server.domain.agents import MAIN, Agent, agent_disabled, agent_not_found
from sage_server.domain.conversations import DraftItem, ItemKind
from sage_server.domain.errors import SageError
from sage_server.domain.events import Accepted, Event, HandedOff, HandoffCause, NewEvent, Typing
from sage_server.domain.flags import Feature
from sage_server.domain.idempotency import Once
from sage_server.domain.ids import new_id
from sage_server.domain.paging import Page
from sage_server.domain.turns import CancelCause, OnBusy, Turn, TurnOrigin, TurnStatus
from sage_server.engine.event_hub import EventHub, Following
from sage_server.engine.failpoints import NO_FAILPOINTS, Failpoints
from sage_server.engine.turn_streams import TurnStreams
from sage_server.engine.turns.routing import mentioned
from sage_server.engine.turns.tool_work import shown
from sage_server.ports.agents import AgentStore
from sage_server.ports.clock import Clock
from sage_server.ports.flags import Flags
from sage_server.ports.language_model import LanguageModels, Purpose
from sage_server.ports.stores import ConversationStore
from sage_server.ports.tokens import TokenCounter
from sage_server.ports.turns import Acceptance, Lease, NewTurn, TurnFilter, TurnStore

MOST_WAITING = 16
"""Turns that may wait in a thread."""
HEARTBEAT = 15.0


class TurnHost(Protocol):
    """Whoever runs turns in this process."""

    def start(self, lease: Lease, *, agent: Agent) -> None:
        """Run a turn that was just accepted for this agent, detached from whoever asked for it."""
        ...

    def stop(self, turn_id: UUID) -> None:
        """Leave a turn that has ended elsewhere, if it runs here."""
        ...

    def wake(self, user_id: UUID, conversation_id: UUID) -> None:
        """Run the next turn that waits in a thread, if none runs there, detached from the caller."""
        ...


@dataclass(frozen=True)
class Message:
    """A message to an agent."""

    text: str
    on_busy: OnBusy = OnBusy.QUEUE
    deltas: bool = False
    store: bool = True
    author: str = ""


@dataclass(frozen=True)
class Addressed:
    """Where a message goes."""

    agent: Agent
    conversation_id: UUID
    origin: TurnOrigin
    handed: HandedOff | None = None
    """Told if somebody else than the main agent answers."""


class Turns:
    """What callers do with turns, for one user."""

    def __init__(
        self,
        *,
        store: TurnStore,
        agents: AgentStore,
        threads: ConversationStore,
        models: LanguageModels,
        flags: Flags,
        hub: EventHub,
        streams: TurnStreams,
        host: TurnHost,
        tokens: TokenCounter,
        clock: Clock,
        failpoints: Failpoints = NO_FAILPOINTS,
    ) -> None:
        self._store = store
        self._agents = agents
        self._threads = threads
        self._models = models
        self._flags = flags
        self._hub = hub
        self._streams = streams
        self._host = host
        self._tokens = tokens
        self._clock = clock
        self._failpoints = failpoints
        self._accepting: set[asyncio.Task[AsyncGenerator[Event]]] = set()

    async def chat(
        self, user_id: UUID, agent: str, message: Message, once: Once | None
    ) -> AsyncGenerator[Event]:
        """Send a message to an agent in its own thread, and show its turn until that has ended.

        Whoever stops listening stops nothing.
        """

        async def address() -> Addressed:
            found = await self._agents.get(user_id, agent)
            return Addressed(found, found.conversation_id, TurnOrigin.CHAT)

        async with aclosing(await self._sent(user_id, address, message, once)) as events:
            async for event in events:
                yield event

    async def respond(
        self, user_id: UUID, conversation_id: UUID, message: Message, once: Once | None
    ) -> AsyncGenerator[Event]:
        """Send a message in a thread, and show the turn that answers it. As `chat`.

        An agent that the message names at its beginning answers, else the main agent, or in its turn the one
        that answered last.
        """

        async def address() -> Addressed:
            agents = {agent.name: agent for agent in await self._agents.list(user_id)}
            main = agents.get(MAIN)
            if main is None:
                raise agent_not_found()
            named = agents.get(mentioned(message.text) or MAIN, main)
            handed = None
            if named is not main:
                handed = HandedOff(main.id, named.id, named.name, HandoffCause.MENTION)
            return Addressed(named, conversation_id, TurnOrigin.RESPOND, handed)

        async with aclosing(await self._sent(user_id, address, message, once)) as events:
            async for event in events:
                yield event

    async def cancel(self, user_id: UUID, turn_id: UUID) -> Turn:
        """End a turn that waits or runs. What it has stored stays."""
        self._failpoints.reach("cancel.before")
        turn, events = await self._store.cancel(user_id, turn_id, CancelCause.CALLER, self._clock.now())
        self._failpoints.reach("cancel.after")
        self._hub.publish(user_id, events)
        if events:
            self._host.stop(turn_id)
            self._host.wake(user_id, turn.conversation_id)
        return turn

    async def end_in(self, user_id: UUID, conversation_ids: Collection[UUID]) -> None:
        """End all turns of threads that were deleted."""
        if not conversation_ids:
            return
        now = self._clock.now()
        events = await self._store.cancel_in(user_id, conversation_ids, CancelCause.DELETED, now)
        self._hub.publish(user_id, events)
        for event in events:
            if event.turn_id is not None:
                self._host.stop(event.turn_id)

    async def get(self, user_id: UUID, turn_id: UUID) -> Turn:
        """One turn."""
        return await self._store.get(user_id, turn_id)

    async def list(self, user_id: UUID, which: TurnFilter, size: int, after: UUID | None) -> Page[Turn, UUID]:
        """A page, the newest first."""
        if which.conversation_id is not None:
            await self._threads.get(user_id, which.conversation_id)
        return await self._store.list(user_id, which, size, after)

    async def agent_id(self, user_id: UUID, agent: str) -> UUID:
        """The agent of a name or an id."""
        return (await self._agents.get(user_id, agent)).id

    async def names(self, user_id: UUID) -> dict[UUID, str]:
        """What the user's agents are called."""
        return {agent.id: agent.name for agent in await self._agents.list(user_id)}

    async def _check(self, user_id: UUID, agent: Agent) -> None:
        if not agent.enabled:
            raise agent_disabled(agent.name)
        await self._flags.require(user_id, Feature.TURNS)
        self._models.get(agent.profile.model, Purpose.CHAT)

    async def _sent(
        self,
        user_id: UUID,
        address: Callable[[], Awaitable[Addressed]],
        message: Message,
        once: Once | None,
    ) -> AsyncGenerator[Event]:
        """The events of the turn that a message becomes, or became the first time that it was sent."""
        try:
            to = await address()
            await self._check(user_id, to.agent)
        except SageError:
            repeated = await self._store.accepted_before(user_id, once)
            if repeated is None:
                raise
            return self._attached(user_id, repeated, message)
        # In a task of its own: a caller who goes away at the wrong moment must not leave a turn behind that
        # is accepted and does not run.
        task = asyncio.create_task(self._accept(user_id, to, message, once), name="accept-turn")
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)
        return await asyncio.shield(task)

    async def _accept(
        self, user_id: UUID, to: Addressed, message: Message, once: Once | None
    ) -> AsyncGenerator[Event]:
        now = self._clock.now()
        new = self._new_turn(to, message, once, now)
        self._failpoints.reach("accept.before")
        accepted = await self._store.accept(user_id, new, once, now)
        self._failpoints.reach("accept.after")
        turn_id = accepted.turn_id
        if accepted.repeated:
            return self._attached(user_id, turn_id, message)
        before = next(event.seq for event in accepted.events if event.turn_id == turn_id) - 1
        events = self._hub.follow_turn(user_id, turn_id, before, deltas=message.deltas, heartbeat=HEARTBEAT)
        self._hub.publish(user_id, accepted.events)
        self._start(user_id, to, accepted)
        return _shown(events)

    def _attached(self, user_id: UUID, turn_id: UUID, message: Message) -> AsyncGenerator[Event]:
        return self._streams.attach(user_id, turn_id, 0, deltas=message.deltas, heartbeat=HEARTBEAT)

    def _start(self, user_id: UUID, to: Addressed, accepted: Acceptance) -> None:
        for event in accepted.events:
            if event.last and event.turn_id is not None:
                self._host.stop(event.turn_id)  # it was interrupted
        self._failpoints.reach("start.before")
        if accepted.lease is not None:
            self._host.start(accepted.lease, agent=to.agent)
        else:
            self._host.wake(user_id, to.conversation_id)

    def _new_turn(self, to: Addressed, message: Message, once: Once | None, now: datetime) -> NewTurn:
        turn_id, agent = new_id(now), to.agent
        item = DraftItem(
            id=new_id(now),
            kind=ItemKind.USER,
            text=message.text,
            author=message.author,
            token_count=self._tokens.count(message.text),
            created_at=now,
            turn_id=turn_id,
            recalled=message.store,
        )
        turn = Turn(
            id=turn_id,
            agent_id=agent.id,
            conversation_id=to.conversation_id,
            own_thread=to.origin is TurnOrigin.CHAT,
            status=TurnStatus.QUEUED,
            origin=to.origin,
            created_at=now,
            store=message.store,
            request_id=None if once is None else once.request_id,
            input_item_id=item.id,
        )
        accepted = Accepted(shown(item, to.conversation_id), agent.name, turn.request_id)
        model = self._models.get(agent.profile.model, Purpose.CHAT)
        return NewTurn(
            turn=turn,
            input=item,
            told=[
                NewEvent(new_id(now), accepted, 0, item=0),
                *([] if to.handed is None else [NewEvent(new_id(now), to.handed, 0)]),
            ],
            told_when_running=[NewEvent(new_id(now), Typing(model.name), 1)],
            on_busy=message.on_busy,
            most_waiting=MOST_WAITING,
        )


async def _shown(following: Following) -> AsyncGenerator[Event]:
    async with aclosing(following) as events:
        async for event in events:
            yield event
