"""The tools of this server, and which of them an agent may call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import UUID

from sage_server.domain.agents import Agent
from sage_server.domain.conversations import ConversationMemory
from sage_server.domain.flags import Feature
from sage_server.domain.model_output import RequestedCall
from sage_server.engine.tools.tool import MAX_OUTPUT, Desk, Tool, ToolResult, refused, wrong
from sage_server.ports.flags import Flags
from sage_server.ports.language_model import JsonSchema
from sage_server.ports.transcripts import Thread

_CUT = "\n[cut off]"
AnyTool: TypeAlias = Tool[Any]


@dataclass(frozen=True)
class OfferedTool:
    """A tool as it is shown to a model or a caller."""

    name: str
    description: str
    schema: JsonSchema
    enabled: bool
    disabled_by: Feature | None
    """The flag that switches it off, if one does."""
    requires_user: bool
    has_effects: bool


class Toolbox:
    """Every tool. `requires_user` names those that only the user's own words may lead to."""

    def __init__(self, tools: Sequence[AnyTool], flags: Flags, requires_user: Collection[str] = ()) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._schemas = {name: tool.schema for name, tool in self._tools.items()}
        self._flags = flags
        self._requires_user = frozenset(requires_user)

    @property
    def names(self) -> frozenset[str]:
        """Of all tools."""
        return frozenset(self._tools)

    async def offered(self, user_id: UUID, agent: Agent, thread: Thread | None = None) -> list[OfferedTool]:
        """All tools by name, with whether the agent may call them now; in its own thread, or another."""
        off = {
            feature
            for feature in (Feature.TOOLS, Feature.WEB_ACCESS)
            if not await self._flags.is_on(user_id, feature)
        }
        return [self._offered(tool, agent, thread, off) for tool in self._tools.values()]

    async def call(self, call: RequestedCall, offered: Collection[OfferedTool], desk: Desk) -> ToolResult:
        """Do what a model asks for, if it may. Whatever is wrong with it is the answer."""
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(one.name for one in offered if one.enabled)
            return wrong(f"There is no such tool. The tools are: {known}.")
        entry = next(one for one in offered if one.name == call.name)
        if not entry.enabled:
            return refused("This tool is switched off.")
        if entry.requires_user and not desk.led_by_user:
            return refused("Only the user's own words may lead to this, and this turn has read others'.")
        result = await tool.call(call.arguments_json, desk)
        return result if len(result.output) <= MAX_OUTPUT else _cut(result)

    def _offered(self, tool: AnyTool, agent: Agent, thread: Thread | None, off: set[Feature]) -> OfferedTool:
        disabled_by = next((flag for flag in (Feature.TOOLS, tool.feature) if flag in off), None)
        allowed = agent.profile.allowed_tools
        chosen = allowed is None or tool.name in allowed
        knows_only_itself = thread is not None and thread.memory is ConversationMemory.NONE
        return OfferedTool(
            name=tool.name,
            description=tool.description,
            schema=self._schemas[tool.name],
            enabled=disabled_by is None and chosen and not (knows_only_itself and tool.of_memory),
            disabled_by=disabled_by,
            requires_user=tool.name in self._requires_user,
            has_effects=tool.has_effects,
        )


def _cut(result: ToolResult) -> ToolResult:
    return replace(result, output=result.output[: MAX_OUTPUT - len(_CUT)] + _CUT)
