"""Everything of a user in one file."""

from __future__ import annotations

from dataclasses import dataclass

from sage_client.models.transfer import ExportChunk, ExportProgress


@dataclass(frozen=True, slots=True)
class TakeoutCounts:
    """How much of each. An agent's own thread counts as a conversation."""

    agents: int = 0
    blocks: int = 0
    memories: int = 0
    conversations: int = 0
    items: int = 0

    def __add__(self, other: TakeoutCounts) -> TakeoutCounts:
        return TakeoutCounts(
            agents=self.agents + other.agents,
            blocks=self.blocks + other.blocks,
            memories=self.memories + other.memories,
            conversations=self.conversations + other.conversations,
            items=self.items + other.items,
        )


TakeoutEvent = ExportChunk | ExportProgress | TakeoutCounts


@dataclass(frozen=True, slots=True)
class TakeoutImported:
    """What was created, and what was left as it is because it was there already.

    `different_blocks` are the labels of those left as they are although the file has another text for them.
    """

    created: TakeoutCounts = TakeoutCounts()
    skipped: TakeoutCounts = TakeoutCounts()
    different_blocks: tuple[str, ...] = ()

    def __add__(self, other: TakeoutImported) -> TakeoutImported:
        return TakeoutImported(
            self.created + other.created,
            self.skipped + other.skipped,
            self.different_blocks + other.different_blocks,
        )
