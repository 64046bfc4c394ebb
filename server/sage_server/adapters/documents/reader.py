"""The reader of documents that come as the bytes of a file."""

from __future__ import annotations

import asyncio

from sage_server.adapters.documents.extraction import Extracted, Limits, Refusal, Refused, extract_text
from sage_server.adapters.documents.parsing import parsed
from sage_server.domain.documents import (
    MARKDOWN,
    TEXT,
    detect,
    document_empty,
    document_too_large,
    document_unreadable,
)
from sage_server.domain.errors import SageError
from sage_server.ports.documents import ReadDocument

# Text up to this size is read in a thread: it takes less time than a process takes to start.
_SMALL = 1024 * 1024


class FileDocumentReader:
    """Reads text, Markdown, HTML and PDF. What parses is a child process with limits of its own.

    At most `at_once` children run at a time; others wait, and their `timeout` seconds begin when they start.
    """

    def __init__(
        self,
        max_chars: int = 10_000_000,
        max_pages: int = 5_000,
        timeout: float = 60.0,
        *,
        at_once: int = 2,
    ) -> None:
        self._limits = Limits(max_chars, max_pages)
        self._timeout = timeout
        self._turn = asyncio.Semaphore(at_once)

    async def read(self, content: bytes, media_type: str) -> ReadDocument:
        """The text of the content. Raises nothing but what the port allows."""
        found = detect(content, media_type)
        try:
            answer = await self._extracted(content, found)
        except Refused as refused:
            raise self._error(refused.refusal, found) from None
        return ReadDocument(found, answer.text, answer.title)

    async def _extracted(self, content: bytes, media_type: str) -> Extracted:
        if media_type in {TEXT, MARKDOWN} and len(content) <= _SMALL:
            return await asyncio.to_thread(extract_text, content, self._limits)
        async with self._turn:
            return await parsed(content, media_type, self._limits, self._timeout)

    def _error(self, refusal: Refusal, media_type: str) -> SageError:
        if refusal is Refusal.EMPTY:
            return document_empty(media_type)
        if refusal is Refusal.PAGES:
            return document_too_large(self._limits.pages, refusal.value)
        if refusal is Refusal.CHARACTERS:
            return document_too_large(self._limits.chars, refusal.value)
        return document_unreadable(media_type, refusal.value)
