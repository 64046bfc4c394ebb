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
from sage_server.engine.tools.tool import (
    MAX_OUTPUT,
    MAX_STEP_OUTPUT,
    NOT_LED,
    Desk,
    Tool,
    ToolResult,
    refused,
    wrong,
)
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

    async def offered(
        self, user_id: UUID, agent: Agent, thread: Thread | None = None, *, store: bool = True
    ) -> list[OfferedTool]:
        """All tools by name, with whether the agent may call them now; in its own thread, or another.

        Where nothing may be remembered, because the thread is private or without `store`, memory cannot be
        changed.
        """
        off = {
            feature
            for feature in (Feature.TOOLS, Feature.WEB_ACCESS)
            if not await self._flags.is_on(user_id, feature)
        }
        kept = store and (thread is None or not thread.private)
        knows = thread is None or thread.memory is not ConversationMemory.NONE
        return [self._offered(tool, agent, off, kept=kept, knows=knows) for tool in self._tools.values()]

    async def call(self, call: RequestedCall, offered: Collection[OfferedTool], desk: Desk) -> ToolResult:
        """Do what a model asks for, if it may. Whatever is wrong with it is the answer."""
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(one.name for one in offered if one.enabled)
            return wrong(f"There is no such tool. The tools are: {known}.")
        entry = next(one for one in offered if one.name == call.name)
        if not entry.enabled:
            return refused("This tool is switched off.")
        if entry.requires_user and not desk.led_by_user(call.arguments_json):
            return refused(NOT_LED)
        result = _cut(await tool.call(call.arguments_json, desk), MAX_STEP_OUTPUT - desk.told)
        desk.told += len(result.output)
        return result

    def _offered(
        self, tool: AnyTool, agent: Agent, off: set[Feature], *, kept: bool, knows: bool
    ) -> OfferedTool:
        disabled_by = next((flag for flag in (Feature.TOOLS, tool.feature) if flag in off), None)
        allowed = agent.profile.allowed_tools
        chosen = allowed is None or tool.name in allowed
        reaches = not tool.of_memory or (knows and (kept or not tool.has_effects))
        return OfferedTool(
            name=tool.name,
            description=tool.description,
            schema=self._schemas[tool.name],
            enabled=disabled_by is None and chosen and reaches,
            disabled_by=disabled_by,
            requires_user=tool.name in self._requires_user,
            has_effects=tool.has_effects,
        )


def _cut(result: ToolResult, room: int) -> ToolResult:
    most = min(MAX_OUTPUT, max(room, 0))
    if len(result.output) <= most:
        return result
    return replace(result, output=result.output[: max(0, most - len(_CUT))] + _CUT)
