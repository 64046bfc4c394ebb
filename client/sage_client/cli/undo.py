"""`/undo`: take back what an agent changed in core memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from sage_client import SageClient
from sage_client.models.blocks import Block, BlockActor, BlockRevision


@dataclass
class Edits:
    """The turns of a session, and which of their changes were taken back."""

    agent: str
    turns: set[str] = field(default_factory=set)
    _undone: set[tuple[str, int]] = field(default_factory=set)

    def undo(self, client: SageClient) -> tuple[Block | None, str]:
        """Take back the last change of a block that a turn of this session made.

        The block as it is now and what was done; None and why nothing was.
        """
        found = [
            (block, revision)
            for block in client.memory.blocks.list(agent=self.agent)
            if (revision := self._last(client, block)) is not None
        ]
        if not found:
            return None, "There is nothing to take back: no turn of this session changed core memory."
        block, revision = max(found, key=lambda one: one[1].create_time)
        if revision.revision == 1:
            return None, f"{block.label} is new. To remove it: sage memory delete {block.label}"
        if self._changed_since(client, block, revision):
            return None, f"{block.label} was changed since. Choose from: sage memory history {block.label}"
        owner = self.agent if block.agent_id else ""
        before = revision.revision - 1
        restored = client.memory.blocks.restore(block.label, before, agent=owner, etag=block.etag)
        self._undone |= {(block.id, revision.revision), (block.id, restored.revision)}
        return restored, f"{block.label} is as it was at revision {before}."

    def _last(self, client: SageClient, block: Block) -> BlockRevision | None:
        """The newest change of this block by a turn of this session that was not taken back."""
        for revision in self._revisions(client, block):
            taken_back = (block.id, revision.revision) in self._undone
            if revision.actor is BlockActor.AGENT and revision.turn_id in self.turns and not taken_back:
                return revision
        return None

    def _changed_since(self, client: SageClient, block: Block, revision: BlockRevision) -> bool:
        """Whether anybody changed it after that, other than `/undo`."""
        later = (one for one in self._revisions(client, block) if one.revision > revision.revision)
        return any((block.id, one.revision) not in self._undone for one in later)

    def _revisions(self, client: SageClient, block: Block) -> list[BlockRevision]:
        owner = self.agent if block.agent_id else ""
        return list(client.memory.blocks.revisions_page(block.label, agent=owner).items)
