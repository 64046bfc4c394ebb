"""Documents: what is known of one, what can be wrong with one, and what its bytes are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from uuid import UUID

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.memories import MemoryTrust

TEXT = "text/plain"
MARKDOWN = "text/markdown"
HTML = "text/html"
PDF = "application/pdf"
MEDIA_TYPES = frozenset({TEXT, MARKDOWN, HTML, PDF})
"""What a document can be."""

_UNKNOWN_BINARY = "application/octet-stream"

UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16, the one encoding of text whose bytes may be zero."""


class DocumentStatus(IntEnum):
    """Where a document is. The numbers are those of the contract and of the database."""

    PROCESSING = 1
    READY = 2
    FAILED = 3


@dataclass(frozen=True)
class Document:
    """A document that was taken into memory in chunks."""

    id: UUID
    title: str
    external_id: str
    media_type: str
    status: DocumentStatus
    failure: Reason | None
    chunk_count: int
    byte_count: int
    char_count: int
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    agent_id: UUID | None
    trust: MemoryTrust
    created_at: datetime
    updated_at: datetime


def document_unreadable(media_type: str, cause: str) -> SageError:
    """The content is not what it should be. `cause`: encrypted, damaged, encoding or timeout."""
    return SageError(
        Reason.DOCUMENT_UNREADABLE,
        f"The document cannot be read as {media_type}: {cause}.",
        metadata={"media_type": media_type, "cause": cause},
    )


def document_type_unsupported(detected: str) -> SageError:
    """The content is none of the media types. `detected` is ours, never what the caller declared."""
    return SageError(
        Reason.DOCUMENT_TYPE_UNSUPPORTED,
        f"The content is {detected}; text, Markdown, HTML and PDF can be taken in.",
        metadata={"detected": detected},
    )


def document_empty(media_type: str) -> SageError:
    """There is no text in it, as in scanned pages."""
    return SageError(
        Reason.DOCUMENT_EMPTY, "The document holds no text.", metadata={"media_type": media_type}
    )


def document_too_large(limit: int, unit: str) -> SageError:
    """There is more in it than the server takes. `unit`: characters, pages or chunks."""
    return SageError(
        Reason.DOCUMENT_TOO_LARGE,
        f"The document has more than {limit} {unit}.",
        metadata={"limit": str(limit), "unit": unit},
    )


def detect(content: bytes, declared: str) -> str:
    """Which media type the content is to be read as.

    `declared` is what the caller says; empty, or none of MEDIA_TYPES, leaves it to the content. Markdown
    cannot be told from text. Raises DOCUMENT_TYPE_UNSUPPORTED for content that is none of MEDIA_TYPES, and
    DOCUMENT_UNREADABLE if the content contradicts what was declared.
    """
    claim = declared.partition(";")[0].strip().lower()
    found = _sniffed(content)
    if claim == PDF and found in {TEXT, HTML, _UNKNOWN_BINARY}:
        raise document_unreadable(PDF, "damaged")
    if found not in MEDIA_TYPES:
        raise document_type_unsupported(found)
    if claim not in MEDIA_TYPES:
        return found
    if found == PDF and claim != PDF:
        raise document_unreadable(claim, "encoding")
    return claim


def _sniffed(content: bytes) -> str:
    """What the bytes are, whatever anybody says."""
    if _is_pdf(content):
        return PDF
    for magic, media_type in _MAGIC:
        if magic.match(content):
            return media_type
    if content.startswith(UTF_16_MARKS):
        return HTML if _is_html(content[:2048].decode("utf-16", "ignore"), "") else TEXT
    if _is_binary(content):
        return _UNKNOWN_BINARY
    head, tail = content[:1024].decode("utf-8", "ignore"), content[-64:].decode("utf-8", "ignore")
    return HTML if _is_html(head, tail) else TEXT


_PDF_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?\s*%PDF-")
_PDF_LATER = re.compile(rb"%PDF-\d\.\d")


def _is_pdf(content: bytes) -> bool:
    """Mail gateways and servers put bytes before the header, so it counts within the first 1024. There it
    needs the rest of a PDF with it, since a text may speak of PDF headers."""
    if _PDF_BEGINNING.match(content, 0, 1024):
        return True
    return _PDF_LATER.search(content, 0, 1024) is not None and b"endobj" in content


_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\f\r\x1b"))
_CONTROL_SHARE = 0.05


def _is_binary(content: bytes) -> bool:
    """Whether no encoding of text without a byte order mark would give these bytes."""
    if b"\0" in content:
        return True
    head = content[:4096]
    return len(head) - len(head.translate(None, _CONTROLS)) > _CONTROL_SHARE * len(head)


_HTML_PROLOGUE = re.compile(r"(?:\ufeff|\s+|<\?xml[^>]*>|<!--.*?-->)*", re.DOTALL)
_HTML_PAGE = re.compile(
    r"<(?:!doctype\s+html|(?:html|head|body|title|meta|script|style|link)\b)", re.IGNORECASE
)
_HTML_FRAGMENT = re.compile(
    r"<(?:a|article|b|blockquote|br|center|div|em|font|footer|form|h[1-6]|header|hr|i|img|li|main|nav|ol|p|pre"
    r"|section|span|strong|table|ul)\b[^<>]*>",
    re.IGNORECASE,
)


def _is_html(head: str, tail: str) -> bool:
    """A page by its first tag. A fragment must end with a tag too: Markdown often begins with one."""
    prologue = _HTML_PROLOGUE.match(head)
    start = prologue.end() if prologue else 0
    if _HTML_PAGE.match(head, start):
        return True
    return _HTML_FRAGMENT.match(head, start) is not None and tail.rstrip().endswith(">")


_MAGIC = tuple(
    (re.compile(pattern, re.DOTALL), media_type)
    for pattern, media_type in (
        (rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", "application/zip"),
        (rb"\x89PNG\r\n\x1a\n", "image/png"),
        (rb"\xff\xd8\xff", "image/jpeg"),
        (rb"GIF8[79]a.{0,32}[\0-\x08]", "image/gif"),
        (rb"RIFF.{4}WEBP", "image/webp"),
        (rb"RIFF.{4}WAVE", "audio/wav"),
        (rb"II\*\0|MM\0\*", "image/tiff"),
        (rb"\0\0.{2}ftyp", "video/mp4"),
        (rb"ID3[\x02-\x04]", "audio/mpeg"),
        (rb"OggS\0", "audio/ogg"),
        (rb"fLaC\0", "audio/flac"),
        (rb"\x1f\x8b", "application/gzip"),
        (rb"BZh[1-9]1AY&SY", "application/x-bzip2"),
        (rb"\xfd7zXZ\0", "application/x-xz"),
        (rb"\x28\xb5\x2f\xfd", "application/zstd"),
        (rb"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
        (rb"Rar!\x1a\x07", "application/vnd.rar"),
        (rb".{257}ustar(?:\0|  \0)", "application/x-tar"),
        (rb"\x7fELF", "application/x-elf"),
        (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
        (rb"SQLite format 3\0", "application/vnd.sqlite3"),
        (rb"\{\\rtf", "application/rtf"),
        (rb"%!PS-", "application/postscript"),
    )
)
"""Binaries, and two formats that are text but would give garbage, by how they begin."""
