"""Memories: what search can find."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol


class FloatArray(Protocol):
    """An array of one dimension, such as one of numpy's, which the client itself does not need."""

    def tolist(self) -> list[float]:
        """Its numbers."""


Vector = Sequence[float] | FloatArray
"""A vector that the caller has: a list, a tuple, or an array."""


class MemorySource(StrEnum):
    """What a memory comes from."""

    ARCHIVAL = "archival"
    """What an agent or a caller chose to keep."""
    MESSAGE = "message"
    """A message of a thread that is not private."""
    DOCUMENT = "document"
    """A chunk of a document."""
    SUMMARY = "summary"
    """A summary of the older part of a thread."""
    UNKNOWN = "unknown"
    """A source that this version of the client does not know. Never sent."""


class MemoryTrust(StrEnum):
    """How far a memory's text may be trusted."""

    USER = "user"
    """The user's own words, or a caller's for the user."""
    AGENT = "agent"
    """An agent's words."""
    EXTERNAL = "external"
    """Somebody else's words: documents, web pages, outputs of tools."""
    UNKNOWN = "unknown"
    """A degree that this version of the client does not know. Never sent."""


class TagMatch(StrEnum):
    """How tags must match."""

    ANY = "any"
    """At least one of the tags. The default."""
    ALL = "all"
    """All of the tags."""


class EmbedPurpose(StrEnum):
    """What a vector is for. Some models embed a question differently from what answers it."""

    DOCUMENT = "document"
    """A text to be stored and found. The default."""
    QUERY = "query"
    """A query."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a memory comes from. What does not apply to its source is empty, or 0.

    A message or summary lies in a conversation or, with `thread_agent_id`, in an agent's own thread.
    `item_seq` is for a summary that of the last item it covers. `char_end` is exclusive, and 0 if the
    memory is the whole text. `turn_id` is the turn in which an agent stored it.
    """

    conversation_id: str = ""
    thread_agent_id: str = ""
    item_id: str = ""
    item_seq: int = 0
    author: str = ""
    document_id: str = ""
    document_title: str = ""
    chunk_index: int = 0
    char_start: int = 0
    char_end: int = 0
    summary_id: str = ""
    turn_id: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory as it was when it was read. All times are in UTC.

    `agent_id` is empty for the user's memory, which agents share; `embedding_model` until it is embedded.
    `create_time` is when it came to be, for a message when it was said, and never changes.
    """

    id: str
    text: str
    source: MemorySource
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    agent_id: str
    provenance: Provenance
    trust: MemoryTrust
    embedding_model: str
    create_time: datetime
    update_time: datetime
    etag: str


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory to insert.

    - `agent`: the agent in whose own memory it lies, by name or id. Default: the user's, which agents share.
    - `create_time`: when it came to be. Default: now.
    - `trust`: default: USER.
    - `embedding`: its vector, if you have it, and `embedding_model` what made it, to be checked. Default:
      the server embeds the text.
    """

    text: str
    tags: Collection[str] = ()
    metadata: Mapping[str, str] | None = None
    agent: str = ""
    create_time: datetime | None = None
    trust: MemoryTrust | None = None
    embedding: Vector | None = field(default=None, repr=False)
    embedding_model: str = ""


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """Which memories: all conditions that are given must hold.

    - `agent`: only from this agent's own memory, by name or id.
    - `conversation_id`, `document_id`: only what comes from there.
    - `after`, `before`: only with a `create_time` from `after` on and before `before`.
    """

    sources: Collection[MemorySource] = ()
    tags: Collection[str] = ()
    match: TagMatch = TagMatch.ANY
    agent: str = ""
    conversation_id: str = ""
    document_id: str = ""
    after: datetime | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class WrittenMemory:
    """A memory as it is now. A search at least as fresh as the token sees it so."""

    memory: Memory
    memory_token: str


@dataclass(frozen=True, slots=True)
class InsertedMemories:
    """The ids of new memories, in the order they were given. A search as fresh as the token sees them."""

    ids: tuple[str, ...]
    memory_token: str


@dataclass(frozen=True, slots=True)
class DeletedMemories:
    """How many memories are gone, under which ids there was none, and the token of a search without them."""

    deleted_count: int
    not_found: tuple[str, ...]
    memory_token: str


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of length 1, one for each text in order, the model that made them, and what it counted."""

    vectors: tuple[tuple[float, ...], ...]
    model: str
    dimensions: int
    embedding_tokens: int


@dataclass(frozen=True, slots=True)
class MemorySourceCount:
    """Memories of a source, and those among them that are not embedded yet: only words find them."""

    source: MemorySource
    count: int
    pending_count: int


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """The state of a user's memory, as one replica sees it.

    `index_*` speak of the index in that replica's RAM. `indexing_lag` is the age of the oldest of the
    `pending_count` items that wait to be indexed. `next_embedding_model` is empty unless memories are being
    embedded again, `reembedding_progress` (0 to 1) of them are.
    """

    sources: tuple[MemorySourceCount, ...]
    memory_count: int
    block_count: int
    document_count: int
    embedding_model: str
    dimensions: int
    index_loaded: bool
    index_bytes: int
    index_count: int
    indexing_lag: timedelta
    pending_count: int
    next_embedding_model: str
    reembedding_progress: float
    memory_token: str
