"""Rows of `documents`: how they are sealed and opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sage_server.adapters.postgres.database import Record
from sage_server.adapters.postgres.schema import cell, documents
from sage_server.adapters.postgres.sealed_rows import open_text, seal_json, seal_text
from sage_server.domain.documents import Document, DocumentStatus
from sage_server.domain.errors import Reason
from sage_server.domain.memories import MemoryTrust
from sage_server.ports.document_store import NewDocument
from sage_server.ports.keys import UserCipher

_d = documents.c
_DETAILS = cell(_d.details_enc)
_CONTENT = cell(_d.content_enc)
_TAGS = cell(_d.tags)
_EXTERNAL_TAG = cell(_d.external_tag)
_CONTENT_TAG = cell(_d.content_tag)

DOCUMENT_COLUMNS = tuple(column for column in documents.c if column not in {_d.user_id, _d.content_enc})
"""All but the text, which is only there for a while and large."""


def opened_document(cipher: UserCipher, row: Record) -> Document:
    """A row of DOCUMENT_COLUMNS."""
    row_id: UUID = row["id"]
    details = json.loads(cipher.open(_DETAILS, row_id, row["details_enc"]))
    failure = row["failure"]
    return Document(
        id=row_id,
        title=details["title"],
        external_id=details["external_id"],
        media_type=row["media_type"],
        status=DocumentStatus(row["status"]),
        failure=None if failure is None else Reason(failure),
        chunk_count=row["chunk_count"],
        byte_count=row["byte_count"],
        char_count=row["char_count"],
        tags=tuple(cipher.open_tag(_TAGS, label) for label in row["tags"] or ()),
        metadata=details["metadata"],
        agent_id=row["agent_id"],
        trust=MemoryTrust(row["trust"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def opened_text(cipher: UserCipher, row: Record) -> str:
    """The text of a row that is being taken in."""
    return open_text(cipher, _CONTENT, row["id"], row["content_enc"])


def document_values(cipher: UserCipher, document: Document, new: NewDocument) -> dict[str, Any]:
    """What a document that is to be taken in has in its columns, all but the user's id and the version."""
    details = {
        "title": document.title,
        "external_id": document.external_id,
        "metadata": dict(document.metadata),
    }
    return {
        "id": document.id,
        "agent_id": document.agent_id,
        "status": document.status,
        "failure": None,
        "media_type": document.media_type,
        "byte_count": document.byte_count,
        "char_count": document.char_count,
        "trust": document.trust,
        "details_enc": seal_json(cipher, _DETAILS, document.id, details),
        "content_enc": seal_text(cipher, _CONTENT, document.id, new.text),
        "external_tag": cipher.tag(_EXTERNAL_TAG, _digest(new.external_id)) if new.external_id else None,
        "content_tag": cipher.tag(_CONTENT_TAG, new.digest),
        "tags": list(dict.fromkeys(cipher.tag(_TAGS, tag) for tag in document.tags)) or None,
        "created_at": document.created_at,
        "updated_at": document.updated_at,
        "key_version": cipher.key_version,
    }


def external_forms(cipher: UserCipher, external_id: str) -> list[bytes]:
    """An external id as stored rows may have it."""
    return list(cipher.tag_forms(_EXTERNAL_TAG, _digest(external_id)))


def content_forms(cipher: UserCipher, digest: str) -> list[bytes]:
    """The digest of a content as stored rows may have it."""
    return list(cipher.tag_forms(_CONTENT_TAG, digest))


def tag_forms(cipher: UserCipher, tags: Sequence[str]) -> list[bytes]:
    """Tags as stored rows may have them."""
    return [form for tag in tags for form in cipher.tag_forms(_TAGS, tag)]


def _digest(external_id: str) -> str:
    """Labels are compared without regard to case; external ids are not."""
    return hashlib.sha256(external_id.encode()).hexdigest()
