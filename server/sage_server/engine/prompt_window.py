"""The context that a model gets: sections in a fixed order, under a strict budget of tokens.

Whatever somebody wrote is in it as JSON, one thing a line: no text can pass for another line, and what tools
bring back stands as data beside its provenance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from uuid import UUID
from zoneinfo import ZoneInfo

from sage_server.domain.agents import Agent
from sage_server.domain.blocks import Block
from sage_server.domain.conversations import Item, ItemKind
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.summaries import Summary
from sage_server.engine.instructions import ANSWER_FORMAT, DEFAULT_INSTRUCTION
from sage_server.engine.json_lines import json_line
from sage_server.engine.lru import Lru
from sage_server.engine.tools.toolbox import OfferedTool
from sage_server.ports.language_model import JsonSchema, PromptMessage, Role
from sage_server.ports.tokens import TokenCounter

_FORMAT_TOKENS = 16
"""What providers add around two messages, and a little more."""
_CUT = 0.9
"""Of the length that would just fit: the tokens are not spread evenly over a text."""
_LINE = 1
"""A line break, where it is a token of its own."""
_OURS = 100
"""Texts of the server's own whose count is kept: agents may be allowed different tools."""
_AROUND = 31
"""What a message's line has besides its text, in most cases."""
_ROLES = {
    ItemKind.USER: "user",
    ItemKind.ASSISTANT: "assistant",
    ItemKind.TOOL_CALL: "tool_call",
    ItemKind.TOOL_OUTPUT: "tool_output",
    ItemKind.REASONING: "reasoning",
    ItemKind.SYSTEM: "system",
}


class SectionKind(IntEnum):
    """The parts of a context, in their order."""

    INSTRUCTION = 1
    TIME = 2
    BLOCKS = 3
    MEMORY_METADATA = 4
    TOOLS = 5
    SUMMARY = 6
    ITEMS = 7
    INPUT = 8


_SYSTEM = frozenset(kind for kind in SectionKind if kind < SectionKind.ITEMS)


@dataclass(frozen=True)
class Section:
    """One part of a context, as the model gets it."""

    kind: SectionKind
    text: str
    token_count: int
    entry_count: int = 0


@dataclass(frozen=True)
class Known:
    """What the agent is told of its memory besides the blocks."""

    archival_count: int
    recall_count: int
    notes: Sequence[str] = ()
    agents: Mapping[UUID, str] | None = None
    """Names of agents that may have said something here."""


@dataclass(frozen=True)
class Older:
    """Items that cannot be in a context any more, because newer ones fill it: how many, and the tokens of
    their texts."""

    count: int
    tokens: int


NOTHING_OLDER = Older(0, 0)


@dataclass(frozen=True)
class Material:
    """All that a context is made of."""

    agent: Agent
    now: datetime
    blocks: Sequence[Block]
    known: Known
    tools: Sequence[OfferedTool]
    summary: Summary | None
    items: Sequence[Item]
    """After the summary and before this turn, in the order of the thread."""
    input: Sequence[Item]
    """The user's message, then what this turn has said, called and found so far."""
    first_time: bool
    older: Older = NOTHING_OLDER
    """What comes before `items` and after the summary."""


@dataclass(frozen=True)
class Window:
    """A context that fits."""

    sections: Sequence[Section]
    token_count: int
    """Of all sections, with what the format adds."""
    wanted_tokens: int
    """What it would be with every item, those that do not fit by their stored counts: above the threshold,
    older items are to be compacted."""
    left_out: int
    """How many of the oldest items are not in it."""

    @property
    def messages(self) -> list[PromptMessage]:
        """As a model is asked: the standing part, then the conversation."""
        system = "\n\n".join(one.text for one in self.sections if one.kind in _SYSTEM)
        user = "\n\n".join(one.text for one in self.sections if one.kind not in _SYSTEM)
        return [PromptMessage(Role.SYSTEM, system), PromptMessage(Role.USER, user)]


