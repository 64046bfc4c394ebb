"""A summary made of the user's own sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from sage_server.adapters.offline_model.prompt_reading import json_lines
from sage_server.adapters.offline_model.sentences import split_sentences
from sage_server.ports.language_model import Prompt, Role

_WORDS = re.compile(r"at most (\d+) words")
_DEFAULT_WORDS = 100
_NOTHING = "Nothing was said in words."


def summarised(prompt: Prompt) -> str:
    """The first sentence of each of the user's messages, after what the previous summary says; as many words
    as are asked for. The previous summary gives way to what is new, down to half of the room."""
    text = {message.role: message.text for message in prompt.messages}
    limit = _WORDS.search(text.get(Role.SYSTEM, ""))
    room = int(limit[1]) if limit else _DEFAULT_WORDS
    lines = list(json_lines(text.get(Role.USER, "").split("\n")))
    before = " ".join(str(line.get("summary_of_what_came_before", "")) for line in lines).split()
    said = [line for line in lines if line.get("kind") == "user"] or lines
    new = _within(room - min(len(before), room // 2), (_first_sentence(line) for line in said))
    return " ".join([*before[: room - len(new)], *new]) or _NOTHING


def _first_sentence(line: dict[str, object]) -> list[str]:
    return next(iter(split_sentences(str(line.get("text", "")))), "").split()


def _within(room: int, sentences: Iterable[list[str]]) -> list[str]:
    """Words of these sentences, as many as there is room for."""
    return list(chain.from_iterable(sentences))[:room]
