"""What some models write before their answer, for themselves: `<think> … </think>`."""

from __future__ import annotations

_BEGIN = "<think>"
_END = "</think>"


def without_reasoning(text: str) -> str:
    """The answer alone. Reasoning that never ends leaves nothing."""
    if not text.lstrip().startswith(_BEGIN):
        return text
    return text.partition(_END)[2]


class ReasoningFilter:
    """Does the same with an answer that grows."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again: the call is made once more."""
        self._held = ""
        self._answering = False

    def feed(self, piece: str) -> str:
        """What this piece adds to the answer."""
        if self._answering:
            return piece
        self._held += piece
        start = self._held.lstrip()
        if not start.startswith(_BEGIN):
            if _BEGIN.startswith(start):
                return ""  # it may still become one
            return self._answer(self._held)
        before, end, after = self._held.partition(_END)
        if end:
            return self._answer(after)
        self._held = _BEGIN + before[-len(_END) :]  # all that can still be the beginning of its end
        return ""

    def _answer(self, text: str) -> str:
        self._answering = True
        self._held = ""
        return text
