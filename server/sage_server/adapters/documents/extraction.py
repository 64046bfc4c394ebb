"""Content to text, whatever the media type. Runs in the child process, and for small texts in a thread."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from enum import Enum

from sage_server.domain.chunks import normalised
from sage_server.domain.documents import UTF_16_MARKS

_TITLE_CHARS = 512


class Refusal(Enum):
    """Why there is no text. The values cross the pipe from the child process."""

    ENCRYPTED = "encrypted"
    DAMAGED = "damaged"
    ENCODING = "encoding"
    TIMEOUT = "timeout"
    EMPTY = "empty"
    PAGES = "pages"
    CHARACTERS = "characters"


class Refused(Exception):  # noqa: N818 - it is an answer rather than an error
    """The content gives no text that may be taken in."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


@dataclass(frozen=True)
class Limits:
    """How much of a document is taken."""

    chars: int
    pages: int


@dataclass(frozen=True)
class Extracted:
    """The text in its normal form, and the document's own title if it has one."""

    title: str
    text: str


def extracted(title: str, text: str, limits: Limits) -> Extracted:
    """Text and title in the form that the port promises. Refuses no text and too much."""
    text = normalised(text)
    if not text:
        raise Refused(Refusal.EMPTY)
    if len(text) > limits.chars:
        raise Refused(Refusal.CHARACTERS)
    return Extracted(one_line(title), text)


def one_line(title: str) -> str:
    """A title in its normal form, cut to what the contract takes."""
    return (
        normalised(title[: 8 * _TITLE_CHARS]).replace("\n\n", " ").replace("\n", " ")[:_TITLE_CHARS].rstrip()
    )


def decoded(content: bytes, encoding: str = "utf-8") -> str:
    """The content by its byte order mark, else in the encoding. Nothing is guessed or replaced."""
    if content.startswith(UTF_16_MARKS):
        encoding = "utf-16"
    elif content.startswith(codecs.BOM_UTF8):
        encoding = "utf-8-sig"
    text: str | None
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        text = None
    # Not from within, since the decoder's error holds the content and would be the context of ours.
    if text is None or "\0" in text:
        raise Refused(Refusal.ENCODING)
    return text


def extract_text(content: bytes, limits: Limits) -> Extracted:
    """Plain text and Markdown, as they are."""
    return extracted("", decoded(content), limits)
