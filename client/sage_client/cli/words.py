"""Words of a model on the terminal, as they come, broken at words and not within them."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.cells import cell_len

from sage_client.cli.texts import safe
from sage_client.models.events import TurnDelta, TurnMessage

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class Wrapped:
    """Text that is written in pieces and wrapped at `width` cells; None leaves it as it is."""

    def __init__(self, write: Callable[[str], None], width: int | None) -> None:
        self._write = write
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""

    def add(self, text: str) -> None:
        """Write what is complete; a word that may go on waits for its end."""
        if self._width is None:
            self._write(safe(text))
            self._column = 0 if text.endswith("\n") else 1
            return
        for piece in _PIECES.findall(safe(text)):
            if not piece.isspace():
                self._word += piece
                continue
            self._flush()
            if piece == "\n":
                self._write("\n")
                self._column, self._space = 0, ""
            else:
                self._space = piece if self._column else ""

    def end(self) -> None:
        """Write the rest and end the line."""
        self._flush()
        if self._column:
            self._write("\n")
        self._column, self._space = 0, ""

    def _flush(self) -> None:
        if not self._word or self._width is None:
            return
        length = cell_len(self._word)
        if self._column and self._column + cell_len(self._space) + length > self._width:
            self._write("\n")
            self._column, self._space = 0, ""
        self._write(self._space + self._word)
        self._column += cell_len(self._space) + length
        self._space = self._word = ""


class Words:
    """The messages of a turn: words when they come, and what was missing of them when a message is whole."""

    def __init__(self, wrapped: Wrapped) -> None:
        self._wrapped = wrapped
        self._said: dict[tuple[int, int], str] = {}
        self._current: tuple[int, int] | None = None

    def delta(self, event: TurnDelta) -> None:
        """Some words. After words that were lost, nothing until the message is whole."""
        key = (event.step, event.index)
        said = self._said.get(key, "")
        if event.offset == 0 and said:
            # The model was asked again.
            self.pause()
            said = ""
        if event.offset != len(said):
            return
        self._open(key)
        self._said[key] = said + event.text
        self._wrapped.add(event.text)

    def message(self, event: TurnMessage) -> None:
        """A whole message: what was not written of it yet."""
        key = (event.step, event.index)
        said = self._said.pop(key, "")
        goes_on = event.text.startswith(said) and (self._current == key or said == event.text)
        if not goes_on:
            self.pause()
            said = ""
        if said != event.text:
            self._open(key)
            self._wrapped.add(event.text[len(said) :])
        if self._current == key:
            self.pause()

    def pause(self) -> None:
        """End the line, if one is begun."""
        if self._current is not None:
            self._wrapped.end()
            self._current = None

    def _open(self, key: tuple[int, int]) -> None:
        if self._current != key:
            self.pause()
            self._current = key
