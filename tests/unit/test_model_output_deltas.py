"""The words of an answer while it grows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sage_server.domain.events import Delta
from sage_server.domain.model_output import MAX_MESSAGE_CHARS, MAX_MESSAGES, ModelOutput
from sage_server.engine.model_output.deltas import MessageDeltas
from sage_server.engine.model_output.parsing import read_output
from support.malformed import malformed_outputs

texts = st.text() | st.text(st.sampled_from(' \n\t\u3000a😀"\\{}[]\0'))
keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
others = st.none() | st.integers() | st.lists(texts, max_size=2) | st.dictionaries(keys, texts, max_size=2)
messages = st.lists(texts | others, max_size=5) | texts
outputs = st.dictionaries(keys, others, max_size=2).flatmap(
    lambda more: st.permutations(
        [*more.items(), ("messages", None), ("tool_calls", [{"name": "save", "args": {"messages": ["no"]}}])]
    )
)


def pieces_of(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


def fed(pieces: Sequence[str], deltas: MessageDeltas | None = None) -> tuple[str, ...]:
    """The messages that the deltas make. Each must go on where the one before it ended."""
    deltas = deltas or MessageDeltas()
    made: list[str] = []
    for piece in pieces:
        for delta in deltas.feed(piece):
            if delta.index == len(made):
                made.append("")
            assert delta.index == len(made) - 1
            assert delta.offset == len(made[-1])
            assert delta.text
            made[-1] += delta.text
    return tuple(made)


def said(text: str) -> tuple[str, ...]:
    output = read_output(text)
    assert isinstance(output, ModelOutput)
    return output.messages


@settings(deadline=None)
@given(outputs, messages, st.booleans(), st.lists(st.integers(min_value=0), max_size=12))
def test_deltas_of_a_valid_answer_make_its_messages_however_it_is_cut(
    pairs: Any, content: Any, ascii_only: bool, cuts: list[int]
) -> None:
    output = {**dict(pairs), "messages": content}
    text = json.dumps(output, ensure_ascii=ascii_only)
    whole = said(text)
    assert fed(pieces_of(text, cuts)) == whole
    assert fed(list(text)) == whole
    assert fed(pieces_of(f"I'm {{on}} it:\n```json\n{text}\n```\n", cuts)) == whole


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(min_value=0), max_size=12))
@example(4, [])
def test_deltas_of_any_answer_are_the_same_however_it_is_cut(seed: int, cuts: list[int]) -> None:
    for text in malformed_outputs(12, seed):
        if len(text) > 10_000:
            continue
        assert fed(pieces_of(text, cuts)) == fed([text]) == fed(list(text))


def test_words_come_as_soon_as_they_are_there() -> None:
    deltas = MessageDeltas()
    assert deltas.feed('{"messages": ["  ') == []
    assert deltas.feed("Hel") == [Delta(0, 0, "  Hel")]
    assert deltas.feed("lo\\ud83") == [Delta(0, 5, "lo")]
    assert deltas.feed("d\\ude0") == []
    assert deltas.feed('0", " ", "b') == [Delta(0, 7, "😀"), Delta(1, 0, "b")]
    assert deltas.feed('ye"], "tool_calls": [{"name": "save", "args": {"messages": ["no"]}}]}') == [
        Delta(1, 1, "ye")
    ]
    assert deltas.feed('{"messages": ["no"]}') == []


@pytest.mark.parametrize(
    "text",
    [
        "Hello, I'm here.",
        '["messages", "no"]',
        '{"output": {"messages": ["no"]}}',
        '{"tool_calls": [{"name": "no", "args": {"messages": "no"}}], "messages": []}',
        '{"messages": {"text": "no"}}',
        '{"messages": [["no"], {"a": "no"}, 7]}',
        '{"messages" "no"}',
        '{"a": no, "messages": ["no"]}',
        '```json\n{"messages": [" ", "\\n"]}\n```',
    ],
)
def test_nothing_but_messages_is_told(text: str) -> None:
    assert fed([text]) == fed(list(text)) == ()


def test_after_a_restart_they_begin_again() -> None:
    deltas = MessageDeltas()
    assert fed(['{"messages": ["a", "b\\u00'], deltas) == ("a", "b")
    deltas.reset()
    assert fed(['{"messages": ["c"]}'], deltas) == ("c",)


def test_long_and_many_messages_are_counted_as_the_parser_does() -> None:
    long = "x" * MAX_MESSAGE_CHARS
    text = json.dumps({"messages": [long, long + " " * MAX_MESSAGE_CHARS + "end", *["more"] * MAX_MESSAGES]})
    assert fed([text]) == said(text)
    assert fed(pieces_of(text, range(0, len(text), 777))) == said(text)
    assert len(said(text)) == MAX_MESSAGES
