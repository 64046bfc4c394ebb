"""Answers that are no attempt at the format."""

from __future__ import annotations

import re

from sage_server.domain.model_output import MAX_MESSAGES, ModelOutput, message_parts

_STRUCTURE = re.compile(
    r"""[{}]                                      # an object, or code, or a formula: not plainly prose
    |\[[ \t]*+["'\[]                              # a list
    |\A\s*+\[
    |tool_call
    |["'`](?:messages?|args|arguments)["'`]       # a key
    |^[ \t]*+(?:messages?|name|args)[ \t]*+:      # a key as in YAML
    |```json
    |</?(?:tool|function|invoke|parameter)        # a call as some models were trained to write it
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_LETTER = re.compile(r"[^\W\d_]")


def is_prose(text: str) -> bool:
    """Whether the text is plainly words for a person. False if it may be a failed attempt at the format, as
    then a part of it might be a call and none of it meant to be shown."""
    return _LETTER.search(text) is not None and _STRUCTURE.search(text) is None


def prose_output(text: str) -> ModelOutput:
    """The text as something said."""
    return ModelOutput(message_parts(text)[:MAX_MESSAGES], ())
