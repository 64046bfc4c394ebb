"""Messages and summaries as memories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from sage_server.domain.chunks import chunked
from sage_server.domain.conversations import Item, ItemKind
from sage_server.domain.memories import Memory, MemorySource, MemoryTrust, Provenance
from sage_server.domain.summaries import Summary

MESSAGES = frozenset({ItemKind.USER, ItemKind.ASSISTANT})
"""What people and agents say to each other. What tools and models say to themselves is not recalled."""


@dataclass(frozen=True)
class Place:
    """Where what is said in a thread is remembered."""

    owner: UUID | None = None
    """The agent in whose own memory it lies; None for the user's."""
    thread_agent_id: UUID | None = None
    """The agent whose own thread it is; None for a thread of the user's."""


def remembered(item: Item, place: Place, now: datetime) -> list[Memory]:
    """A message as search finds it: whole, or in chunks if it is long.

    The ids follow from the item's, so that a message that is indexed twice is there once.
    """
    if item.kind not in MESSAGES or item.hidden or not item.recalled:
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
            agent_id=place.owner,
            provenance=Provenance(
                conversation_id=item.conversation_id,
                item_id=item.id,
                item_seq=item.seq,
                origin=item.author,
                chunk_index=chunk.index,
                char_start=0 if whole else chunk.start,
                char_end=0 if whole else chunk.end,
                turn_id=item.turn_id,
                thread_agent_id=place.thread_agent_id,
            ),
            trust=MemoryTrust.USER if item.kind is ItemKind.USER else MemoryTrust.AGENT,
        )
        for chunk in chunks
    ]


def remembered_summary(
    summary: Summary, previous: Summary | None, place: Place, now: datetime
) -> list[Memory]:
    """A summary as search finds it, under the summary's own id; nothing if it says nothing, or nothing that
    the one before it does not say."""
    if not summary.text.strip() or (previous is not None and summary.text == previous.text):
        return []
    return [
        Memory(
            id=summary.id,
            source=MemorySource.SUMMARY,
            text=summary.text,
            created_at=summary.created_at,
            updated_at=now,
            agent_id=place.owner,
            provenance=Provenance(
                conversation_id=summary.conversation_id,
                item_seq=summary.to_seq,
                thread_agent_id=place.thread_agent_id,
            ),
            trust=MemoryTrust.AGENT,
        )
    ]


def memory_id(item_id: UUID, chunk: int) -> UUID:
    """The id of a message's nth chunk."""
    return item_id if chunk == 0 else uuid5(item_id, str(chunk))
