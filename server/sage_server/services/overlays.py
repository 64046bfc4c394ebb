"""What agents wrote on top of the user's memory."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sage_server.domain.agents import MemoryMode
from sage_server.domain.idempotency import Once
from sage_server.domain.overlays import ConflictPolicy, Merged, OverlayChange, agent_not_overlay
from sage_server.domain.paging import Page, TimeCursor
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.ports.agents import AgentStore
from sage_server.ports.clock import Clock
from sage_server.ports.overlays import OverlayStore


class Overlays:
    """What callers do with the overlay of an agent, which is named by its name or its id."""

    def __init__(
        self, *, overlays: OverlayStore, agents: AgentStore, writer: MemoryWriter, clock: Clock
    ) -> None:
        self._overlays = overlays
        self._agents = agents
        self._writer = writer
        self._clock = clock

    async def changes(
        self, user_id: UUID, agent: str, *, conflicting_only: bool, size: int, after: TimeCursor | None
    ) -> Page[OverlayChange, TimeCursor]:
        """A page, the newest first."""
        agent_id = await self._agent(user_id, agent)
        return await self._overlays.changes(
            user_id, agent_id, conflicting_only=conflicting_only, size=size, after=after
        )

    async def merge(
        self, user_id: UUID, agent: str, ids: Collection[UUID], policy: ConflictPolicy, once: Once | None
    ) -> Merged:
        """Move changes into the user's memory; no ids means all. A repeat gets the first answer, whatever has
        become of the agent since."""
        if once is not None:
            earlier = await self._overlays.merged_before(user_id, once)
            if earlier is not None:
                return earlier
        agent_id = await self._agent(user_id, agent)
        merged = await self._overlays.merge(user_id, agent_id, ids, policy, once=once, now=self._clock.now())
        await self._writer.refresh(user_id)
        return merged

    async def _agent(self, user_id: UUID, agent: str) -> UUID:
        found = await self._agents.get(user_id, agent)
        if found.memory_mode is not MemoryMode.OVERLAY:
            raise agent_not_overlay(found.memory_mode)
        return found.id
