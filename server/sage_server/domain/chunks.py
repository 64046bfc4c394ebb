"""Text in its normal form, and cut into chunks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace

_LINE_ENDS = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
# Tabs and line feeds are space and stay. Lone surrogates cannot be stored, byte order marks and soft hyphens
# only come between the letters of a word.
_UNWANTED = re.compile("[\0-\x08\x0e-\x1f\x7f-\x9f\xad\ufeff\ud800-\udfff]+")
# All combining marks are in this class, and few other characters in such numbers.
_MARKS = re.compile(r"[^\w\s\x00-\x7f]{31,}")
_MOST_MARKS = 30

_SPACES = re.compile(r"[^\S\n]+")
_AROUND_LINE_ENDS = re.compile(" ?\n ?")
_BLANK_LINES = re.compile("\n{3,}")


def normalised(text: str) -> str:
    """The text as it is compared, cut and stored: NFC, lines ended by a line feed, no space beside a line
    end, no two spaces and no two blank lines in a row, no control characters, no space at either end."""
    text = _UNWANTED.sub("", _LINE_ENDS.sub("\n", text))
    text = unicodedata.normalize("NFC", _MARKS.sub(_fewer_marks, text))
    text = _AROUND_LINE_ENDS.sub("\n", _SPACES.sub(" ", text))
    return _BLANK_LINES.sub("\n\n", text).strip()


def _fewer_marks(run: re.Match[str]) -> str:
    """At most as many marks on one character as Unicode's Stream-Safe Text Format allows. Normalisation
    takes quadratic time in their number."""
    kept: list[str] = []
    marks = 0
    for char in run.group():
        marks = marks + 1 if unicodedata.combining(char) else 0
        if marks <= _MOST_MARKS:
            kept.append(char)
    return "".join(kept)


@dataclass(frozen=True)
class Chunk:
    """What is between `start` and `end` in a text. Never begins or ends with space."""

    index: int
    start: int
    end: int
    text: str


# Greedy, so that the last place wins. A single line end says nothing: PDFs break lines within sentences.
_SENTENCE_END = re.compile(
    r""".*(?:[.!?…]["')\]\u201d\u2019\u00bb]*(?=\s)|[\u3002\uff01\uff1f](?=.)|(?=\n\n))""", re.DOTALL
)
_WORD_END = re.compile(r".*(?=\s)", re.DOTALL)
_WORD_START = re.compile(r"(?<=\s)\S")
_NOT_SPACE = re.compile(r"\S")


def chunked(text: str, size: int = 640, overlap: int = 96) -> list[Chunk]:
    """The text in chunks of at most `size` characters, each repeating up to `overlap` of the one before.

    A chunk ends with a sentence if one ends in its second half, else with a word, else where it is full.
    Every character but space is in a chunk, and every chunk has some that no other before it has. Takes
    linear time. Text that holds only space has no chunks.
    """
    if not 0 <= overlap < size:
        raise ValueError("overlap must be less than size")
    chunks: list[Chunk] = []
    first = _NOT_SPACE.search(text)
    start = first.start() if first else len(text)
    while start < len(text):
        cut = _cut(text, start, size, overlap)
        piece = text[start:cut].rstrip()
        chunks.append(Chunk(len(chunks), start, start + len(piece), piece))
        rest = _NOT_SPACE.search(text, cut)
        if rest is None:
            break
        start = _next_start(text, rest.start(), overlap)
    return chunks


def _cut(text: str, start: int, size: int, overlap: int) -> int:
    """Where the chunk that begins at `start` ends: beyond the overlap, or it would bring nothing new."""
    full = start + size
    if full >= len(text):
        return len(text)
    earliest = start + max(size // 2, overlap + 1)
    # The character after the full chunk is looked at, never taken.
    end = _SENTENCE_END.match(text, earliest, full + 1) or _WORD_END.match(text, earliest, full + 1)
    return end.end() if end else full


def _next_start(text: str, rest: int, overlap: int) -> int:
    """The first word that begins in the overlap before `rest`, the first character of what is left."""
    word = _WORD_START.search(text, rest - overlap, rest + 1)
    return word.start() if word else rest - overlap


def distinct(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Each text once, numbered anew. A repeat extends the range of the first."""
    found: dict[str, Chunk] = {}
    for chunk in chunks:
        known = found.get(chunk.text)
        if known is None:
            found[chunk.text] = replace(chunk, index=len(found))
        else:
            found[chunk.text] = replace(
                known, start=min(known.start, chunk.start), end=max(known.end, chunk.end)
            )
    return list(found.values())
