"""The words of messages while the model still writes them."""

from __future__ import annotations

from sage_server.domain.events import Delta
from sage_server.domain.model_output import MAX_MESSAGE_CHARS, MAX_MESSAGES, is_blank
from sage_server.engine.model_output.reader import Reader


class MessageDeltas:
    """Fed with an answer as it grows, tells what is new in its `messages`, decoded, and nothing else of it.

    `index` and `offset` are those of the messages that `read_output` finds in the whole answer: blank ones do
    not count, and a long one is several. Once the answer breaks the format no more comes. The time is linear
    in the length of the answer, however small the pieces are.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again: the call is made once more."""
        self._reader = Reader()
        self._index = 0
        self._length = 0
        self._held: list[str] = []
        self._shown = False

    def feed(self, piece: str) -> list[Delta]:
        """What this piece adds, in order."""
        deltas: list[Delta] = []
        for part in self._reader.feed(piece):
            self._add(part.text, deltas)
            if part.ends:
                self._end_message()
        return deltas

    def _add(self, text: str, deltas: list[Delta]) -> None:
        at = 0
        while at < len(text) and self._index < MAX_MESSAGES:
            part = text[at : at + MAX_MESSAGE_CHARS - self._length]
            at += len(part)
            self._show(part, deltas)
            if self._length == MAX_MESSAGE_CHARS:
                self._end_message()

    def _show(self, part: str, deltas: list[Delta]) -> None:
        """Nothing of a message is shown before there is something to see: a blank one is none."""
        self._length += len(part)
        if not self._shown and is_blank(part):
            self._held.append(part)
            return
        text = "".join((*self._held, part))
        self._held.clear()
        self._shown = True
        deltas.append(Delta(self._index, self._length - len(text), text))

    def _end_message(self) -> None:
        self._index += self._shown
        self._length = 0
        self._held.clear()
        self._shown = False
