"""Everything that the command line prints: tables and lines for people, JSON for scripts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NoReturn

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from sage_client.cli import plain
from sage_client.cli.texts import one_line, safe

# Colours are the terminal's own and few, so that they can be read on light and dark ground alike.
LABEL = "bold"
FAINT = "dim"
GOOD = "green"
BAD = "red"
ACCENT = "cyan"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Those that are `wide_only` are left out of narrow terminals."""

    title: str
    style: str = ""
    justify: Literal["left", "right"] = "left"
    wide_only: bool = False


ID = Column("id", FAINT)
WIDE = 100
GAP = 2
# Beside an id there is little room for a text.
ROW_LINES = 2
# An id is to be copied whole, and longer names leave no room for what comes after them.
MOST = 36


# What a shell reports of a tool that SIGPIPE ended.
NOBODY_READS = 141


def nobody_reads() -> NoReturn:
    """Leave as other tools do when the reader of a pipe has gone: `sage memory list | head -1`."""
    # What is still buffered is not to fail once more when Python ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(NOBODY_READS)


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        nobody_reads()


class Output:
    """Where results and notes go. With `json`, results are JSON on stdout and notes are not shown."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.out = _Terminal(highlight=False, markup=False, emoji=False)
        self.err = Console(stderr=True, highlight=False, markup=False, emoji=False)

    @property
    def wide(self) -> bool:
        """Whether there is room for more than what matters most."""
        return self.out.width >= WIDE

    def document(self, value: object) -> bool:
        """With `json`: print the value and return True. Else the caller shows it to a person."""
        if self.json:
            self._raw(plain.document(plain.plain(value)))
        return self.json

    def record(self, value: plain.Json) -> None:
        """One line of JSON Lines, at once."""
        self._raw(plain.line(value))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]], empty: str) -> None:
        """A table, or the note `empty`. The last column takes what is left, on two lines if it needs them."""
        shown = [place for place, column in enumerate(columns) if self.wide or not column.wide_only]
        cells = [[one_line(str(row[place])) for place in shown] for row in rows]
        if not cells:
            self.note(empty)
            return
        titles = [columns[place].title for place in shown]
        widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
        layout = [
            (columns[place], min(width, MOST) if place != shown[-1] else width)
            for place, width in zip(shown, widths, strict=True)
        ]
        self._row(layout, titles, LABEL)
        for row in cells:
            self._row(layout, row)

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Names and values, one pair a line; long values go on below themselves."""
        known = [(name, safe(str(value))) for name, value in pairs]
        left = max((cell_len(name) for name, _ in known), default=0) + GAP
        for name, value in known:
            self._hanging(Text.assemble((set_cell_size(name, left), FAINT)), value)

    def indented(self, text: str, style: str = "", lines: int | None = None) -> None:
        """A text two cells from the left, wrapped at words; cut after so many lines."""
        width = max(self.out.width - GAP, 10)
        wrapped = list(Text(safe(text), style=style).wrap(self.out, width))
        if lines is not None and len(wrapped) > lines:
            wrapped = wrapped[:lines]
            wrapped[-1].append("…")
            wrapped[-1].truncate(width, overflow="ellipsis")
        for line in wrapped:
            self._print(Text(" " * GAP).append_text(line))

    def text(self, text: str, style: str = "") -> None:
        """A text of the user's or a model's, wrapped at words."""
        self.out.print(Text(safe(text), style=style))

    def line(self, *parts: str | tuple[str, str]) -> None:
        """One line that is cut to the width, of texts or texts with a style."""
        self._print(assembled(parts))

    def note(self, text: str) -> None:
        """Something about the result, for people, beside it."""
        if not self.json:
            self.err.print(Text(safe(text), style=FAINT))

    def step(self, *parts: str | tuple[str, str]) -> None:
        """One line about what happens on the way, beside the result."""
        if not self.json:
            self.err.print(assembled(parts), style=FAINT, no_wrap=True, overflow="ellipsis", crop=True)

    def done(self, text: str) -> None:
        """What was done, for people."""
        if not self.json:
            self.out.print(Text(safe(text)))

    def problem(self, text: str) -> None:
        """What went wrong: one line, wrapped at words where a person reads it."""
        if self.json:
            self.problem_json({"error": {"message": text}})
            return
        self.err.print(Text.assemble(("sage: ", BAD), one_line(text)), soft_wrap=not self.err.is_terminal)

    def problem_json(self, value: plain.Json) -> None:
        """What went wrong in a call, for scripts."""
        sys.stderr.write(plain.line(value) + "\n")

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A bar beside the result. Nothing is drawn where nobody looks."""
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None, complete_style=ACCENT, finished_style=GOOD),
            TextColumn("{task.percentage:>3.0f}%", markup=False),
            TimeElapsedColumn(),
        )
        hidden = self.json or not self.err.is_terminal
        with Progress(*columns, console=self.err, disable=hidden, transient=True, expand=True) as progress:
            yield progress

    def _row(self, layout: Sequence[tuple[Column, int]], cells: Sequence[str], style: str = "") -> None:
        line = Text()
        for (column, width), cell in zip(layout[:-1], cells[:-1], strict=True):
            text = Text(cell, style=style or column.style)
            text.truncate(width, overflow="ellipsis")
            text.align(column.justify, width)
            line.append_text(text).append(" " * GAP)
        column, width = layout[-1]
        for number, part in enumerate(
            self._folded(Text(cells[-1], style=style or column.style), line.cell_len)
        ):
            if number == 0:
                part.align(column.justify, min(width, self.out.width - line.cell_len))
            start = line.copy() if number == 0 else Text(" " * line.cell_len)
            start.append_text(part)
            start.rstrip()
            self._print(start)

    def _folded(self, text: Text, left: int) -> list[Text]:
        """The text in as many lines as a row may have, each as wide as what is left."""
        width = max(self.out.width - left, 10)
        lines = list(text.wrap(self.out, width)) or [text]
        if len(lines) > ROW_LINES:
            del lines[ROW_LINES:]
            lines[-1].append("…")
            lines[-1].truncate(width, overflow="ellipsis")
        return lines

    def _hanging(self, head: Text, value: str) -> None:
        left = head.cell_len
        lines = Text(value).wrap(self.out, max(self.out.width - left, 10)) or [Text()]
        for number, line in enumerate(lines):
            start = head.copy() if number == 0 else Text(" " * left)
            self._print(start.append_text(line))

    def _print(self, line: Text) -> None:
        line.truncate(self.out.width, overflow="ellipsis")
        self.out.print(line, no_wrap=True, crop=False)

    def _raw(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def assembled(parts: Iterable[str | tuple[str, str]]) -> Text:
    """One line of texts, some with a style; what they hold is safe to show."""
    text = Text()
    for part in parts:
        said, style = (part, "") if isinstance(part, str) else part
        text.append(safe(said).replace("\n", " ").replace("\t", " "), style=style)
    return text
