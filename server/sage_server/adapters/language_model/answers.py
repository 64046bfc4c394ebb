"""Reading what a provider answers, whole or as a stream of events, without trusting its form or its size."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from sage_server.adapters.language_model.failures import UNUSABLE, Failure, from_error_object
from sage_server.domain.turns import TokenUsage

_SURROGATE = re.compile("[\ud800-\udfff]")
_FIRST_HALF = re.compile("[\ud800-\udbff]$")
_BYTES_A_CHARACTER = 6  # as JSON may write it
_FRAME_BYTES = 1_000_000
_LARGEST_COUNT = 2**31 - 1


@dataclass(frozen=True)
class Answer:
    """A whole answer with some text. The usage is the provider's own count, if it gave one."""

    text: str
    usage: TokenUsage | None
    cut_off: bool


class Reading(Protocol):
    """An answer that is coming in."""

    @property
    def over(self) -> bool:
        """Whether nothing more needs to be read."""
        ...

    def take(self, data: bytes) -> Iterator[str]:
        """Read on; the text that is new. The texts together are the answer's text."""
        ...

    def outcome(self) -> Answer | Failure:
        """What came of it, if nothing more comes."""
        ...


class _Content:
    """What both forms have: the text of the first choice, how it ended, what it cost."""

    def __init__(self, most_characters: int) -> None:
        self.finished = False
        self.failure: Failure | None = None
        self._texts: list[str] = []
        self._room = most_characters
        self._half = ""
        self._cut_off = self._full = False
        self._usage: TokenUsage | None = None

    @property
    def over(self) -> bool:
        return self.failure is not None or self._full

    def add(self, data: bytes, part: str) -> str:
        """Take in one object in JSON, whose text is in this part of its choice; the text that is new."""
        found = _parsed(data)
        if found is None or found.get("error"):
            self.failure = UNUSABLE if found is None else from_error_object(found["error"])
            return ""
        self._usage = _usage(found.get("usage")) or self._usage
        choice = _first(found.get("choices"))
        said = _mapping(choice.get(part))
        ended = choice.get("finish_reason")
        content = said.get("content")
        if said.get("refusal") or ended == "content_filter":
            self.failure = Failure("refused")
        elif content is not None and not isinstance(content, str):
            self.failure = UNUSABLE
        if self.failure is not None:
            return ""
        self.finished = self.finished or ended is not None
        self._cut_off = self._cut_off or ended == "length"
        return self.say(content or "")

    def say(self, text: str) -> str:
        """Take in some text, and give what of it can be used: all of it is valid, and fits."""
        text, self._half = self._half + text, ""
        if not self.finished and _FIRST_HALF.search(text):  # a character that two events share
            text, self._half = text[:-1], text[-1]
        text = _valid(text)
        if len(text) > self._room:
            text = text[: self._room]
            self.finished = self._cut_off = self._full = True
        self._room -= len(text)
        self._texts.append(text)
        return text

    def outcome(self) -> Answer | Failure:
        if self.failure is not None:
            return self.failure
        if not self.finished:
            return UNUSABLE
        text = "".join(self._texts)
        return Answer(text, self._usage, self._cut_off) if text.strip() else Failure("empty", again=True)


class EventReading:
    """A stream of server-sent events, each of one line."""

    def __init__(self, most_characters: int) -> None:
        self._content = _Content(most_characters)
        self._most_bytes = most_characters * _BYTES_A_CHARACTER + _FRAME_BYTES
        self._rest = bytearray()
        self._ended = False

    @property
    def over(self) -> bool:
        """See Reading."""
        return self._ended or self._content.over

    def take(self, data: bytes) -> Iterator[str]:
        """See Reading."""
        end, *others = data.split(b"\n")
        self._rest += end
        if len(self._rest) > self._most_bytes:
            self._content.failure = UNUSABLE
        if not others:
            return
        lines = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        for line in lines:
            if self.over:
                return
            text = self._line(line)
            if text:
                yield text

    def outcome(self) -> Answer | Failure:
        """See Reading."""
        return self._content.outcome()

    def _line(self, line: bytes) -> str:
        name, _, value = line.partition(b":")
        if name != b"data":
            return ""
        if value.strip() != b"[DONE]":
            return self._content.add(value, "delta")
        self._ended = self._content.finished = True
        return self._content.say("")


class BodyReading:
    """One object in JSON."""

    def __init__(self, most_characters: int) -> None:
        self._content = _Content(most_characters)
        self._most_bytes = most_characters * _BYTES_A_CHARACTER + _FRAME_BYTES
        self._data = bytearray()

    @property
    def over(self) -> bool:
        """See Reading."""
        return self._content.over

    def take(self, data: bytes) -> Iterator[str]:
        """See Reading. The text is known at the end only."""
        self._data += data
        if len(self._data) > self._most_bytes:
            self._content.failure = UNUSABLE
        return iter(())

    def outcome(self) -> Answer | Failure:
        """See Reading."""
        if self._content.failure is None:
            self._content.add(bytes(self._data), "message")
        return self._content.outcome()


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _first(choices: object) -> dict[str, Any]:
    return _mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _usage(value: object) -> TokenUsage | None:
    counts = [_mapping(value).get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (one if type(one) is int and 0 <= one <= _LARGEST_COUNT else None for one in counts)
    if prompt is None or completion is None:
        return None
    return TokenUsage(prompt_tokens=prompt, completion_tokens=completion, model_calls=1)


def _valid(text: str) -> str:
    """Text that can be stored: halves of characters joined, lone ones replaced, no NUL."""
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "")
