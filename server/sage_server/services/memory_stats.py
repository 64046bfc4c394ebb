"""How a user's memory is doing."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sage_server.engine.memory_index.cache import IndexCache
from sage_server.ports.embedding import Embedders
from sage_server.ports.memories import MemoryStore, Space
from sage_server.ports.memory_stats import MemoryStatsStore, StoredNumbers


@dataclass(frozen=True)
class MemoryStats:
    """What is stored, what this replica holds, and what is under way."""

    stored: StoredNumbers
    revision: int
    model: str
    dimensions: int
    index_loaded: bool
    index_bytes: int
    index_count: int
    next_model: str
    """Empty unless memories are being embedded again."""
    progress: float
    """The share that has a vector of the next model."""


class MemoryStatistics:
    """Gathers them."""

    def __init__(
        self, stats: MemoryStatsStore, memories: MemoryStore, indexes: IndexCache, embedders: Embedders
    ) -> None:
        self._stats = stats
        self._memories = memories
        self._indexes = indexes
        self._embedders = embedders

    async def get(self, user_id: UUID) -> MemoryStats:
        """As things are now."""
        head = await self._memories.head(user_id)
        current = self._embedders.current
        space = head.space or Space(current.model, current.dimensions)
        entry = self._indexes.peek(user_id)
        moving = (space.model, space.dimensions) != (current.model, current.dimensions)
        progress = 0.0
        if moving:
            beside = await self._stats.numbers(
                user_id, Space(current.model, current.dimensions, 1 - space.slot)
            )
            total = sum(source.count for source in beside.sources)
            pending = sum(source.pending for source in beside.sources)
            progress = (total - pending) / total if total else 1.0
        return MemoryStats(
            stored=await self._stats.numbers(user_id, head.space),
            revision=head.revision,
            model=space.model,
            dimensions=space.dimensions,
            index_loaded=entry is not None,
            index_bytes=0 if entry is None else entry.index.bytes,
            index_count=0 if entry is None else len(entry.index),
            next_model=current.model if moving else "",
            progress=progress,
        )
