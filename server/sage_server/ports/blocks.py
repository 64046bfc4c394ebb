"""The store of core memory blocks."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from sage_server.domain.blocks import (
    Block,
    BlockActor,
    BlockChange,
    BlockCursor,
    BlockName,
    BlockRevision,
)
from sage_server.domain.idempotency import Once
from sage_server.domain.paging import Page


class BlockStore(Protocol):
    """Blocks of one user, and their revisions.

    A block must be found by any spelling of its label that differs only in case, surrounding space or
    Unicode form, also while the user's key is rotated. Every change must store the block and its new
    revision together; revisions are numbered 1, 2, 3 without a gap, however many writers there are.
    Methods that take a name must raise NOT_FOUND if there is no such block, and those that take an etag
    ETAG_MISMATCH if it is given and not current.
    """

    async def created_before(self, user_id: UUID, once: Once) -> Block | None:
        """The block that this request created, as it was then. None if the request is new.

        Must raise REQUEST_ID_REUSED if the id belongs to another request.
        """
        ...

    async def create(self, user_id: UUID, block: Block, actor: BlockActor, once: Once | None) -> Block:
        """Store a new block with its first revision.

        Must raise ALREADY_EXISTS if the label is taken among the shared blocks or those of the agent, and
        LIMIT_REACHED if the user has MAX_BLOCKS already; creations at the same time must not get past
        either. With `once` it must happen at most once, and a repeat must give the first answer.
        """
        ...

    async def get(self, user_id: UUID, name: BlockName) -> Block:
        """One block."""
        ...

    async def list(
        self, user_id: UUID, *, agent_id: UUID | None, size: int, after: BlockCursor | None
    ) -> Page[Block, BlockCursor]:
        """A page of the shared blocks and those of one agent, or of all agents with None.

        Shared ones come first; each group is in the order of creation.
        """
        ...

    async def update(
        self,
        user_id: UUID,
        name: BlockName,
        change: BlockChange,
        *,
        etag: str,
        actor: BlockActor,
        now: datetime,
    ) -> Block:
        """Make what `Block.changed` says, as a new revision. A change that changes nothing makes none."""
        ...

    async def restore(
        self,
        user_id: UUID,
        name: BlockName,
        revision: int,
        *,
        etag: str,
        actor: BlockActor,
        now: datetime,
    ) -> Block:
        """Make an earlier revision current again, as a new one. Must raise NOT_FOUND if it is missing."""
        ...

    async def delete(self, user_id: UUID, name: BlockName, etag: str) -> int:
        """Delete a block with its revisions; answers with how many there were."""
        ...

    async def revisions(
        self, user_id: UUID, name: BlockName, size: int, before: int | None
    ) -> Page[BlockRevision, int]:
        """A page of the block's revisions, the newest first."""
        ...
