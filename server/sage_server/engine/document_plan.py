"""Which chunks of a document stay, which change, which are new and which go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import numpy as np

from sage_server.domain.chunks import Chunk
from sage_server.domain.documents import Document
from sage_server.domain.ids import new_id
from sage_server.domain.memories import Memory, MemorySource, Provenance
from sage_server.ports.memories import MemoryBatch, NewMemory, Space, Vector


@dataclass(frozen=True)
class Plan:
    """How the chunks of before become those of now."""

    embedded: Sequence[NewMemory]
    """Those that stay but change: place, title, tags or trust. Their vectors stay."""
    unembedded: Sequence[Memory]
    """Those that need a vector: all that are new, and some that change."""
    gone: Sequence[UUID]
    reused: int
    """How many stay, changed or not."""


def planned(
    document: Document, chunks: Sequence[Chunk], before: Sequence[MemoryBatch], space: Space, now: datetime
) -> Plan:
    """Chunks are the same if their text is. `before` has their vectors of `space`."""
    known = {memory.text: (batch, at) for batch in before for at, memory in enumerate(batch.memories)}
    embedded: list[NewMemory] = []
    unembedded: list[Memory] = []
    kept: set[UUID] = set()
    for chunk in chunks:
        place = known.get(chunk.text)
        if place is None:
            unembedded.append(_new(document, chunk, now))
            continue
        batch, at = place
        old = batch.memories[at]
        kept.add(old.id)
        changed = _of(document, chunk, old)
        if changed == old:
            continue
        changed = changed._replace(updated_at=now)
        if old.embedding_model == space.model:
            embedded.append(NewMemory(changed, _vector(batch, at, space)))
        else:
            unembedded.append(changed)
    gone = [memory.id for batch in before for memory in batch.memories if memory.id not in kept]
    return Plan(embedded, unembedded, gone, len(kept))


def _new(document: Document, chunk: Chunk, now: datetime) -> Memory:
    return _of(document, chunk, Memory(new_id(now), MemorySource.DOCUMENT, chunk.text, now, now))


def _of(document: Document, chunk: Chunk, memory: Memory) -> Memory:
    """The memory as the chunk of this document."""
    place = Provenance(
        document_id=document.id,
        origin=document.title,
        chunk_index=chunk.index,
        char_start=chunk.start,
        char_end=chunk.end,
    )
    return memory._replace(
        tags=document.tags, agent_id=document.agent_id, provenance=place, trust=document.trust
    )


def _vector(batch: MemoryBatch, at: int, space: Space) -> Vector | None:
    room = np.empty(space.dimensions, np.float32)
    return room if batch.fill(at, room) else None
