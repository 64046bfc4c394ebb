"""Overlays: what an agent wrote on top of the user's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from uuid import UUID

from sage_server.domain.agents import MemoryMode
from sage_server.domain.blocks import Block, BlockBase
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.labels import normalise_label
from sage_server.domain.memories import Memory


class OverlayChangeKind(IntEnum):
    """What a change is. Agents have no means to change or delete memories of the user, or to delete a
    block, so there are no such changes."""

    MEMORY_INSERTED = 1
    BLOCK_CREATED = 4
    BLOCK_UPDATED = 5


class ConflictPolicy(IntEnum):
    """What a merge does with a change under which the user's memory has changed."""

    SKIP = 1
    OVERWRITE = 2
    FAIL = 3


@dataclass(frozen=True)
class OverlayChange:
    """Something in the agent's own memory, as the agent sees it now."""

    kind: OverlayChangeKind
    resource: Memory | Block
    turn_id: UUID | None
    """The turn that made it last; None if a caller did."""
    conflicting: bool = False

    @property
    def id(self) -> UUID:
        """That of the memory or block."""
        return self.resource.id

    @property
    def made_at(self) -> datetime:
        """When it was last made."""
        return self.resource.updated_at


@dataclass(frozen=True)
class BlockOverlay:
    """An agent's own block, and the shared one that it hides, if there is one."""

    own: Block
    under: Block | None

    @property
    def kind(self) -> OverlayChangeKind:
        """A version of a block that was deleted since is still a change of that block."""
        new = self.under is None and self.own.base is None
        return OverlayChangeKind.BLOCK_CREATED if new else OverlayChangeKind.BLOCK_UPDATED

    @property
    def conflicting(self) -> bool:
        """Whether what lies under it is not what it was made from."""
        lies_under = None if self.under is None else BlockBase(self.under.id, self.under.revision)
        return lies_under != self.own.base


def block_overlays(blocks: Iterable[Block]) -> list[BlockOverlay]:
    """What one agent has of its own among these blocks, which are its own and all that agents share."""
    every = list(blocks)
    shared: Mapping[str, Block] = {
        normalise_label(block.label): block for block in every if block.agent_id is None
    }
    return [
        BlockOverlay(block, shared.get(normalise_label(block.label)))
        for block in every
        if block.agent_id is not None
    ]


@dataclass(frozen=True)
class Merged:
    """What a merge did."""

    count: int
    skipped: Sequence[UUID]
    """Changes that stay in the overlay because of a conflict."""
    revision: int
    """Of the user's memories from then on."""


def agent_not_overlay(mode: MemoryMode) -> SageError:
    """The agent has no layer of its own on top of the user's memory."""
    return SageError(
        Reason.AGENT_NOT_OVERLAY,
        "The agent's memory mode is not OVERLAY.",
        metadata={"memory_mode": mode.name},
    )


def overlay_conflict(conflicts: int) -> SageError:
    """The user's memory changed under some changes, and nothing is merged."""
    return SageError(
        Reason.OVERLAY_CONFLICT,
        "The user's memory has changed under the overlay. Nothing was merged.",
        metadata={"conflicts": str(conflicts)},
    )
