"""Pages: where they are, and what they say."""

from __future__ import annotations

import codecs
import re

import httpx2

from sage_server.adapters.documents.encodings import declared_encoding, named_encoding
from sage_server.adapters.web.http import Answer, HttpClient
from sage_server.domain.documents import HTML, MARKDOWN, PDF, TEXT, UTF_16_MARKS, detect
from sage_server.domain.errors import SageError
from sage_server.ports.documents import DocumentReader
from sage_server.ports.web import WebError, WebPage

_LONGEST_URL = 4096
_MOST_REDIRECTS = 5
_MOVED = frozenset({301, 302, 303, 307, 308})
_ACCEPT = "text/html, text/plain, text/markdown, application/json, application/xml, application/pdf;q=0.5"
_READ_AS = {
    **dict.fromkeys((HTML, "application/xhtml+xml"), HTML),
    **dict.fromkeys((MARKDOWN, "text/x-markdown"), MARKDOWN),
    **dict.fromkeys((TEXT, "application/json", "text/json", "application/xml", "text/xml"), TEXT),
    PDF: PDF,
    # What the server leaves open is found out from the content.
    "": "",
}
_CHARSET = re.compile(r"""\bcharset\s*=\s*["']?([\w:.-]+)""", re.IGNORECASE)


class Pages:
    """Fetches pages and reads them, in the limited process that reads documents."""

    def __init__(self, client: HttpClient, reader: DocumentReader, max_chars: int) -> None:
        self._client = client
        self._reader = reader
        self._max_chars = max_chars

    async def fetch(self, given: str) -> WebPage:
        """The text of the page. Raises WebError."""
        url = _valid(given)
        for _ in range(_MOST_REDIRECTS + 1):
            async with self._client.get(url, _ACCEPT) as answer:
                if answer.status not in _MOVED:
                    media_type, charset = _content_type(answer)
                    body = await answer.body()
                    break
                url = _moved(url, answer.header(b"location"))
        else:
            raise WebError(f"The page redirects more than {_MOST_REDIRECTS} times.")
        try:
            return await self._read(str(url), body, media_type, charset)
        except SageError as error:
            raise WebError(error.message) from None

    async def _read(self, url: str, body: bytes, media_type: str, charset: str) -> WebPage:
        found = detect(body, media_type)
        content = body if found == PDF else _in_utf_8(body, found, charset)
        page = await self._reader.read(content, found)
        text = page.text
        if found == HTML:
            # The reader puts the title first, where a page shows it. Here it has a place of its own.
            text = text.removeprefix(page.title).lstrip() or text
        kept = text[: self._max_chars].rstrip()
        return WebPage(url, page.title, kept, truncated=len(text) > self._max_chars)


def _valid(given: str) -> httpx2.URL:
    try:
        url = httpx2.URL(given.strip()) if len(given) <= _LONGEST_URL else None
    except (httpx2.InvalidURL, ValueError):
        url = None
    if url is None:
        raise WebError("The address is not valid.")
    return _allowed(url)


def _moved(url: httpx2.URL, location: str) -> httpx2.URL:
    try:
        target = url.join(location) if 0 < len(location) <= _LONGEST_URL else None
    except (httpx2.InvalidURL, ValueError):
        target = None
    if target is None:
        raise WebError("The page redirects to no valid address.")
    return _allowed(target)


def _allowed(url: httpx2.URL) -> httpx2.URL:
    """The URL, if its form is one that is fetched. Its host and port are checked when it is connected to."""
    if url.scheme not in {"http", "https"}:
        raise WebError("Only addresses with http:// or https:// can be fetched.")
    if url.userinfo:
        raise WebError("The address holds a user name or a password, which is not allowed.")
    if not url.host or not 0 < (url.port or 80) < 65_536:
        raise WebError("The address is not valid.")
    return url.copy_with(fragment=None)


def _content_type(answer: Answer) -> tuple[str, str]:
    """What the body is to be read as, and the character set that the server names. Raises WebError for what
    is no page with text, before its body is fetched."""
    if answer.status != 200:
        raise WebError(f"The server answered with the status {answer.status}.")
    header = answer.header(b"content-type")
    media_type = header.partition(";")[0].strip().lower()
    if media_type.endswith(("+json", "+xml")) and media_type not in _READ_AS:
        media_type = TEXT
    if media_type not in _READ_AS:
        raise WebError("The page is neither text nor PDF.")
    charset = _CHARSET.search(header)
    return _READ_AS[media_type], charset[1] if charset else ""


def _in_utf_8(body: bytes, media_type: str, charset: str) -> bytes:
    """The text with the mark of UTF-8, which counts for more than what a page declares. By its own byte order
    mark, else as the server says, else as the page does. What cannot be decoded is replaced: one bad byte in
    a page is common, and no reason to read none of it."""
    if body.startswith(UTF_16_MARKS):
        encoding = "utf-16"
    elif body.startswith(codecs.BOM_UTF8):
        encoding = "utf-8-sig"
    else:
        declared = declared_encoding(body) if media_type == HTML else None
        encoding = named_encoding(charset) or declared or "utf-8"
    return codecs.BOM_UTF8 + body.decode(encoding, "replace").encode()
