"""What a model writes for itself before its answer is not part of the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sage_server.engine.model_output.reasoning import ReasoningFilter, without_reasoning

ANSWERS = [
    '{"messages": ["Hello."]}',
    '<think>The user greets. {"messages": ["No."]}</think>\n{"messages": ["Hello."]}',
    "\n  <think></think>Hello.",
    "<think>without an end",
    "<thinking is hard>",
    "<",
    "",
    "I <think> so.</think>",
]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a { b</think>{}", "{}"),
        (" \n<think>a</think> Hello.", " Hello."),
        ("<think>for ever", ""),
        ("I <think> so.", "I <think> so."),
    ],
)
def test_reasoning_is_left_out(text: str, answer: str) -> None:
    assert without_reasoning(text) == answer


@given(st.sampled_from(ANSWERS), st.lists(st.integers(1, 9), min_size=1))
def test_a_growing_answer_shows_what_the_whole_one_does(text: str, sizes: list[int]) -> None:
    shown, at, number, filtered = "", 0, 0, ReasoningFilter()
    while at < len(text):
        size = sizes[number % len(sizes)]
        shown += filtered.feed(text[at : at + size])
        at, number = at + size, number + 1
    whole = without_reasoning(text)
    # What could still have become the beginning of reasoning is held back, and is no answer either way.
    assert shown == whole or (not shown and "<think>".startswith(whole.lstrip()))


def test_a_call_that_is_made_again_begins_anew() -> None:
    filtered = ReasoningFilter()
    assert filtered.feed("<think>half") == ""
    filtered.reset()
    assert filtered.feed("Hello.") == "Hello."
