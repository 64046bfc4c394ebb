"""Another model for the memories that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from sage_server.domain.paging import Page
from sage_server.ports.memories import Space, Vector


@dataclass(frozen=True)
class Unembedded:
    """A memory without a vector of some model. Its text is None if the memory does not open: it can get no
    vector, and must not hold up those that can."""

    id: UUID
    version: int
    text: str | None


@dataclass(frozen=True)
class NextVector:
    """A vector for one version of a memory; None if its text has nothing to embed, or does not open."""

    memory_id: UUID
    version: int
    vector: Vector | None


class ReembeddingStore(Protocol):
    """Fills the vectors that search does not use yet, beside those that it uses."""

    async def users_beside(self, model: str, dimensions: int, limit: int) -> Sequence[UUID]:
        """Users whose search uses another model, by their ids: the first who have no job that brings them
        over. A dead one counts, for it waits for an operator."""
        ...

    async def unembedded(
        self, user_id: UUID, space: Space, limit: int, after: UUID
    ) -> Page[Unembedded, UUID]:
        """Live memories without a vector of the space, by their ids; `after` is the last one seen.

        Those of an older key must be left out, unless they do not open and would have it for ever. A page may
        be empty and not the last.
        """
        ...

    async def fill(self, user_id: UUID, space: Space, vectors: Sequence[NextVector]) -> int:
        """Store vectors of the space for memories that have not changed since; answers with how many."""
        ...

    async def switch(self, user_id: UUID, old: Space, new: Space) -> bool:
        """Let search use the new space, if every live memory is in it and it uses the old one now.

        Takes a revision, so that replicas see it.
        """
        ...

    async def clear(self, user_id: UUID, space: Space, limit: int) -> int:
        """Remove some vectors of a space that is not used any more; answers with how many."""
        ...
