"""Who a user's agents are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from sage_server.domain.agents import Agent
from sage_server.domain.blocks import Block
from sage_server.domain.events import Event
from sage_server.domain.idempotency import Once
from sage_server.ports.memories import Removed


class AgentDirectory(Protocol):
    """Finds agents of one user by what a caller calls them: a name, or an id."""

    async def resolve(self, user_id: UUID, agent: str) -> UUID:
        """The agent's id. Must raise NOT_FOUND for an agent that the user does not have."""
        ...

    async def own_thread(self, user_id: UUID, agent: str) -> UUID:
        """The conversation that is the agent's own thread. Must raise NOT_FOUND as `resolve`."""
        ...


@dataclass(frozen=True)
class ClearedThread:
    """What was deleted of an agent's own thread."""

    items: int
    summaries: int
    memories: Removed


@dataclass(frozen=True)
class DeletedAgent:
    """What was deleted with an agent."""

    items: int
    blocks: int
    memories: Removed
    events: Sequence[Event]
    """Of turns that were cancelled."""


class AgentStore(Protocol):
    """Agents, each with a thread of its own."""

    async def created_before(self, user_id: UUID, once: Once) -> Agent | None:
        """The agent that this request created, as it was then. None if the request is new.

        Must raise REQUEST_ID_REUSED if the id belongs to another request.
        """
        ...

    async def create(self, user_id: UUID, agent: Agent, blocks: Sequence[Block], once: Once | None) -> Agent:
        """Store a new agent with its empty thread, and those of the blocks whose labels are free.

        Must raise ALREADY_EXISTS if the name is taken and LIMIT_REACHED if there are too many. A creation
        with `once` must happen at most once, and a repeat must give the first answer.
        """
        ...

    async def get(self, user_id: UUID, agent: str) -> Agent:
        """The agent of a name or an id. Must raise NOT_FOUND."""
        ...

    async def list(self, user_id: UUID) -> Sequence[Agent]:
        """All of them, by name: a user has few."""
        ...

    async def update(self, user_id: UUID, changed: Agent) -> bool:
        """Replace the agent of the version before `changed`'s; False if somebody else was faster.

        Must raise OVERLAY_NOT_EMPTY if it would leave OVERLAY with changes in its overlay (see OverlayStore).
        """
        ...

    async def delete(self, user_id: UUID, agent: Agent, now: datetime) -> DeletedAgent | None:
        """Delete the agent, its thread, its own blocks and memories, for good, and cancel its turns.

        None if it has changed since it was read.
        """
        ...

    async def clear(self, user_id: UUID, agent: Agent, now: datetime) -> ClearedThread:
        """Delete all items and summaries of the agent's own thread, what search knew of them, and the events
        that showed them. Must raise TURN_BUSY while a turn waits or runs in it."""
        ...
