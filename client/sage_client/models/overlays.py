"""Overlays: what an agent wrote on top of the user's memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sage_client.models.blocks import Block
from sage_client.models.memory import Memory


class OverlayChangeKind(StrEnum):
    """What an overlay change is."""

    MEMORY_INSERTED = "memory_inserted"
    MEMORY_UPDATED = "memory_updated"
    """A changed memory of the user."""
    MEMORY_DELETED = "memory_deleted"
    """A memory of the user that the agent no longer sees."""
    BLOCK_CREATED = "block_created"
    BLOCK_UPDATED = "block_updated"
    """A changed block of the user."""
    BLOCK_DELETED = "block_deleted"
    """A block of the user that the agent no longer sees."""
    UNKNOWN = "unknown"
    """A kind that this version of the client does not know."""


class OverlayConflictPolicy(StrEnum):
    """What a merge does with a change under which the user's memory changed."""

    SKIP = "skip"
    """Leave it in the overlay and merge the others. The default."""
    OVERWRITE = "overwrite"
    """The overlay's version wins."""
    FAIL = "fail"
    """Merge nothing: Aborted."""


@dataclass(frozen=True, slots=True)
class OverlayChange:
    """A change in an agent's own layer, as the agent sees it now. It is about a memory or a block.

    `conflicting` is True if the user's memory changed underneath since. `turn_id` is empty if no turn made
    it. `create_time` is when it was last made.
    """

    id: str
    kind: OverlayChangeKind
    memory: Memory | None
    block: Block | None
    conflicting: bool
    turn_id: str
    create_time: datetime


@dataclass(frozen=True, slots=True)
class MergedOverlay:
    """How many changes are the user's now, and which were left because of a conflict.

    At most 1,000 are named; `skipped_count` counts all. A search at least as fresh as the token sees what
    was merged.
    """

    merged_count: int
    skipped_change_ids: tuple[str, ...]
    skipped_count: int
    memory_token: str
