"""Reading an answer: `{"messages": [text...], "tool_calls": [{"name", "args"}...]}`, or something near it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

from sage_server.domain.model_output import (
    MAX_ARGUMENTS_CHARS,
    MAX_CALLS,
    MAX_MESSAGES,
    MAX_NAME_CHARS,
    Fault,
    ModelOutput,
    RequestedCall,
    Unreadable,
    clean,
    message_parts,
)
from sage_server.engine.model_output.reader import (
    KEYS,
    MESSAGE,
    MESSAGES,
    TOOL_CALLS,
    Answer,
    Json,
    Reader,
)

MAX_ARGUMENTS_DEPTH = 96
"""Below the answer's own levels, so that an answer is at most 100 deep."""
_ARGUMENT_KEYS = ("args", "arguments", "parameters", "input")


class _NotACallError(Exception):
    """A call cannot be understood."""


def read_output(text: str) -> ModelOutput | Unreadable:
    """What the model says and wants, or why that cannot be known. Never raises; the time is linear.

    Tolerated are fences and prose around the object, trailing commas, comments, Python's literals and quotes,
    line breaks in strings, a single value in place of a list, other names of keys, and a cut-off end. What is
    not text among the messages is left out. A call that was cut off is left out too; any other that cannot be
    understood makes the whole answer unreadable, since an effect that the model wanted must not vanish.
    """
    answer = _answer(clean(text))
    if answer is None:
        return Unreadable(Fault.NO_ANSWER)
    messages, all_text = _messages(answer.content)
    try:
        calls = _calls(answer.content.get(TOOL_CALLS))
    except _NotACallError:
        return Unreadable(Fault.CALL)
    if not messages and not calls and (answer.cut_off or not all_text):
        return Unreadable(Fault.NOTHING_VALID)
    return ModelOutput(messages, calls, answer.cut_off)


def _answer(text: str) -> Answer | None:
    # Most answers are right, and this is many times as fast as the reader.
    strict = _strict_object(text)
    if strict is not None:
        return Answer(strict, cut_off=False) if KEYS & strict.keys() else None
    reader = Reader()
    reader.feed(text)
    return reader.answer()


def _strict_object(text: str) -> dict[str, Json] | None:
    try:
        found = json.loads(text, strict=False, object_pairs_hook=_object, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = {clean(key): value for key, value in pairs}
    if len(made) != len(pairs):
        raise ValueError("a key is there twice")
    return made


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _messages(content: Mapping[str, Json]) -> tuple[tuple[str, ...], bool]:
    """The messages, and whether everything that stands for messages was text."""
    given = content.get(MESSAGES)
    if given is None:
        given = content.get(MESSAGE)
    items = [item for item in (given if isinstance(given, list) else [given]) if item is not None]
    found: list[str] = []
    for item in items:
        if isinstance(item, str):
            found.extend(message_parts(item))
        if len(found) >= MAX_MESSAGES:
            break
    return tuple(found[:MAX_MESSAGES]), all(isinstance(item, str) for item in items)


def _calls(given: Json) -> tuple[RequestedCall, ...]:
    if given is None or given == {}:
        return ()
    items = [item for item in (given if isinstance(given, list) else [given]) if item is not None]
    if len(items) > MAX_CALLS:
        raise _NotACallError
    return tuple(_call(item) for item in items)


def _call(item: Json) -> RequestedCall:
    if not isinstance(item, dict):
        raise _NotACallError
    function = item.get("function")
    if isinstance(function, dict):
        item = function
    name = item.get("name")
    name = clean(name).strip() if isinstance(name, str) else ""
    if not name or len(name) > MAX_NAME_CHARS:
        raise _NotACallError
    given = [item[key] for key in _ARGUMENT_KEYS if item.get(key) is not None]
    if len(given) > 1:
        raise _NotACallError
    return RequestedCall(name, _arguments(given[0] if given else {}))


def _arguments(given: Json) -> str:
    if isinstance(given, str):
        given = _strict_object(given) if given.strip() else {}
    if not isinstance(given, dict):
        raise _NotACallError
    try:
        text = json.dumps(
            _cleaned(given, MAX_ARGUMENTS_DEPTH),
            ensure_ascii=False,
            allow_nan=False,
            sort_keys=True,
            separators=(",", ":"),
        )
    except ValueError:
        # A number that is too large to be one.
        raise _NotACallError from None
    if len(text) > MAX_ARGUMENTS_CHARS:
        raise _NotACallError
    return text


def _cleaned(value: Json, depth: int) -> Json:
    """The value with clean texts; its keys are so already."""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        raise _NotACallError
    if isinstance(value, list):
        return [_cleaned(item, depth - 1) for item in value]
    return {key: _cleaned(item, depth - 1) for key, item in value.items()}
