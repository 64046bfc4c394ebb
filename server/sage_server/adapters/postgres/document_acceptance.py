"""Accepting a document: sealed before anything is locked, stored together with the job that rescues it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.database import Database, Record, Transaction
from sage_server.adapters.postgres.document_rows import (
    content_forms,
    document_values,
    external_forms,
    opened_document,
)
from sage_server.adapters.postgres.document_statements import (
    BY_CONTENT,
    BY_EXTERNAL_ID,
    INSERT,
    LOCK,
    REPLACE,
)
from sage_server.adapters.postgres.jobs import enqueue_in
from sage_server.domain.documents import Document, DocumentStatus
from sage_server.domain.errors import user_erased
from sage_server.domain.idempotency import Once
from sage_server.domain.ids import new_id
from sage_server.domain.jobs import Job, JobKind
from sage_server.ports.document_store import Acceptance, NewDocument, Pending, Unchanged
from sage_server.ports.keys import UserCipher

_RESCUE_AFTER = timedelta(minutes=1)


@dataclass(frozen=True)
class Asked:
    """What is to be accepted."""

    cipher: UserCipher
    user_id: UUID
    new: NewDocument
    once: Once | None
    now: datetime


@dataclass(frozen=True)
class Sealed:
    """A document as it is to be stored, sealed for the row that it will probably have."""

    replaces: UUID | None
    """The row that was there; None if there was none."""
    document: Document
    values: dict[str, Any] | None
    """None if the row that was there needs no change."""

    def fits(self, row: Record) -> bool:
        """Whether it can be stored now."""
        return self.values is not None and self.replaces == row["id"]


@dataclass(frozen=True)
class _Known:
    """The row of a document that is stored, if there is one."""

    row: Record
    document: Document | None
    standing: Document | None
    """The stored document, if it is what is to be stored: in memory, or on its way there."""


async def sealed_for(database: Database, asked: Asked) -> Sealed | None:
    """By a look without a lock. None if the cipher is too old to tell whether the document is known."""
    known = await _known(database, asked)
    if known is None:
        return None
    document = _accepted(asked, known.document)
    values = None
    if known.standing is None:
        values = await asyncio.to_thread(document_values, asked.cipher, document, asked.new)
    return Sealed(known.row["id"], document, values)


async def accepted_in(transaction: Transaction, asked: Asked, sealed: Sealed) -> Acceptance | None:
    """None, and nothing is written, if something else is stored by now than what it was sealed for, or the
    cipher is too old to tell."""
    head = await transaction.fetchrow(LOCK, user_id=asked.user_id)
    if head is None:
        raise user_erased()
    known = await _known(transaction, asked)
    if known is None or not (known.standing or sealed.fits(known.row)):
        return None
    document = sealed.document if known.document is None else _accepted(asked, known.document)
    if asked.once is not None:
        kept = replays.values(asked.cipher, asked.user_id, asked.once, str(document.id), asked.now)
        await transaction.execute(replays.INSERT, **kept)
    if known.standing is not None and known.standing.status is DocumentStatus.READY:
        return Unchanged(known.standing, head["memory_revision"])
    # A document that was left undone may have no job any more.
    await enqueue_in(transaction, Job(JobKind.INGEST_DOCUMENT, asked.user_id, document.id), _RESCUE_AFTER)
    if known.standing is not None:
        return Pending(known.standing, known.row["version"], asked.new.text)
    return Pending(document, await _stored(transaction, asked, sealed, known.row), asked.new.text)


async def _stored(transaction: Transaction, asked: Asked, sealed: Sealed, row: Record) -> int:
    """Write the document; answers with its version."""
    assert sealed.values is not None
    values = {"new_user_id": asked.user_id} | {f"new_{name}": one for name, one in sealed.values.items()}
    if row["id"] is None:
        await transaction.execute(INSERT, **values)
        return 1
    await transaction.execute(REPLACE, user_id=asked.user_id, document_id=row["id"], **values)
    version: int = row["version"] + 1
    return version


async def _known(database: Database | Transaction, asked: Asked) -> _Known | None:
    """The document that is meant, if there is one. None if the cipher is too old to tell."""
    cipher, new = asked.cipher, asked.new
    if new.external_id:
        forms = external_forms(cipher, new.external_id)
        row = await database.fetchrow(BY_EXTERNAL_ID, user_id=asked.user_id, forms=forms)
    else:
        forms = content_forms(cipher, new.digest)
        row = await database.fetchrow(BY_CONTENT, user_id=asked.user_id, forms=forms, of_agent=new.agent_id)
    if row is None or row["newest"] is None:
        raise user_erased()
    if row["newest"] > cipher.key_version:
        return None
    document = None if row["id"] is None else opened_document(cipher, row)
    stands = document is not None and _stands(row, document) and _is_same(cipher, row, document, new)
    return _Known(row, document, document if stands else None)


def _accepted(asked: Asked, known: Document | None) -> Document:
    """The document with the new content; how many chunks it has changes when they do."""
    new, now = asked.new, asked.now
    return Document(
        id=new_id(now) if known is None else known.id,
        title=new.title,
        external_id=new.external_id,
        media_type=new.media_type,
        status=DocumentStatus.PROCESSING,
        failure=None,
        chunk_count=0 if known is None else known.chunk_count,
        byte_count=new.byte_count,
        char_count=len(new.text),
        tags=new.tags,
        metadata=new.metadata,
        agent_id=new.agent_id,
        trust=new.trust,
        created_at=now if known is None else known.created_at,
        updated_at=now,
    )


def _stands(row: Record, known: Document) -> bool:
    if known.status is DocumentStatus.READY:
        in_memory: bool = row["in_memory"]
        return in_memory
    return known.status is DocumentStatus.PROCESSING


def _is_same(cipher: UserCipher, row: Record, known: Document, new: NewDocument) -> bool:
    if row["content_tag"] not in content_forms(cipher, new.digest):
        return False
    return (known.title, known.tags, dict(known.metadata), known.trust, known.agent_id) == (
        new.title,
        new.tags,
        dict(new.metadata),
        new.trust,
        new.agent_id,
    )
