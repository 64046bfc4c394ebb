"""Core memory blocks."""

from __future__ import annotations

from uuid import UUID

from sage_server.domain.blocks import (
    BY_USER,
    Block,
    BlockChange,
    BlockCursor,
    BlockName,
    BlockRevision,
    check_label,
)
from sage_server.domain.idempotency import Once
from sage_server.domain.ids import new_id
from sage_server.domain.paging import Page
from sage_server.ports.agents import AgentDirectory
from sage_server.ports.blocks import BlockStore
from sage_server.ports.clock import Clock


class Blocks:
    """What callers do with blocks, for one user. They may change read-only blocks too.

    `agent` is a name or an id; empty means the blocks that all agents share.
    """

    def __init__(self, *, blocks: BlockStore, agents: AgentDirectory, clock: Clock) -> None:
        self._blocks = blocks
        self._agents = agents
        self._clock = clock

    async def create(
        self,
        user_id: UUID,
        *,
        label: str,
        agent: str,
        description: str,
        value: str,
        char_limit: int,
        read_only: bool,
        once: Once | None,
    ) -> Block:
        """A new block. A repeat gets the first answer, whatever has become of block and agent since."""
        check_label(label)
        if once is not None:
            earlier = await self._blocks.created_before(user_id, once)
            if earlier is not None:
                return earlier
        now = self._clock.now()
        block = Block(
            id=new_id(now),
            label=label,
            agent_id=await self._agent_id(user_id, agent),
            description=description,
            value=value,
            char_limit=char_limit,
            read_only=read_only,
            created_at=now,
            updated_at=now,
        )
        block.check_length()
        return await self._blocks.create(user_id, block, BY_USER, once)

    async def get(self, user_id: UUID, label: str, agent: str) -> Block:
        """One block."""
        return await self._blocks.get(user_id, await self._name(user_id, label, agent))

    async def list(
        self, user_id: UUID, *, agent: str, size: int, after: BlockCursor | None
    ) -> Page[Block, BlockCursor]:
        """A page of all blocks, or of those that an agent has in its context."""
        agent_id = await self._agent_id(user_id, agent)
        return await self._blocks.list(user_id, agent_id=agent_id, size=size, after=after)

    async def update(self, user_id: UUID, label: str, agent: str, change: BlockChange, etag: str) -> Block:
        """Change what `change` names. What changes nothing makes no revision."""
        name = await self._name(user_id, label, agent)
        now = self._clock.now()
        return await self._blocks.update(user_id, name, change, etag=etag, actor=BY_USER, now=now)

    async def restore(self, user_id: UUID, label: str, agent: str, revision: int, etag: str) -> Block:
        """Make an earlier revision current again."""
        name = await self._name(user_id, label, agent)
        now = self._clock.now()
        return await self._blocks.restore(user_id, name, revision, etag=etag, actor=BY_USER, now=now)

    async def delete(self, user_id: UUID, label: str, agent: str, etag: str) -> int:
        """Delete for good; answers with how many revisions there were."""
        return await self._blocks.delete(user_id, await self._name(user_id, label, agent), etag)

    async def revisions(
        self, user_id: UUID, label: str, agent: str, size: int, before: int | None
    ) -> Page[BlockRevision, int]:
        """A page of a block's revisions, the newest first."""
        name = await self._name(user_id, label, agent)
        return await self._blocks.revisions(user_id, name, size, before)

    async def _name(self, user_id: UUID, label: str, agent: str) -> BlockName:
        check_label(label)
        return BlockName(label, await self._agent_id(user_id, agent))

    async def _agent_id(self, user_id: UUID, agent: str) -> UUID | None:
        return await self._agents.resolve(user_id, agent) if agent else None
