"""Agents, as long as there are none."""

from __future__ import annotations

from typing import NoReturn
from uuid import UUID

from sage_server.domain.errors import not_found


class NoAgents:
    """Implements AgentDirectory for a server that cannot have agents: it finds none."""

    async def resolve(self, user_id: UUID, agent: str) -> NoReturn:  # noqa: ARG002
        """There is no such agent, whatever its name."""
        raise not_found("agent")

    async def own_thread(self, user_id: UUID, agent: str) -> NoReturn:  # noqa: ARG002
        """Nor has it a thread."""
        raise not_found("agent")
