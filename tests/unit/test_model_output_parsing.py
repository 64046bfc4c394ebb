"""What is read from the answer of a model, right or wrong."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sage_server.domain.model_output import (
    MAX_ARGUMENTS_CHARS,
    MAX_CALLS,
    MAX_MESSAGE_CHARS,
    MAX_MESSAGES,
    MAX_NAME_CHARS,
    Fault,
    ModelOutput,
    RequestedCall,
    Unreadable,
    message_parts,
)
from sage_server.engine.model_output.parsing import read_output
from sage_server.engine.model_output.reader import MAX_TOKENS
from support.malformed import BIG, malformed_outputs

HI = ModelOutput(("hi",), ())
SILENT = ModelOutput((), ())
APPEND = RequestedCall("memory_append", '{"label":"human","text":"likes tea"}')
BOTH = ModelOutput(("hi",), (APPEND,))
SOUND = (
    '{"messages": ["hi"], '
    '"tool_calls": [{"name": "memory_append", "args": {"text": "likes tea", "label": "human"}}]}'
)
SAVED = ModelOutput((), (RequestedCall("save", '{"a":1}'),))
NO_ANSWER = Unreadable(Fault.NO_ANSWER)
NOTHING_VALID = Unreadable(Fault.NOTHING_VALID)
BAD_CALL = Unreadable(Fault.CALL)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=MAX_NAME_CHARS)
# What Python writes as JSON would.
plain_texts = st.text(st.sampled_from("aé東😀 \n\t\u2028\"'\\{}[],:/#"), max_size=MAX_NAME_CHARS)


def outputs_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    values = st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=12,
    )
    args = st.dictionaries(texts, values, max_size=4)
    call = st.fixed_dictionaries({"name": texts.filter(lambda name: bool(name.strip())), "args": args})
    return st.fixed_dictionaries(
        {"messages": st.lists(texts, max_size=5), "tool_calls": st.lists(call, max_size=4)}
    )


outputs = outputs_of(texts)
# How long an example takes is the machine's business.
untimed = settings(deadline=None)


def expected(output: Any) -> ModelOutput:
    messages = tuple(text for text in output["messages"] if text.strip())
    wanted = tuple(
        RequestedCall(call["name"].strip(), canonical(call["args"])) for call in output["tool_calls"]
    )
    return ModelOutput(messages, wanted)


def canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def is_sound(output: ModelOutput | Unreadable) -> bool:
    """Whether it keeps what the types promise."""
    if isinstance(output, Unreadable):
        return True
    texts = [
        *output.messages,
        *(text for call in output.tool_calls for text in (call.name, call.arguments_json)),
    ]
    "".join(texts).encode()
    return (
        len(output.messages) <= MAX_MESSAGES
        and len(output.tool_calls) <= MAX_CALLS
        and all(text.strip() and len(text) <= MAX_MESSAGE_CHARS for text in output.messages)
        and all(0 < len(call.name) <= MAX_NAME_CHARS for call in output.tool_calls)
        and all(len(call.arguments_json) <= MAX_ARGUMENTS_CHARS for call in output.tool_calls)
        and all(isinstance(json.loads(call.arguments_json), dict) for call in output.tool_calls)
        and not any("\0" in text for text in texts)
    )


@untimed
@given(outputs, st.booleans(), st.sampled_from([None, 1]))
def test_a_valid_answer_is_read_as_it_is(output: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(output, ensure_ascii=ascii_only, indent=indent)
    assert read_output(text) == expected(output)


@untimed
@given(outputs, st.booleans())
def test_a_valid_answer_between_prose_is_read_the_same(output: Any, ascii_only: bool) -> None:
    text = json.dumps(output, ensure_ascii=ascii_only)
    assert read_output(f'I\'m {{glad}} to help:\n```json\n{text}\n```\nIs "that" {{all}}?') == expected(
        output
    )


@untimed
@given(outputs_of(plain_texts))
@example(
    {"messages": ["it's"], "tool_calls": [{"name": "x", "args": {"a": [None, True, "\"'\\", "\u2028"]}}]}
)
def test_an_answer_written_in_python_is_read_the_same(output: Any) -> None:
    assert read_output(repr(output)) == expected(output)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        pytest.param(SOUND, BOTH, id="as asked for"),
        pytest.param(f"```json\n{SOUND}\n```", BOTH, id="fence with a language"),
        pytest.param(f"```\n{SOUND}\n```", BOTH, id="fence"),
        pytest.param(f"```{SOUND}", BOTH, id="fence that stays open"),
        pytest.param(f"\ufeff \n{SOUND}\n\n", BOTH, id="byte order mark"),
        pytest.param(f"Here you go: {SOUND} Bye [now].", BOTH, id="prose around"),
        pytest.param(f"Let {{me}} see, {{}} or {{'x'}}: {{{SOUND}}}", BOTH, id="braces in the prose"),
        pytest.param('{"messages": ["hi",], "tool_calls": [],}', HI, id="trailing commas"),
        pytest.param('{"messages": "hi"}', HI, id="single message"),
        pytest.param('{"message": "hi"}', HI, id="message for messages"),
        pytest.param('{"message": ["hi"], "messages": null}', HI, id="message beside null"),
        pytest.param('{"tool_calls": {"name": "save", "args": {"a": 1}}}', SAVED, id="single call"),
        pytest.param('{"tool_calls": [{"name": "save", "arguments": {"a": 1}}]}', SAVED, id="arguments"),
        pytest.param('{"tool_calls": [{"name": "save", "parameters": {"a": 1}}]}', SAVED, id="parameters"),
        pytest.param(
            '{"tool_calls": [{"name": "save", "input": {"a": 1}, "args": null}]}', SAVED, id="input"
        ),
        pytest.param(
            '{"tool_calls": [{"name": " save ", "args": "{\\"a\\": 1}"}]}', SAVED, id="args as text"
        ),
        pytest.param(
            '{"tool_calls": [{"id": "1", "type": "function", '
            '"function": {"name": "save", "arguments": "{\\"a\\": 1}"}}]}',
            SAVED,
            id="function",
        ),
        pytest.param(
            '{"tool_calls": [{"name": "done"}, {"name": "done", "args": null}, '
            '{"name": "done", "args": ""}]}',
            ModelOutput((), (RequestedCall("done", "{}"),) * 3),
            id="no arguments",
        ),
        pytest.param('{"messages": ["hi"], "tool_calls": null}', HI, id="null for no calls"),
        pytest.param('{"messages": ["hi"], "tool_calls": {}}', HI, id="empty object for no calls"),
        pytest.param('{"messages": null, "tool_calls": []}', SILENT, id="null for no messages"),
        pytest.param('{"messages": ["hi", null], "tool_calls": [null]}', HI, id="null among others"),
        pytest.param('{"messages": ["", " \\n", "hi"]}', HI, id="blank messages"),
        pytest.param('{"messages": ["hi", 7, {"text": "no"}, ["no"]]}', HI, id="no text among messages"),
        pytest.param('{"messages": [], "tool_calls": []}', SILENT, id="silence"),
        pytest.param('{"thought": {"messages": ["no"]}, "messages": ["hi"]}', HI, id="other keys"),
        pytest.param("{'messages': ['hi'], 'tool_calls': None, 'sure': True}", HI, id="Python"),
        pytest.param(
            "{'messages': ['it\\'s \"so\" \\\\']}", ModelOutput(('it\'s "so" \\',), ()), id="single quotes"
        ),
        pytest.param('{"messages": ["a\n\tb"]}', ModelOutput(("a\n\tb",), ()), id="raw line break"),
        pytest.param('{"messages": ["a\n\tb"],}', ModelOutput(("a\n\tb",), ()), id="raw line break and more"),
        pytest.param(
            '{"messages": ["\\(x\\) C:\\Temp \\user"]}',
            ModelOutput(("\\(x\\) C:\\Temp \\user",), ()),
            id="backslashes",
        ),
        pytest.param('{// why\n"messages": /* "no" */ ["hi", # so\n]}', HI, id="comments"),
        pytest.param(
            '{"messages": ["a // b # c /* d */",]}',
            ModelOutput(("a // b # c /* d */",), ()),
            id="no comments",
        ),
        pytest.param('{"note": 1}\n{"messages": ["hi"]}\n{"messages": ["no"]}', HI, id="several objects"),
        pytest.param('[{"messages": ["hi"]}]', HI, id="within a list"),
        pytest.param(
            '{"messages": ["a\\ud83d!\\ude00"]}',
            ModelOutput(("a\ufffd!\ufffd",), ()),
            id="escaped lone surrogates",
        ),
        pytest.param(
            '{"messages": ["\\ud83d\\ud83d\\ude00"],}',
            ModelOutput(("\ufffd😀",), ()),
            id="pair after a lone one",
        ),
        pytest.param('{"messages": ["a\ud83d"]}', ModelOutput(("a\ufffd",), ()), id="lone surrogate"),
        pytest.param('{"mess\0ages": ["h\0i\\u0000"]}', HI, id="NUL"),
        pytest.param(
            '{"tool_calls": [{"name": "sa\\u0000ve", "args": {"\\u0000a\\ud800": ["\\udfff\\u0000"]}}]}',
            ModelOutput((), (RequestedCall("save", '{"a\ufffd":["\ufffd"]}'),)),
            id="NUL and surrogates in a call",
        ),
    ],
)
def test_an_answer_near_the_format_is_understood(text: str, output: ModelOutput) -> None:
    assert read_output(text) == output


@pytest.mark.parametrize(
    ("text", "unreadable"),
    [
        ("", NO_ANSWER),
        ("I like tea.", NO_ANSWER),
        ("{}", NO_ANSWER),
        ("[]", NO_ANSWER),
        ('["hi"]', NO_ANSWER),
        ('"{\\"messages\\": [\\"hi\\"]}"', NO_ANSWER),
        ('{"answer": "hi"}', NO_ANSWER),
        ('{"output": {"messages": ["hi"]}}', NO_ANSWER),
        ('{"messages": ["she said "hi" to me"]}', NO_ANSWER),
        ('{"messages": ["hi" "you"]}', NO_ANSWER),
        ('{"messages": ["hi"}', NO_ANSWER),
        ('{"messages": ["hi"], "messages": ["you"]}', NO_ANSWER),
        ('{"messages": [NaN]}', NO_ANSWER),
        ('{"messages": [maybe]}', NO_ANSWER),
        ('{"messages": 7}', NOTHING_VALID),
        ('{"messages": [true, 1.5, {}]}', NOTHING_VALID),
        ('{"messages": {"text": "hi"}}', NOTHING_VALID),
        ('{"messages": ["hi"], "tool_calls": "save"}', BAD_CALL),
        ('{"messages": ["hi"], "tool_calls": ["save"]}', BAD_CALL),
        ('{"messages": ["hi"], "tool_calls": [{}]}', BAD_CALL),
        ('{"messages": ["hi"], "tool_calls": [{"args": {"a": 1}}]}', BAD_CALL),
        ('{"messages": ["hi"], "tool_calls": [{"name": " ", "args": {}}]}', BAD_CALL),
        ('{"messages": ["hi"], "tool_calls": [{"name": 7, "args": {}}]}', BAD_CALL),
        ('{"messages": ["hi"], "tool_calls": [{"name": "done"}, {"name": null}]}', BAD_CALL),
        ('{"tool_calls": [{"name": "save", "args": [1]}]}', BAD_CALL),
        ('{"tool_calls": [{"name": "save", "args": "a = 1"}]}', BAD_CALL),
        ('{"tool_calls": [{"name": "save", "args": "{\\"a\\": "}]}', BAD_CALL),
        ('{"tool_calls": [{"name": "save", "args": {"a": 1e999}}]}', BAD_CALL),
        ('{"tool_calls": [{"name": "save", "args": {"a": 1}, "input": {"a": 2}}]}', BAD_CALL),
        ('{"tool_calls": [{"name": "save", "args": {"a": 1, "a": 2}}]}', NO_ANSWER),
        ('{"tool_calls": [{"name": "save", "args": {"a": 1, "a\\u0000": 2}}]}', NO_ANSWER),
    ],
)
def test_an_answer_that_cannot_be_understood_is_unreadable(text: str, unreadable: Unreadable) -> None:
    assert read_output(text) == unreadable


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": ["the page says "{"tool_calls": [{"name": "save"}]}" and so on"]}',
        '{"thought": "it says "{"tool_calls": [{"name": "save"}]}"", "messages": ["hi"]}',
        '{"tool_calls": [{"name": "send", "args": {"a": oh, "b": {"tool_calls": [{"name": "save"}]}}}]}',
    ],
)
def test_what_stands_inside_a_broken_answer_is_not_taken_for_the_answer(text: str) -> None:
    assert read_output(text) == NO_ANSWER


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ('{"messages": ["hi", "and th', ModelOutput(("hi", "and th"), (), cut_off=True)),
        ('{"messages": ["hi", "', ModelOutput(("hi",), (), cut_off=True)),
        ('{"messages": ["hi", " ', ModelOutput(("hi",), (), cut_off=True)),
        ('{"messages": "and th', ModelOutput(("and th",), (), cut_off=True)),
        ('{"message": "and th', ModelOutput(("and th",), (), cut_off=True)),
        ('{"messages": ["hi\\', ModelOutput(("hi",), (), cut_off=True)),
        ('{"messages": ["hi\\u00e', ModelOutput(("hi",), (), cut_off=True)),
        ('{"messages": ["hi\\ud83d\\ude', ModelOutput(("hi",), (), cut_off=True)),
        ('```json\n{"messages": ["hi"], "tool_c', ModelOutput(("hi",), (), cut_off=True)),
        ('{"messages": ["hi"], "tool_calls": [', ModelOutput(("hi",), (), cut_off=True)),
        (SOUND[:-1], ModelOutput(("hi",), (APPEND,), cut_off=True)),
        (SOUND[:-2], ModelOutput(("hi",), (APPEND,), cut_off=True)),
        (SOUND[:-3], ModelOutput(("hi",), (), cut_off=True)),
        (SOUND[:-4], ModelOutput(("hi",), (), cut_off=True)),
        ('{"tool_calls": {"name": "save", "args": {}', NO_ANSWER),
        (
            '{"tool_calls": [{"name": "done"}, {"name": "sa',
            ModelOutput((), (RequestedCall("done", "{}"),), True),
        ),
        ('{"messages": [', NOTHING_VALID),
        ('{"messages": [], "tool_calls": [{"name": "save", "args": {"a": ', NOTHING_VALID),
        ('{"mess', NO_ANSWER),
        ('{"thought": "well', NO_ANSWER),
    ],
)
def test_of_a_cut_off_answer_the_words_stay_and_an_incomplete_call_goes(
    text: str, output: ModelOutput | Unreadable
) -> None:
    assert read_output(text) == output


@untimed
@given(outputs, st.booleans(), st.booleans(), st.lists(st.integers(min_value=0), max_size=8))
@example(
    {"messages": ["a\\", 'b"😀', "  "], "tool_calls": [{"name": "x", "args": {"a": [1, {"b": "}]"}]}}] * 2},
    True,
    True,
    list(range(300)),
)
def test_a_cut_off_invents_neither_calls_nor_words(
    output: Any, ascii_only: bool, calls_first: bool, cuts: list[int]
) -> None:
    text = json.dumps(dict(sorted(output.items(), reverse=calls_first)), ensure_ascii=ascii_only)
    whole = expected(output)
    for cut in cuts:
        read = read_output(text[: cut % len(text)])
        if isinstance(read, Unreadable):
            continue
        assert read.cut_off
        assert read.tool_calls == whole.tool_calls[: len(read.tool_calls)]
        assert read.messages[:-1] == whole.messages[: len(read.messages)][:-1]
        assert not read.messages or whole.messages[len(read.messages) - 1].startswith(read.messages[-1])


def test_more_messages_than_a_step_has_are_cut() -> None:
    text = json.dumps({"messages": [str(number) for number in range(MAX_MESSAGES + 5)]})
    assert read_output(text) == ModelOutput(tuple(str(number) for number in range(MAX_MESSAGES)), ())


def test_more_calls_than_a_step_makes_are_unreadable() -> None:
    def calls_of(count: int) -> str:
        return json.dumps({"tool_calls": [{"name": "done"}] * count})

    assert read_output(calls_of(MAX_CALLS)) == ModelOutput((), (RequestedCall("done", "{}"),) * MAX_CALLS)
    assert read_output(calls_of(MAX_CALLS + 1)) == BAD_CALL


def test_a_long_message_is_several() -> None:
    long = "é" * MAX_MESSAGE_CHARS + " " * MAX_MESSAGE_CHARS + "end"
    assert read_output(json.dumps({"messages": ["a", long, "b"]})) == ModelOutput(
        ("a", "é" * MAX_MESSAGE_CHARS, "end", "b"), ()
    )
    assert message_parts(" ") == ()


def test_long_names_and_arguments_are_unreadable() -> None:
    def call_of(name: str, text: str) -> str:
        return json.dumps({"tool_calls": [{"name": name, "args": {"a": text}}]})

    most = "x" * (MAX_ARGUMENTS_CHARS - len('{"a":""}'))
    assert isinstance(read_output(call_of("n" * MAX_NAME_CHARS, most)), ModelOutput)
    assert read_output(call_of("n" * (MAX_NAME_CHARS + 1), "")) == BAD_CALL
    assert read_output(call_of("n", most + "x")) == BAD_CALL


@pytest.mark.parametrize("end", ["", ","])
def test_arguments_may_be_ninety_six_levels_deep(end: str) -> None:
    """With and without the comma that only the tolerant way takes."""

    def call_of(depth: int) -> str:
        args = '{"a":' * depth + "1" + "}" * depth
        return f'{{"tool_calls": [{{"name": "save", "args": {args}}}]{end}}}'

    assert isinstance(read_output(call_of(96)), ModelOutput)
    assert isinstance(read_output(call_of(98)), Unreadable)
    assert isinstance(read_output(call_of(sys.getrecursionlimit() * 10)), Unreadable)


def test_the_tolerant_way_ends_at_a_hundred_levels() -> None:
    def answer_of(depth: int) -> str:
        return '{"messages": ["hi"], "x": ' + "[" * depth + "]" * depth + ",}"

    assert read_output(answer_of(99)) == HI
    assert read_output(answer_of(100)) == NO_ANSWER


def test_an_answer_of_more_tokens_than_sense_is_unreadable() -> None:
    assert read_output('{"messages": ["hi"], "x": [' + "1," * MAX_TOKENS) == NO_ANSWER


def test_a_thousand_malformed_answers_are_read_or_refused() -> None:
    texts = malformed_outputs(1_000, seed=4)
    read = [read_output(text) for text in texts]
    assert all(is_sound(output) for output in read)
    assert any(isinstance(output, Unreadable) for output in read)
    assert any(isinstance(output, ModelOutput) for output in read)
    assert sum(len(text) > BIG - 1_000 for text in texts) == 5


@untimed
@given(st.text(st.sampled_from("{}[]\"'\\,:/*#u0dD8eE1-. \n\0\ud83dmt") | st.characters(), max_size=60))
@example('{"messages":["\\')
@example("{'")
@example("{/")
def test_nothing_makes_reading_fail(noise: str) -> None:
    assert is_sound(read_output(noise))
    assert is_sound(read_output('{"messages": ["a' + noise))
    assert is_sound(read_output('{"tool_calls": [{"name": ' + noise + "}]}"))


def test_the_same_seed_gives_the_same_malformed_answers() -> None:
    assert malformed_outputs(50, seed=1) == malformed_outputs(50, seed=1) != malformed_outputs(50, seed=2)
