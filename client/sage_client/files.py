"""JSON Lines on disk and in memory. Plain blocking I/O in short steps, the same for both clients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import mkstemp
from types import TracebackType
from typing import BinaryIO, Self

PIECE_BYTES = 4 * 1024 * 1024
"""How much one ImportConversations call carries: half of what the contract allows."""

JsonlSource = bytes | str | os.PathLike[str]
"""JSON Lines as bytes, or the path of a file of them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of a source, one after the other, starting at line `first_line` (counted from 1)."""

    jsonl: bytes
    first_line: int
    line_count: int


def source_size(source: JsonlSource) -> int:
    """The bytes of the source in all."""
    return len(source) if isinstance(source, bytes) else Path(source).stat().st_size


def pieces(source: JsonlSource, limit: int = PIECE_BYTES) -> Iterator[Piece]:
    """Cut a source between lines into pieces of at most `limit` bytes, in order and without loss.

    A line that is longer than the limit is a piece of its own. Only one piece is in memory at a time.
    """
    with _opened(source) as lines:
        first_line, held = 1, [next(lines, b"")]
        size = len(held[0])
        if not size:
            return
        for line in lines:
            if size + len(line) > limit:
                yield Piece(b"".join(held), first_line, len(held))
                first_line, held, size = first_line + len(held), [], 0
            held.append(line)
            size += len(line)
        yield Piece(b"".join(held), first_line, len(held))


def _opened(source: JsonlSource) -> BinaryIO:
    return BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb")


class WholeFile:
    """A file that appears under its name only when it is complete; until then it is `<name>.….part`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __enter__(self) -> Self:
        # The user's own words, in plain text: for the user's own eyes. Always a new file, so that nobody can
        # have put one there that others may read.
        descriptor, part = mkstemp(".part", f"{self._path.name}.", self._path.parent)
        self._part = Path(part)
        self._file = os.fdopen(descriptor, "wb")
        return self

    def write(self, data: bytes) -> None:
        """Add to the end."""
        self._file.write(data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._file:
                if error is None:
                    self._file.flush()
                    os.fsync(self._file.fileno())
            if error is None:
                self._part.replace(self._path)
        finally:
            self._part.unlink(missing_ok=True)
