"""Stored documents. Every method acts for one user and must not see or touch another user's rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol, TypeAlias
from uuid import UUID

from sage_server.domain.documents import Document, DocumentStatus
from sage_server.domain.errors import Reason
from sage_server.domain.idempotency import Once
from sage_server.domain.memories import MemoryTrust
from sage_server.domain.paging import Page, TimeCursor
from sage_server.ports.memories import MemoryBatch, NewMemory, Removed, Space


@dataclass(frozen=True)
class NewDocument:
    """A document as it was given and read."""

    title: str
    external_id: str
    media_type: str
    digest: str
    """The same for the same content and media type, in hexadecimal digits."""
    byte_count: int
    text: str
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    agent_id: UUID | None
    trust: MemoryTrust


@dataclass(frozen=True)
class Pending:
    """A document that is being taken in, with the text to be taken in."""

    document: Document
    version: int
    """Of the content; one that is accepted later has a higher one."""
    text: str


@dataclass(frozen=True)
class Unchanged:
    """The same document is there already."""

    document: Document
    revision: int
    """Of the user's memories, as in MemoryHead."""


@dataclass(frozen=True)
class Repeated:
    """The request was accepted before, for this document."""

    document_id: UUID


Acceptance: TypeAlias = Pending | Unchanged | Repeated


@dataclass(frozen=True)
class Taken:
    """What a document became."""

    pending: Pending
    space: Space
    chunk_count: int
    written: Sequence[NewMemory]
    """Chunks that are new, and those that stay but changed."""
    gone: Sequence[UUID]
    """Chunks of an earlier version that are no longer in it."""


@dataclass(frozen=True)
class Completed:
    """A document with all its chunks."""

    document: Document
    revision: int


class Refusal(Enum):
    """Why a document was not completed."""

    SUPERSEDED = "superseded"
    """It is gone, complete, or has newer content by now."""
    OTHER_SPACE = "other space"
    """The vectors are not of the space that the user's search uses: embed again."""


@dataclass(frozen=True)
class DocumentFilter:
    """Which documents are meant; what is empty or None does not restrict."""

    external_id: str = ""
    tags: tuple[str, ...] = ()
    """At least one of them."""
    agent_id: UUID | None = None
    statuses: frozenset[DocumentStatus] = frozenset()


class DocumentStore(Protocol):
    """Documents, and the chunks that they became."""

    async def accepted_before(self, user_id: UUID, once: Once) -> Repeated | None:
        """What a request id was used for; must raise REQUEST_ID_REUSED if its digest is another."""
        ...

    async def accept(self, user_id: UUID, new: NewDocument, once: Once | None, now: datetime) -> Acceptance:
        """Store a document that is to be taken in, and a job that does so if nobody else does.

        One with the same external id gets the new content; without an external id, one with the same content
        and agent is meant. Its chunks must stay as they are. Must change nothing, and answer Unchanged, if
        all is as it was and chunks of it are in memory; and must answer with the same Pending if the very
        same is being taken in. With `once` it must happen at most once.
        """
        ...

    async def state(self, user_id: UUID, document_id: UUID) -> Pending | Document:
        """Pending while it is being taken in. Must raise NOT_FOUND."""
        ...

    def chunks(self, user_id: UUID, document_id: UUID, space: Space) -> AsyncIterator[MemoryBatch]:
        """The chunks that can be found now, in batches, with their vectors of a space."""
        ...

    async def complete(self, user_id: UUID, taken: Taken, now: datetime) -> Completed | Refusal:
        """Make all of a document visible in one moment, unless its content was replaced meanwhile.

        Chunks that the user deleted meanwhile must stay deleted.
        """
        ...

    async def fail(self, user_id: UUID, pending: Pending, reason: Reason) -> None:
        """Note why a document cannot be taken in, and forget its text, unless it was replaced meanwhile."""
        ...

    async def get(self, user_id: UUID, document_id: UUID) -> Document:
        """Must raise NOT_FOUND."""
        ...

    async def list(
        self, user_id: UUID, which: DocumentFilter, size: int, after: TimeCursor | None
    ) -> Page[Document, TimeCursor]:
        """A page, the newest first."""
        ...

    async def delete(self, user_id: UUID, document_id: UUID, now: datetime) -> Removed:
        """Delete a document with its chunks for good. Must raise NOT_FOUND."""
        ...
