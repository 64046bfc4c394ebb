"""What a model answered in a step: what it says and which tools it calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

MAX_MESSAGES = 32
MAX_CALLS = 32
MAX_MESSAGE_CHARS = 100_000
MAX_ARGUMENTS_CHARS = 100_000
MAX_NAME_CHARS = 128

_SURROGATES = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class RequestedCall:
    """A tool that the model wants to be called. Nobody has looked yet whether there is such a tool."""

    name: str
    arguments_json: str
    """A JSON object, with sorted keys and without spaces: equal arguments are equal texts."""


@dataclass(frozen=True)
class ModelOutput:
    """An answer that could be read. With neither messages nor calls the model chose to say nothing.

    Everything in it is valid UTF-8 without NUL. There are at most `MAX_MESSAGES` messages, none of them blank
    or longer than `MAX_MESSAGE_CHARS`, and at most `MAX_CALLS` calls.
    """

    messages: tuple[str, ...]
    tool_calls: tuple[RequestedCall, ...]
    cut_off: bool = False
    """Whether the text ended early. Its last message may be incomplete; a call that was incomplete is left
    out, so there may have been more to do."""


class Fault(Enum):
    """Why an answer cannot be read."""

    NO_ANSWER = "no_answer"
    """It holds no object of the format, or one that is broken."""
    NOTHING_VALID = "nothing_valid"
    """It has the keys of the format, but nothing of what they hold can be used."""
    CALL = "call"
    """It wants a tool call that cannot be understood, or more calls than a step may make."""


@dataclass(frozen=True)
class Unreadable:
    """An answer that could not be read. Nothing of it may take effect."""

    fault: Fault


def clean(text: str) -> str:
    """The text as it can be stored: without NUL, and with U+FFFD for each lone surrogate."""
    if "\0" in text:
        text = text.replace("\0", "")
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def message_parts(text: str) -> tuple[str, ...]:
    """The messages that a text makes: as many as its length needs, without blank ones."""
    text = clean(text)
    parts = (text[at : at + MAX_MESSAGE_CHARS] for at in range(0, len(text), MAX_MESSAGE_CHARS))
    return tuple(part for part in parts if not is_blank(part))


def is_blank(text: str) -> bool:
    """Whether there is nothing to be seen in it."""
    return not text or text.isspace()
