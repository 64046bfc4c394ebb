"""What a filter of memories may name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias
from uuid import UUID

from sage_server.domain.memories import MemoryFilter
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.ports.agents import AgentDirectory

Require: TypeAlias = Callable[[UUID, UUID], Awaitable[object]]
"""Reads what belongs to a user by its id, or raises NOT_FOUND."""


class AgentNames:
    """The agents that one request names: each name is looked up once, however often it comes."""

    def __init__(self, agents: AgentDirectory, user_id: UUID) -> None:
        self._agents = agents
        self._user_id = user_id
        self._known: dict[str, UUID] = {}

    async def find(self, agent: str) -> UUID | None:
        """The agent that a caller names; None for the empty name, which names none."""
        if not agent:
            return None
        found = self._known.get(agent)
        if found is None:
            found = self._known[agent] = await self._agents.resolve(self._user_id, agent)
        return found


class MemoryScopes:
    """Finds agents, and refuses conversations and documents that the user does not have."""

    def __init__(
        self, agents: AgentDirectory, conversation: Require, document: Require, indexes: IndexCache
    ) -> None:
        self._agents = agents
        self._conversation = conversation
        self._document = document
        self._indexes = indexes

    def names(self, user_id: UUID) -> AgentNames:
        """For the agents of a request with several entries."""
        return AgentNames(self._agents, user_id)

    async def agent(self, user_id: UUID, agent: str) -> UUID | None:
        """As AgentNames, for a request that names one."""
        return await self.names(user_id).find(agent)

    async def check(self, user_id: UUID, which: MemoryFilter) -> None:
        """Raise NOT_FOUND for what is not the user's, and for an agent's own thread, which has no public id.
        What their index knows needs no look."""
        entry = self._indexes.peek(user_id)
        conversation, document = which.conversation_id, which.document_id
        if conversation is not None and not (entry and entry.index.has_conversation(conversation)):
            await self._conversation(user_id, conversation)
        if document is not None and not (entry and entry.index.has_document(document)):
            await self._document(user_id, document)
