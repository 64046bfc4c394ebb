"""Rows of `memories`: how they are sealed, opened and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import (
    ARRAY,
    BigInteger,
    DateTime,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    Uuid,
    bindparam,
    func,
)
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine

from sage_server.adapters.postgres.database import Record
from sage_server.adapters.postgres.schema import cell, memories
from sage_server.adapters.postgres.sealed_rows import labels_literal, open_text, seal_json, seal_text
from sage_server.domain.errors import data_loss
from sage_server.domain.memories import NOWHERE, Memory, MemorySource, MemoryState, MemoryTrust, Provenance
from sage_server.ports.keys import UserCipher
from sage_server.ports.memories import MemoryBatch, NewMemory, Vector

_m = memories.c
_CONTENT = cell(_m.content_enc)
_ORIGIN = cell(_m.origin_enc)
_METADATA = cell(_m.metadata_enc)
TAGS = cell(_m.tags)
VECTORS = (cell(_m.vector_0_enc), cell(_m.vector_1_enc))
VECTOR_COLUMNS = (_m.vector_0_enc, _m.vector_1_enc)
MODEL_COLUMNS = (_m.model_0, _m.model_1)
_TRUSTS = {int(trust): trust for trust in MemoryTrust}
_SOURCES = {int(source): source for source in MemorySource}

MEMORY_COLUMNS = tuple(
    column for column in memories.c if column not in {_m.user_id, *VECTOR_COLUMNS, *MODEL_COLUMNS}
)
_ARRAYS: dict[str, TypeEngine[Any]] = {
    "id": Uuid(),
    "source": SmallInteger(),
    "agent_id": Uuid(),
    "conversation_id": Uuid(),
    "thread_agent_id": Uuid(),
    "item_id": Uuid(),
    "item_seq": BigInteger(),
    "document_id": Uuid(),
    "turn_id": Uuid(),
    "chunk_index": Integer(),
    "char_start": BigInteger(),
    "char_end": BigInteger(),
    "trust": SmallInteger(),
    "content_enc": LargeBinary(),
    "origin_enc": LargeBinary(),
    "metadata_enc": LargeBinary(),
    "tags": Text(),
    "model": Text(),
    "vector_enc": LargeBinary(),
    "created_at": DateTime(timezone=True),
    "updated_at": DateTime(timezone=True),
}
GIVEN = tuple(name for name in _ARRAYS if name not in ("tags", "model", "vector_enc"))


def new_memories() -> TableValuedAlias:
    """The memories of a statement's parameters as a table; `tags` is the text of an array."""
    arrays: list[ColumnElement[Any]] = [
        bindparam(f"memory_{name}", type_=ARRAY(type_)) for name, type_ in _ARRAYS.items()
    ]
    return func.unnest(*arrays).table_valued(*_ARRAYS, name="new").render_derived()


def sealed_memories(cipher: UserCipher, new: Sequence[NewMemory], slot: int) -> dict[str, list[Any]]:
    """The parameters of `new_memories`."""
    rows = [entry.memory for entry in new]
    places = [memory.provenance for memory in rows]
    return {
        "memory_id": [memory.id for memory in rows],
        "memory_source": [memory.source for memory in rows],
        "memory_agent_id": [memory.agent_id for memory in rows],
        "memory_conversation_id": [place.conversation_id for place in places],
        "memory_thread_agent_id": [place.thread_agent_id for place in places],
        "memory_item_id": [place.item_id for place in places],
        "memory_item_seq": [place.item_seq for place in places],
        "memory_document_id": [place.document_id for place in places],
        "memory_turn_id": [place.turn_id for place in places],
        "memory_chunk_index": [place.chunk_index for place in places],
        "memory_char_start": [place.char_start for place in places],
        "memory_char_end": [place.char_end for place in places],
        "memory_trust": [memory.trust for memory in rows],
        "memory_created_at": [memory.created_at for memory in rows],
        "memory_updated_at": [memory.updated_at for memory in rows],
        "memory_content_enc": [seal_text(cipher, _CONTENT, memory.id, memory.text) for memory in rows],
        "memory_origin_enc": [_sealed_origin(cipher, memory) for memory in rows],
        "memory_metadata_enc": [_sealed_metadata(cipher, memory) for memory in rows],
        "memory_tags": [labels_literal(sealed_tags(cipher, memory.tags)) for memory in rows],
        "memory_model": [memory.embedding_model or None for memory in rows],
        "memory_vector_enc": [sealed_vector(cipher, slot, entry.memory.id, entry.vector) for entry in new],
    }