class PromptWindow:
    """Builds contexts."""

    def __init__(self, tokens: TokenCounter) -> None:
        self._tokens = tokens
        self._ours: Lru[str, int] = Lru(_OURS)

    def build(self, material: Material) -> Window:
        """The context. The newest items are kept, whole, as many as fit; nothing is left out of the middle.

        Raises CONTEXT_BUDGET_EXCEEDED if what must be there does not fit.
        """
        budget = material.agent.profile.max_context_tokens
        fixed = [section for section in self._fixed(material) if section.text]
        used = _FORMAT_TOKENS + sum(section.token_count + 2 * _LINE for section in fixed)
        asked = self._input(material, budget - used)
        used += asked.token_count + 2 * _LINE
        if used > budget:
            raise _too_large(used, budget)
        items, wanted = self._items(material, budget - used)
        sections = [section for section in (*fixed, items, asked) if section.text]
        spent = used + (items.token_count + 2 * _LINE if items.entry_count else 0)
        left_out = len(material.items) + material.older.count - items.entry_count
        return Window(sections, spent, used + wanted, left_out)

    def _fixed(self, material: Material) -> list[Section]:
        agent = material.agent
        instruction = f"{agent.profile.system_prompt or DEFAULT_INSTRUCTION}\n\n{ANSWER_FORMAT}"
        tools = [tool for tool in material.tools if tool.enabled]
        return [
            self._section(SectionKind.INSTRUCTION, instruction, ours=not agent.profile.system_prompt),
            self._section(SectionKind.TIME, _time(material)),
            self._section(SectionKind.BLOCKS, _blocks(material.blocks), len(material.blocks)),
            self._section(SectionKind.MEMORY_METADATA, _metadata(material)),
            self._section(SectionKind.TOOLS, _tools(tools), len(tools), ours=True),
            self._section(SectionKind.SUMMARY, _summary(material.summary)),
        ]

    def _input(self, material: Material, room: int) -> Section:
        """The message and this turn's steps so far. If those grow too large, the outputs of older steps are
        told by their length only, and then those of the newest step are cut."""
        title, agents, items = "Now:", material.known.agents, material.input
        lines = [_line(item, agents) for item in items]
        # Each line is counted once, and again only if it changes: outputs may be many and long.
        costs = [self._tokens.count(line) + _LINE for line in lines]
        over = self._tokens.count(title) + 3 * _LINE + sum(costs) - room
        newest = max((item.step for item in items), default=0)
        for last_resort in (False, True):
            for at, item in enumerate(items):
                if over > 0 and item.kind is ItemKind.TOOL_OUTPUT and (item.step == newest) == last_resort:
                    kept = int(len(item.text) * max(0.0, 1 - over / costs[at]) * _CUT) if last_resort else 0
                    lines[at] = _line(replace(item, text=_shortened(item.text, kept)), agents)
                    cost = self._tokens.count(lines[at]) + _LINE
                    over, costs[at] = over - costs[at] + cost, cost
        return self._section(SectionKind.INPUT, "\n".join([title, *lines]) if lines else "", len(lines))

    def _items(self, material: Material, room: int) -> tuple[Section, int]:
        """As many of the newest as fit, and the tokens that all of them would take."""
        title = "What was said before:"
        cost = self._tokens.count(title) + 3 * _LINE
        older = list(material.items)
        kept: deque[str] = deque()
        while older:
            line = _line(older[-1], material.known.agents)
            more = self._tokens.count(line) + _LINE
            if cost + more > room:
                break
            older.pop()
            kept.appendleft(line)
            cost += more
        wanted = cost + _estimated(older, material.older) if material.items else 0
        while True:
            text = "\n".join([title, *kept]) if kept else ""
            section = self._section(SectionKind.ITEMS, text, len(kept))
            # Lines that stand together may be more tokens than the same lines apart; hardly ever, but then.
            if section.token_count + 2 * _LINE <= room or not kept:
                return section, wanted
            kept.popleft()

    def _section(self, kind: SectionKind, text: str, entries: int = 0, *, ours: bool = False) -> Section:
        """`ours` is a text of the server's own, in most contexts the same, and nobody's secret."""
        count = self._ours.get(text) if ours else None
        if count is None:
            count = self._tokens.count(text)
            if ours:
                self._ours.put(text, count)
        return Section(kind, text, count, entries)


