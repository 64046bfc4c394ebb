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


class MemoryScopes:
    """Finds agents, and refuses conversations and documents that the user does not have."""

    def __init__(
        self, agents: AgentDirectory, conversation: Require, document: Require, indexes: IndexCache
    ) -> None:
        self._agents = agents
        self._conversation = conversation
        self._document = document
        self._indexes = indexes

    async def agent(self, user_id: UUID, agent: str) -> UUID | None:
        """The agent that a caller names; None for the empty name, which names none."""
        return await self._agents.resolve(user_id, agent) if agent else None

    async def check(self, user_id: UUID, which: MemoryFilter) -> None:
        """Raise NOT_FOUND for what is not the user's, and for an agent's own thread, which has no public id.
        What their index knows needs no look."""
        entry = self._indexes.peek(user_id)
        conversation, document = which.conversation_id, which.document_id
        if conversation is not None and not (entry and entry.index.has_conversation(conversation)):
            await self._conversation(user_id, conversation)
        if document is not None and not (entry and entry.index.has_document(document)):
            await self._document(user_id, document)