def sealed_content(cipher: UserCipher, memory: Memory) -> dict[str, Any]:
    """What an update can change, all but the vector."""
    return {
        "content_enc": seal_text(cipher, _CONTENT, memory.id, memory.text),
        "origin_enc": _sealed_origin(cipher, memory),
        "metadata_enc": _sealed_metadata(cipher, memory),
        "tags": sealed_tags(cipher, memory.tags),
        "key_version": cipher.key_version,
    }


def sealed_tags(cipher: UserCipher, tags: Sequence[str]) -> list[bytes] | None:
    """Tags as they are stored."""
    return list(dict.fromkeys(cipher.tag(TAGS, tag) for tag in tags)) or None


def sealed_vector(cipher: UserCipher, slot: int, row_id: UUID, vector: Vector | None) -> bytes | None:
    """A vector as it is stored: little-endian float32."""
    if vector is None:
        return None
    return cipher.seal(VECTORS[slot], row_id, np.ascontiguousarray(vector, "<f4").tobytes())


def resealed_vectors(cipher: UserCipher, row_id: UUID, row: Record) -> dict[str, bytes | None]:
    """The vectors of a row of VECTOR_COLUMNS under the cipher's key, as parameters."""
    found: dict[str, bytes | None] = {}
    for place in VECTORS:
        sealed = row[place.column]
        found[f"new_{place.column}"] = (
            None if sealed is None else cipher.seal(place, row_id, cipher.open(place, row_id, sealed))
        )
    return found


def opened_memory(cipher: UserCipher, row: Record, tags: dict[bytes, str]) -> Memory:
    """A live row of MEMORY_COLUMNS and `model`. `tags` remembers labels from one row to the next."""
    row_id: UUID = row["id"]
    source = _SOURCES[row["source"]]
    metadata, sealed = row["metadata_enc"], row["tags"]
    return Memory(
        id=row_id,
        source=source,
        text=opened_text(cipher, row_id, row["content_enc"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        tags=() if sealed is None else tuple(_tag(cipher, label, tags) for label in sealed),
        metadata={} if metadata is None else json.loads(cipher.open(_METADATA, row_id, metadata)),
        agent_id=row["agent_id"],
        provenance=_provenance(cipher, row) if source is not MemorySource.ARCHIVAL else _stored_in(row),
        trust=_TRUSTS[row["trust"]],
        version=row["version"],
        embedding_model=row["model"] or "",
    )


def opened_text(cipher: UserCipher, row_id: UUID, sealed: bytes) -> str:
    """The text of a live row."""
    return open_text(cipher, _CONTENT, row_id, sealed)


def opened_batch(cipher: UserCipher, rows: Sequence[Record], slot: int) -> MemoryBatch:
    """Rows of MEMORY_COLUMNS with the model and vector of a slot as `model` and `vector_enc`."""
    live = [row for row in rows if row["state"] == MemoryState.LIVE]
    tags: dict[bytes, str] = {}
    place = VECTORS[slot]

    def fill(at: int, room: Vector) -> bool:
        row = live[at]
        sealed = row["vector_enc"]
        if sealed is None:
            return False
        opened = cipher.open(place, row["id"], sealed)
        if len(opened) != room.nbytes:
            raise data_loss(place.table, place.column)
        room[:] = np.frombuffer(opened, "<f4")
        return True

    return MemoryBatch(
        memories=[opened_memory(cipher, row, tags) for row in live],
        fill=fill,
        removed=[row["id"] for row in rows if row["state"] != MemoryState.LIVE],
        revision=max((row["revision"] for row in rows), default=0),
    )


def _provenance(cipher: UserCipher, row: Record) -> Provenance:
    origin = row["origin_enc"]
    return Provenance(
        conversation_id=row["conversation_id"],
        item_id=row["item_id"],
        item_seq=row["item_seq"],
        document_id=row["document_id"],
        origin="" if origin is None else open_text(cipher, _ORIGIN, row["id"], origin),
        chunk_index=row["chunk_index"],
        char_start=row["char_start"],
        char_end=row["char_end"],
        turn_id=row["turn_id"],
        thread_agent_id=row["thread_agent_id"],
    )


def _stored_in(row: Record) -> Provenance:
    """Archival memories have no origin but the turn in which an agent stored them."""
    turn_id = row["turn_id"]
    return NOWHERE if turn_id is None else Provenance(turn_id=turn_id)


def _sealed_origin(cipher: UserCipher, memory: Memory) -> bytes | None:
    origin = memory.provenance.origin
    return seal_text(cipher, _ORIGIN, memory.id, origin) if origin else None


def _sealed_metadata(cipher: UserCipher, memory: Memory) -> bytes | None:
    return seal_json(cipher, _METADATA, memory.id, dict(memory.metadata)) if memory.metadata else None


def _tag(cipher: UserCipher, label: bytes, known: dict[bytes, str]) -> str:
    found = known.get(label)
    if found is None:
        found = known[label] = cipher.open_tag(TAGS, label)
    return found
