"""Memories: what search can find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from sage_server.domain.errors import Reason, SageError, etag_mismatch


class MemorySource(IntEnum):
    """What a memory comes from. Stored as a number."""

    ARCHIVAL = 1
    MESSAGE = 2
    DOCUMENT = 3
    SUMMARY = 4


class MemoryTrust(IntEnum):
    """How far a memory's text may be trusted. Stored as a number."""

    USER = 1
    AGENT = 2
    EXTERNAL = 3


class MemoryState(IntEnum):
    """Whether a memory can be found. Stored as a number."""

    LIVE = 0
    DELETED = 1
    """For good: only a trace is left, so that replicas learn of it."""
    WITHDRAWN = 2
    """Its conversation is deleted. It comes back if the conversation does."""


class TagMatch(IntEnum):
    """How tags of a filter must match."""

    ANY = 1
    ALL = 2


class Provenance(NamedTuple):
    """Where a memory comes from. A tuple, as Memory is: an index makes them by the ten thousand."""

    conversation_id: UUID | None = None
    item_id: UUID | None = None
    item_seq: int | None = None
    document_id: UUID | None = None
    origin: str = ""
    """The author of a message, the title of a document."""
    chunk_index: int = 0
    char_start: int = 0
    char_end: int = 0
    turn_id: UUID | None = None
    thread_agent_id: UUID | None = None
    """The agent whose own thread the conversation is."""


NOWHERE = Provenance()


class Memory(NamedTuple):
    """Something that search can find."""

    id: UUID
    source: MemorySource
    text: str
    created_at: datetime
    updated_at: datetime
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = MappingProxyType({})
    agent_id: UUID | None = None
    provenance: Provenance = NOWHERE
    trust: MemoryTrust = MemoryTrust.USER
    version: int = 1
    embedding_model: str = ""
    """Of its vector; empty while it has none."""

    @property
    def etag(self) -> str:
        """Changes with everything that an update can change."""
        return f"v{self.version}"

    def check_etag(self, etag: str) -> None:
        """Refuse a caller who read an older version. An empty etag asks for no check."""
        if etag and etag != self.etag:
            raise etag_mismatch("memory")


@dataclass(frozen=True)
class MemoryFilter:
    """Which memories are meant; what is empty or None does not restrict."""

    sources: frozenset[MemorySource] = frozenset()
    tags: tuple[str, ...] = ()
    match: TagMatch = TagMatch.ANY
    agent_id: UUID | None = None
    conversation_id: UUID | None = None
    document_id: UUID | None = None
    start: datetime | None = None
    """Inclusive."""
    end: datetime | None = None
    """Exclusive."""
    owners: frozenset[UUID | None] | None = None
    """Whose memory: None in the set is the user's own. Only searches take it, lists and deletions do not."""


@dataclass(frozen=True)
class MemoryChange:
    """New values for what an update names; None leaves it as it is."""

    text: str | None = None
    tags: tuple[str, ...] | None = None
    metadata: Mapping[str, str] | None = None
    trust: MemoryTrust | None = None


def memory_read_only(source: MemorySource) -> SageError:
    """Only archival memories are the caller's to change."""
    return SageError(
        Reason.MEMORY_READ_ONLY,
        "Only archival memories can be updated.",
        metadata={"source": source.name},
    )


def memory_token_invalid() -> SageError:
    """The token is not one of this user's, or from a database that is another."""
    return SageError(
        Reason.MEMORY_TOKEN_INVALID,
        "The memory token does not belong to this user.",
        metadata={"field": "consistency.at_least_as_fresh"},
    )
