"""Another model for the memories that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from sage_server.ports.memories import Space, Vector


@dataclass(frozen=True)
class Unembedded:
    """A memory without a vector of some model."""

    id: UUID
    version: int
    text: str


@dataclass(frozen=True)
class NextVector:
    """A vector for one version of a memory; None if its text has nothing to embed."""

    memory_id: UUID
    version: int
    vector: Vector | None


class ReembeddingStore(Protocol):
    """Fills the vectors that search does not use yet, beside those that it uses."""

    async def users_beside(self, model: str, dimensions: int, limit: int) -> Sequence[UUID]:
        """Some users whose search uses another model."""
        ...

    async def unembedded(self, user_id: UUID, space: Space, limit: int) -> Sequence[Unembedded]:
        """Some live memories without a vector of the space, and with the user's current key."""
        ...

    async def fill(self, user_id: UUID, space: Space, vectors: Sequence[NextVector]) -> None:
        """Store vectors of the space for memories that have not changed since."""
        ...

    async def switch(self, user_id: UUID, old: Space, new: Space) -> bool:
        """Let search use the new space, if every live memory is in it and it uses the old one now.

        Takes a revision, so that replicas see it.
        """
        ...

    async def clear(self, user_id: UUID, space: Space, limit: int) -> int:
        """Remove some vectors of a space that is not used any more; answers with how many."""
        ...