def _estimated(items: Sequence[Item], older: Older) -> int:
    """What items that do not fit would take; their stored counts spare the counting."""
    texts = sum(item.token_count for item in items) + older.tokens
    return texts + _AROUND * (len(items) + older.count)


def _shortened(text: str, kept: int) -> str:
    """The beginning of a text, and how much is missing."""
    return f"{text[:kept]}[left out: {len(text) - kept} characters]"


def _line(item: Item, agents: Mapping[UUID, str] | None) -> str:
    """An item as one line of JSON."""
    told: dict[str, object] = {
        "time": item.created_at.isoformat(timespec="minutes"),
        "role": _ROLES[item.kind],
    }
    if item.author:
        told["author"] = item.author
    if item.kind is ItemKind.ASSISTANT and item.agent_id is not None and agents and item.agent_id in agents:
        told["agent"] = agents[item.agent_id]
    if item.tool is not None:
        told["tool"] = item.tool.name
        if item.kind is ItemKind.TOOL_CALL:
            told["args"] = item.tool.arguments_json
    if item.text or item.kind is not ItemKind.TOOL_CALL:
        told["text"] = item.text
    return json_line(told)


def _time(material: Material) -> str:
    zone = material.agent.profile.time_zone or "UTC"
    local = material.now.astimezone(ZoneInfo(zone))
    first = "true" if material.first_time else "false"
    return f"It is {local:%A}, {local:%Y-%m-%d %H:%M} ({zone}). is_first_time_user: {first}"


def _blocks(blocks: Sequence[Block]) -> str:
    if not blocks:
        return ""
    lines = [
        json_line(
            {
                "label": block.label,
                "description": block.description,
                "chars": f"{len(block.value)}/{block.char_limit}",
                "read_only": block.read_only,
                "value": block.value,
            }
        )
        for block in blocks
    ]
    return "\n".join(["Your core memory, one block a line:", *lines])


def _metadata(material: Material) -> str:
    known, summary = material.known, material.summary
    compacted = "never" if summary is None else summary.created_at.isoformat(timespec="minutes")
    lines = [
        f"Archival memories: {known.archival_count}. Messages that can be searched: {known.recall_count}. "
        f"Last compaction: {compacted}."
    ]
    if material.agent.profile.preferences:
        chosen = dict(sorted(material.agent.profile.preferences.items()))
        lines.append(f"Preferences: {json_line(chosen)}")
    if known.notes:
        lines.append(f"Your notes of this conversation: {json_line(list(known.notes))}")
    return "\n".join(lines)


def _tools(tools: Sequence[OfferedTool]) -> str:
    if not tools:
        return "You have no tools."
    lines = [
        json_line({"name": tool.name, "description": tool.description, "args": _arguments(tool.schema)})
        for tool in tools
    ]
    return "\n".join(["Your tools, one a line:", *lines])


def _arguments(schema: JsonSchema) -> dict[str, str]:
    """What a model needs to know of a tool's arguments. The whole schema costs three times the tokens, and
    goes to the provider besides."""
    required = schema.get("required", ())
    return {
        name: f"{'' if name in required else 'optional '}{one['type']}: {one.get('description', '')}"
        for name, one in schema.get("properties", {}).items()
    }


def _summary(summary: Summary | None) -> str:
    if summary is None:
        return ""
    told = {"messages": summary.to_seq, "text": summary.text}
    return f"Summary of what was said before that:\n{json_line(told)}"


def _too_large(needed: int, budget: int) -> SageError:
    return SageError(
        Reason.CONTEXT_BUDGET_EXCEEDED,
        "Instruction, blocks, tools and input alone do not fit into the context.",
        metadata={"needed": str(needed), "max_context_tokens": str(budget)},
    )
