"""Finding the answer in a text that grows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from sage_server.engine.model_output.lexer import END, TEXT, WORD, Lexer

MESSAGES = "messages"
MESSAGE = "message"
TOOL_CALLS = "tool_calls"
KEYS = frozenset({MESSAGES, MESSAGE, TOOL_CALLS})
"""What an object must have one of to be the answer."""
MAX_DEPTH = 100
MAX_TOKENS = 200_000
"""Far more than any answer has. It bounds the time that a wild one takes."""
MAX_NUMBER_CHARS = 1000
"""Longer ones Python may refuse."""

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

_LITERALS: dict[str, bool | None] = {
    "true": True,
    "false": False,
    "null": None,
    "True": True,
    "False": False,
    "None": None,
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII)


class MessagePart(NamedTuple):
    """Some of a string of the answer's messages."""

    text: str
    ends: bool
    """Whether the string ends with it."""


@dataclass(frozen=True)
class Answer:
    """The object that is the answer. With `cut_off` the text ended before the object did: what was complete
    in its lists is there, and of an incomplete message what there is."""

    content: Mapping[str, Json]
    cut_off: bool


class _Expected(Enum):
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    ITEM = auto()
    SEPARATOR = auto()


class Reader:
    """Fed with pieces of a text, finds the first object in it that has a key of the format.

    Around the object there may be anything. Complete objects without such a key are passed over whole, and so
    are braces that begin no object. An object that begins well and then breaks ends the search: what stands
    inside it, such as a quoted text or an argument, must not be taken for the answer.
    """

    def __init__(self) -> None:
        self._lexer = Lexer()
        self._stack: list[list[Json] | dict[str, Json]] = []
        self._keys: list[str] = []
        self._parts: list[str] = []
        self._expected = _Expected.KEY
        self._tokens = 0
        self._answer: Answer | None = None
        self._over = False

    def feed(self, piece: str) -> list[MessagePart]:
        """What this piece adds to the strings of the answer's `messages`."""
        parts: list[MessagePart] = []
        if self._over:
            return parts
        for kind, text in self._lexer.feed(piece):
            # However small the pieces are, a string counts once.
            self._tokens += kind != TEXT
            if self._tokens > MAX_TOKENS:
                self._over = True
            elif kind in (TEXT, END):
                if self._in_messages():
                    parts.append(MessagePart(text, kind == END))
                self._string(text, ends=kind == END)
            else:
                self._token(kind, text)
            if self._over:
                break
        return parts

    def answer(self) -> Answer | None:
        """The answer, if the text so far is all."""
        if self._answer is not None or self._over or not self._stack:
            return self._answer
        top = self._stack[0]
        assert isinstance(top, dict)
        content = {**top, **self._unfinished()}
        return Answer(content, cut_off=True) if KEYS & content.keys() else None

    def _unfinished(self) -> dict[str, Json]:
        """What may be used of the value that the text ended in: items, and the beginning of a message."""
        key = self._keys[0]
        begun: list[Json] = []
        if self._parts and key in (MESSAGES, MESSAGE) and self._in_list_of_top():
            begun = ["".join(self._parts)]
        if len(self._stack) > 1 and isinstance(self._stack[1], list) and key in KEYS:
            return {key: [*self._stack[1], *begun]}
        return {key: begun} if begun else {}

    def _in_messages(self) -> bool:
        return bool(self._keys) and self._keys[0] == MESSAGES and self._in_list_of_top()

    def _in_list_of_top(self) -> bool:
        """Whether a value is due that is one of the answer's own keys, or an item of a list that is."""
        if len(self._stack) == 1:
            return self._expected is _Expected.VALUE
        return len(self._stack) == 2 and self._expected is _Expected.ITEM

    def _token(self, kind: str, text: str) -> None:
        expected = self._expected
        value_due = expected in (_Expected.VALUE, _Expected.ITEM)
        if kind == "{" and (not self._stack or value_due):
            self._open({})
        elif kind == "[" and value_due:
            self._open([])
        elif kind in "}]":
            self._close(kind)
        elif kind == "," and expected is _Expected.SEPARATOR:
            self._expected = _Expected.KEY if isinstance(self._stack[-1], dict) else _Expected.ITEM
        elif kind == ":" and expected is _Expected.COLON:
            self._expected = _Expected.VALUE
        elif kind == WORD and value_due:
            self._literal(text)
        else:
            self._broken(kind)

    def _string(self, text: str, *, ends: bool) -> None:
        self._parts.append(text)
        if not ends:
            return
        whole = "".join(self._parts)
        self._parts.clear()
        if self._expected in (_Expected.VALUE, _Expected.ITEM):
            self._value(whole)
        elif self._expected is not _Expected.KEY or whole in self._stack[-1]:
            # Out of place; or a key for the second time, which does not say what is meant.
            self._broken(END)
        else:
            self._keys[-1] = whole
            self._expected = _Expected.COLON

    def _literal(self, word: str) -> None:
        if word in _LITERALS:
            self._value(_LITERALS[word])
        elif _NUMBER.fullmatch(word) and len(word) <= MAX_NUMBER_CHARS:
            self._value(json.loads(word))
        else:
            self._broken(WORD)

    def _open(self, container: list[Json] | dict[str, Json]) -> None:
        if len(self._stack) == MAX_DEPTH:
            self._over = True
            return
        self._stack.append(container)
        if isinstance(container, dict):
            self._keys.append("")
            self._expected = _Expected.KEY
        else:
            self._expected = _Expected.ITEM

    def _close(self, kind: str) -> None:
        is_object = isinstance(self._stack[-1], dict)
        due = _Expected.KEY if is_object else _Expected.ITEM
        if is_object != (kind == "}") or self._expected not in (due, _Expected.SEPARATOR):
            self._broken(kind)
            return
        closed = self._stack.pop()
        if is_object:
            self._keys.pop()
        if self._stack:
            self._value(closed)
        elif isinstance(closed, dict) and KEYS & closed.keys():
            self._answer = Answer(closed, cut_off=False)
            self._over = True
        else:
            self._lexer.skip()

    def _value(self, value: Json) -> None:
        container = self._stack[-1]
        if isinstance(container, dict):
            container[self._keys[-1]] = value
        else:
            container.append(value)
        self._expected = _Expected.SEPARATOR

    def _broken(self, kind: str) -> None:
        begun = len(self._stack) > 1 or bool(self._stack[0]) or self._expected is _Expected.VALUE
        if begun:
            self._over = True
            return
        self._stack.clear()
        self._keys.clear()
        self._parts.clear()
        if kind == "{":
            self._open({})
        else:
            self._lexer.skip()
