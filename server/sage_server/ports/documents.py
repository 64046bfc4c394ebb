"""Reading documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ReadDocument:
    """What a document says."""

    media_type: str
    """What it was read as, one of domain.documents.MEDIA_TYPES."""
    text: str
    """In its normal form (domain.chunks.normalised), never empty."""
    title: str = ""
    """The document's own title, on one line, at most 512 characters. Empty if it has none."""


class DocumentReader(Protocol):
    """Gets the text out of a document."""

    async def read(self, content: bytes, media_type: str) -> ReadDocument:
        """The text of the content. An empty media type is found out from the content.

        Whatever the bytes are, must answer in bounded time and memory, without holding up the event loop,
        and must raise nothing but DOCUMENT_UNREADABLE, DOCUMENT_TYPE_UNSUPPORTED, DOCUMENT_EMPTY and
        DOCUMENT_TOO_LARGE. Must fail rather than leave out what cannot be parsed, as far as the format lets
        that be seen. A cancelled call must leave nothing running. Nothing of the content may reach a log or
        an error.
        """
        ...
