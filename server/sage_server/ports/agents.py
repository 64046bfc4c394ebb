"""Who a user's agents are, for what is kept by agent."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class AgentDirectory(Protocol):
    """Finds agents of one user by what a caller calls them: a name, or an id."""

    async def resolve(self, user_id: UUID, agent: str) -> UUID:
        """The agent's id. Must raise NOT_FOUND for an agent that the user does not have."""
        ...

    async def own_thread(self, user_id: UUID, agent: str) -> UUID:
        """The conversation that is the agent's own thread. Must raise NOT_FOUND as `resolve`."""
        ...
