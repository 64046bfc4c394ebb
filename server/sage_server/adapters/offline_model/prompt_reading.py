"""Reading the prompt that every model gets. What of its form is relied on here is held by tests with the real
prompts: the titles of its parts, and that all that somebody wrote is JSON, one thing a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sage_server.ports.language_model import Prompt, Role

_BLOCKS = "Your core memory, one block a line:"
_TOOLS = "Your tools, one a line:"
_SUMMARY = "Summary of what was said before that:"
_BEFORE = "What was said before:"
_NOW = "Now:"
_TIME = re.compile(r"It is \w+, (\d{4}-\d\d-\d\d) \d\d:\d\d \(.*\)\. is_first_time_user: (?:true|false)")


@dataclass(frozen=True)
class Said:
    """A line of the conversation."""

    role: str
    text: str
    tool: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool was asked in this turn, and what it answered."""

    tool: str
    arguments: Mapping[str, object]
    output: str


@dataclass(frozen=True)
class CoreBlock:
    """A block of core memory."""

    label: str
    value: str
    read_only: bool


@dataclass(frozen=True)
class Situation:
    """What a step is asked about."""

    today: str
    """As 2026-11-18; empty if it is not known."""
    tools: frozenset[str]
    blocks: Sequence[CoreBlock]
    summarised: bool
    """Whether older messages are known by a summary only."""
    before: Sequence[Said]
    now: Sequence[Said]

    @property
    def message(self) -> str | None:
        """What the user says now."""
        return next((line.text for line in reversed(self.now) if line.role == "user"), None)

    @cached_property
    def tool_answers(self) -> list[ToolAnswer]:
        """What the tools of this turn have answered since."""
        found: list[ToolAnswer] = []
        arguments = ""
        for line in self.now:
            if line.role == "user":
                found.clear()
            elif line.role == "tool_call":
                arguments = line.arguments
            elif line.role == "tool_output":
                found.append(ToolAnswer(line.tool, _object(arguments) or {}, line.text))
        return found


def read_situation(prompt: Prompt) -> Situation:
    """What the prompt of a turn's step says. What is not there is empty."""
    system = _lines(prompt, Role.SYSTEM)
    user = _lines(prompt, Role.USER)
    times = [found[1] for line in system if (found := _TIME.fullmatch(line))]
    return Situation(
        today=times[-1] if times else "",
        tools=frozenset(str(tool.get("name", "")) for tool in _under(system, _TOOLS)),
        blocks=[
            CoreBlock(str(one.get("label", "")), str(one.get("value", "")), one.get("read_only") is not False)
            for one in _under(system, _BLOCKS)
        ],
        summarised=any(_under(system, _SUMMARY)),
        before=[_said(line) for line in _under(user, _BEFORE)],
        now=[_said(line) for line in _under(user, _NOW)],
    )


def json_lines(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The objects at the beginning of these lines, up to the first line that is none."""
    for line in lines:
        found = _object(line)
        if found is None:
            return
        yield found


def _under(lines: Sequence[str], title: str) -> list[dict[str, Any]]:
    """The objects below a title. The last such title is the one: an agent's own instruction, which may say
    anything, comes before all others."""
    at = [number for number, line in enumerate(lines) if line == title]
    return list(json_lines(lines[at[-1] + 1 :])) if at else []


def _said(line: dict[str, Any]) -> Said:
    return Said(*(str(line.get(key, "")) for key in ("role", "text", "tool", "args")))


def _lines(prompt: Prompt, role: Role) -> list[str]:
    return "\n".join(message.text for message in prompt.messages if message.role is role).split("\n")


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
