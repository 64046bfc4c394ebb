"""Documents that were taken into memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sage_client.models.memory import MemoryTrust


class DocumentStatus(StrEnum):
    """Where a document is. An earlier version, if there is one, is found until the new one is READY."""

    PROCESSING = "processing"
    """Being taken in."""
    READY = "ready"
    """All its chunks can be found."""
    FAILED = "failed"
    """Nothing of the new content is stored."""
    UNKNOWN = "unknown"
    """A status that this version of the client does not know. Never sent."""


class IngestStage(StrEnum):
    """The stages of taking in a document."""

    READING = "reading"
    CHUNKING = "chunking"
    EMBEDDING = "embedding"
    STORING = "storing"
    UNKNOWN = "unknown"
    """A stage that this version of the client does not know."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was when it was read. All times are in UTC.

    `failure` is why a FAILED one failed, in the words of `SageError.reason`, and None for others.
    `chunk_count` is how many memories it became. `agent_id` is empty for the user's memory.
    """

    id: str
    title: str
    external_id: str
    media_type: str
    status: DocumentStatus
    failure: str | None
    chunk_count: int
    byte_count: int
    char_count: int
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    agent_id: str
    trust: MemoryTrust
    create_time: datetime
    update_time: datetime


@dataclass(frozen=True, slots=True)
class IngestAccepted:
    """The content is stored safely and will be taken in, even if the stream breaks. The first event."""

    document: Document


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far it is. `chunks_total` is 0 while it is not known."""

    stage: IngestStage
    chunks_done: int
    chunks_total: int


@dataclass(frozen=True, slots=True)
class IngestDone:
    """The document is in memory. Always the last event.

    `skipped` if the same content was there already and nothing changed. The counts are of chunks. A search
    at least as fresh as the token sees the document.
    """

    document: Document
    skipped: bool
    added_count: int
    reused_count: int
    deleted_count: int
    memory_token: str


IngestEvent = IngestAccepted | IngestProgress | IngestDone
