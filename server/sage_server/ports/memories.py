"""Stored memories. Every method acts for one user and must not see or touch another user's rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

from sage_server.domain.idempotency import Once
from sage_server.domain.memories import Memory, MemoryFilter, MemorySource
from sage_server.domain.paging import Page, TimeCursor

Vector: TypeAlias = npt.NDArray[np.float32]
Fill: TypeAlias = Callable[[int, Vector], bool]
"""Writes the vector of the nth memory into the room given; False if that memory has none."""


@dataclass(frozen=True)
class Space:
    """Which vectors of a user search uses. Vectors of two models never meet in one space."""

    model: str
    dimensions: int
    slot: int = 0


@dataclass(frozen=True)
class MemoryHead:
    """The state of a user's memories."""

    revision: int
    """Of the last write."""
    pruned: int
    """Traces of deletions up to this revision are gone: who is older must read everything again."""
    space: Space | None
    """None while there is no memory."""


@dataclass(frozen=True)
class NewMemory:
    """A memory with its vector, which must be of unit length, or None if the text has nothing to embed."""

    memory: Memory
    vector: Vector | None


@dataclass(frozen=True)
class Written:
    """What a write did."""

    revision: int
    ids: Sequence[UUID]
    at: datetime
    """When it was first done."""
    repeated: bool = False
    """Whether it was done before, for the same request id."""


@dataclass(frozen=True)
class Removed:
    """Memories that are gone."""

    revision: int
    ids: Sequence[UUID]


@dataclass(frozen=True)
class MemoryBatch:
    """Some rows as an index takes them."""

    memories: Sequence[Memory]
    fill: Fill
    removed: Sequence[UUID]
    revision: int
    """The last one among the rows."""


class MemoryStore(Protocol):
    """Memories of every source.

    A write takes the user's next revision as its rows become visible, so that the order of revisions is the
    order of commits, and a reader who goes on after the last revision it saw misses nothing.
    """

    async def head(self, user_id: UUID) -> MemoryHead:
        """The state now. Must raise USER_ERASED if the user is gone."""
        ...

    async def counts(self, user_id: UUID) -> Mapping[MemorySource, int]:
        """How many live memories there are of each source."""
        ...

    async def revisions(self, user_ids: Sequence[UUID]) -> Mapping[UUID, int]:
        """The last revision of each."""
        ...

    async def insert(
        self, user_id: UUID, memories: Sequence[NewMemory], space: Space, once: Once | None, now: datetime
    ) -> Written | None:
        """Store memories, all or none. None if `space` is no longer the user's: embed again.

        With `once` it must happen at most once, and a repeat must give the first answer, or raise
        REQUEST_ID_REUSED if its digest is another.
        """
        ...

    async def index_items(
        self, user_id: UUID, conversation_id: UUID, memories: Sequence[NewMemory], space: Space
    ) -> Written | None:
        """Store messages of a conversation that are not stored yet; those that the user deleted stay
        deleted. None as for `insert`. Must store nothing if the conversation is deleted or private."""
        ...

    async def get(self, user_id: UUID, memory_id: UUID) -> Memory:
        """Must raise NOT_FOUND."""
        ...

    async def list(
        self, user_id: UUID, which: MemoryFilter, size: int, after: TimeCursor | None
    ) -> Page[Memory, TimeCursor]:
        """A page, the newest first."""
        ...

    async def update(
        self, user_id: UUID, changed: Memory, vector: Vector | None, space: Space, *, embedded: bool
    ) -> Written | None:
        """Replace the memory of the version before `changed`'s; with `embedded`, its vector too.

        None if somebody else was faster or `space` is no longer the user's: read again.
        """
        ...

    async def remove(self, user_id: UUID, ids: Sequence[UUID], now: datetime) -> Removed:
        """Delete for good those that are there."""
        ...

    async def remove_version(self, user_id: UUID, memory: Memory, now: datetime) -> Removed:
        """Delete a memory for good unless it has changed since it was read."""
        ...

    async def remove_matching(self, user_id: UUID, which: MemoryFilter, now: datetime) -> Removed:
        """Delete for good all that match."""
        ...

    def load(self, user_id: UUID, space: Space) -> AsyncIterator[MemoryBatch]:
        """All live memories, in batches, which need not be of one moment: read the changes since then."""
        ...

    def changes(self, user_id: UUID, space: Space, after: int) -> AsyncIterator[MemoryBatch]:
        """What was written after a revision, in batches. All of a revision is in one moment."""
        ...
