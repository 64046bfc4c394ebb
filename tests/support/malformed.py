"""Answers as models get them wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

BIG = 5_000_000
"""How long the longest ones are, in characters."""
BIG_EVERY = 200
"""One of so many is that long."""

_WORDS = (
    "tea",
    "green",
    "Anna's",
    "garden",
    'the "old" one',
    "naïve",
    "東京",
    "😀",
    "C:\\temp",
    "line\nbreak",
    "{x}",
)
_TOOLS = ("memory_append", "archival_insert", "conversation_search", "no_such_tool", "done")
_WRONG: tuple[object, ...] = (
    None,
    True,
    0,
    -1.5,
    "",
    "text",
    [],
    {},
    [[]],
    [None],
    [7],
    [{}],
    ["x", 3],
    {"a": 1},
)


def malformed_outputs(count: int, seed: int) -> list[str]:
    """So many answers, each broken in some way; the same ones for the same seed. Some can still be read.

    They may hold lone surrogates, which UTF-8 cannot: send them as JSON with escapes.
    """
    random = Random(seed)
    made = []
    for number in range(count):
        big, small = number % BIG_EVERY == BIG_EVERY - 1, number % len(_KINDS)
        make = _BIG_KINDS[number // BIG_EVERY % len(_BIG_KINDS)] if big else _KINDS[small]
        made.append(make(random))
    random.shuffle(made)
    return made


def sound_output(random: Random) -> str:
    """An answer as it should be."""
    calls = [{"name": random.choice(_TOOLS), "args": _arguments(random)} for _ in range(random.randrange(4))]
    answer = {"messages": [_text(random) for _ in range(random.randrange(4))], "tool_calls": calls}
    return json.dumps(answer, ensure_ascii=random.random() < 0.5, indent=random.choice((None, 2)))


def _text(random: Random) -> str:
    return " ".join(random.choice(_WORDS) for _ in range(random.randrange(8)))


def _arguments(random: Random) -> dict[str, object]:
    values = (_text(random), random.randrange(100), None, True, [_text(random)], {"deep": {"er": 1.5}})
    return {random.choice(("label", "text", "tags", "query")): random.choice(values) for _ in range(3)}


def _fenced(random: Random) -> str:
    fence = random.choice(("```", "```json\n", "```JSON ", "~~~\n", "````"))
    return fence + sound_output(random) + random.choice(("\n```", "```", ""))


def _within_prose(random: Random) -> str:
    before = random.choice(("Sure! ", "I'm {happy} to help: ", "{", '{"a": 1} ', "<think>{</think>", "[1] "))
    return (
        before + sound_output(random) + random.choice(("", " Anything else?", "}", '{"messages": ["twice"]}'))
    )


def _cut(random: Random) -> str:
    text = sound_output(random)
    return text[: random.randrange(len(text))]


def _hole(random: Random) -> str:
    text = sound_output(random)
    at = random.randrange(len(text))
    return text[:at] + text[at + random.randrange(1, 6) :]


def _noise(random: Random) -> str:
    text = sound_output(random)
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(text))
        text = text[:at] + random.choice("{}[]\",:'\\/#*`\0\ud83d\u2028 1eN") + text[at:]
    return text


def _wrong_types(random: Random) -> str:
    call = {"name": random.choice((*_WRONG, "done")), "args": random.choice(_WRONG)}
    calls = random.choice((*_WRONG, call, [call]))
    return json.dumps({"messages": random.choice(_WRONG), "tool_calls": calls})


def _other_values(random: Random) -> str:
    return json.dumps(random.choice((*_WRONG, {"answer": "hi"}, {"output": {"messages": ["hi"]}})))


def _loose(random: Random) -> str:
    text = sound_output(random)
    return random.choice(
        (
            text.replace("]", ",]").replace("}", ",}"),
            repr(json.loads(text)),
            text.replace("\\n", "\n"),
            text.replace(",", ", // why\n").replace(":", ": /* so */"),
            text.replace('"messages"', "messages"),
            text.replace('"', "\u201d"),
            text.replace('\\"', '"'),
            text + text,
        )
    )


def _deep(random: Random) -> str:
    depth = random.choice((90, 101, 1_000, 100_000))
    opened = random.choice(("[", '{"a":', '{"messages":[', '{"tool_calls":[{"args":'))
    value = opened * depth + random.choice(("", "1", '"x"'))
    shape = random.choice(("%s", '{"messages": %s}', '{"tool_calls": [{"name": "done", "args": {"a": %s}}]}'))
    closed = value + ("]" if opened == "[" else "}") * depth
    return shape % random.choice((value, closed))


def _surrogates(random: Random) -> str:
    odd = random.choice(
        ("\ud83d", "\\ud83d", "\\ude00", "\\ud83d\\ud83d\\ude00", "\0", "\\u0000", "\\ud8", "\ude00")
    )
    call = random.choice(("", f'{{"name": "done{odd}", "args": {{"k{odd}": "v{odd}"}}}}'))
    return f'{{"messages": ["a{odd}", "{odd}"], "tool_calls": [{call}]}}'


def _garbage(random: Random) -> str:
    letters = random.choice(('{}[]",:', "abc \n", "\\u00{}\"'", "".join(map(chr, range(256)))))
    return "".join(random.choices(letters, k=random.randrange(200)))


def _prose(random: Random) -> str:
    return random.choice(
        ("", " \n", "42", "I am sorry, but I can't.", "Tea, then. " * 50, "- one\n- two [1]")
    )


def _big(unit: str, *, before: str = "", after: str = "") -> Callable[[Random], str]:
    return lambda _: before + unit * (BIG // len(unit)) + after


_KINDS: tuple[Callable[[Random], str], ...] = (
    _fenced,
    _within_prose,
    _cut,
    _hole,
    _noise,
    _wrong_types,
    _other_values,
    _loose,
    _deep,
    _surrogates,
    _garbage,
    _prose,
)
_BIG_KINDS: tuple[Callable[[Random], str], ...] = (
    _big("many words ", before='{"messages": ["'),
    _big("{"),
    _big('"a",', before='{"messages": ['),
    _big("\\(", before='{"messages": ["', after='"]}'),
    _big('{"a":1}'),
    _big("1,", before='{"tool_calls": [{"name": "done", "args": {"a": [', after="1]}}]}"),
    _big("{//", after="\nx"),
    _big("just words "),
)
