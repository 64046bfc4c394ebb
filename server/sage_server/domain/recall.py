"""Messages as memories."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid5

from sage_server.domain.chunks import chunked
from sage_server.domain.conversations import Item, ItemKind
from sage_server.domain.memories import Memory, MemorySource, MemoryTrust, Provenance

MESSAGES = frozenset({ItemKind.USER, ItemKind.ASSISTANT})
"""What people and agents say to each other. What tools and models say to themselves is not recalled."""


def remembered(item: Item, now: datetime) -> list[Memory]:
    """A message as search finds it: whole, or in chunks if it is long.

    The ids follow from the item's, so that a message that is indexed twice is there once.
    """
    if item.kind not in MESSAGES or item.hidden:
        return []
    chunks = chunked(item.text)
    whole = len(chunks) == 1
    return [
        Memory(
            id=memory_id(item.id, chunk.index),
            source=MemorySource.MESSAGE,
            text=chunk.text,
            created_at=item.created_at,
            updated_at=now,
            agent_id=item.agent_id,
            provenance=Provenance(
                conversation_id=item.conversation_id,
                item_id=item.id,
                item_seq=item.seq,
                origin=item.author,
                chunk_index=chunk.index,
                char_start=0 if whole else chunk.start,
                char_end=0 if whole else chunk.end,
                turn_id=item.turn_id,
            ),
            trust=MemoryTrust.USER if item.kind is ItemKind.USER else MemoryTrust.AGENT,
        )
        for chunk in chunks
    ]


def memory_id(item_id: UUID, chunk: int) -> UUID:
    """The id of a message's nth chunk."""
    return item_id if chunk == 0 else uuid5(item_id, str(chunk))
