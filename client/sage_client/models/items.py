"""Items: the entries of a conversation's history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Self


class ItemKind(StrEnum):
    """What an item is."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL_CALL = "tool_call"
    TOOL_OUTPUT = "tool_output"
    REASONING = "reasoning"
    SYSTEM = "system"
    UNKNOWN = "unknown"
    """A kind that this version of the client does not know. Never sent."""


class ItemOrder(StrEnum):
    """The order of a list of items."""

    OLDEST_FIRST = "oldest_first"
    """The default."""
    NEWEST_FIRST = "newest_first"


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """A call of a tool. `call_id` joins the output to its call, which alone has arguments."""

    call_id: str
    name: str
    arguments_json: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a conversation's history. It never changes; it can only be deleted.

    `author` is empty for the user and the agent themselves; `turn_id`, `step` and `agent_id` are empty
    (0) for what no turn produced; `tool` is None for all but tool calls and outputs.
    """

    id: str
    conversation_id: str
    seq: int
    kind: ItemKind
    text: str
    author: str
    create_time: datetime
    token_count: int
    turn_id: str
    step: int
    agent_id: str
    hidden: bool
    tool: ToolInvocation | None


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to append. `create_time` needs a time zone; None means now, by the server's clock."""

    kind: ItemKind
    text: str
    author: str = ""
    create_time: datetime | None = None
    hidden: bool = False
    tool: ToolInvocation | None = None

    @classmethod
    def user(cls, text: str, *, author: str = "", create_time: datetime | None = None) -> Self:
        """A person's message."""
        return cls(ItemKind.USER, text, author=author, create_time=create_time)

    @classmethod
    def assistant(cls, text: str, *, author: str = "", create_time: datetime | None = None) -> Self:
        """An agent's message."""
        return cls(ItemKind.ASSISTANT, text, author=author, create_time=create_time)

    @classmethod
    def system(cls, text: str, *, create_time: datetime | None = None) -> Self:
        """A notice of the system."""
        return cls(ItemKind.SYSTEM, text, create_time=create_time)

    @classmethod
    def tool_call(cls, call_id: str, name: str, arguments_json: str = "{}") -> Self:
        """An agent's call of a tool."""
        return cls(ItemKind.TOOL_CALL, "", tool=ToolInvocation(call_id, name, arguments_json))

    @classmethod
    def tool_output(cls, call_id: str, name: str, text: str) -> Self:
        """A tool's answer."""
        return cls(ItemKind.TOOL_OUTPUT, text, tool=ToolInvocation(call_id, name))


@dataclass(frozen=True, slots=True)
class AppendedItem:
    """What the server decided about an appended item. The caller has the rest."""

    id: str
    seq: int
    token_count: int
    create_time: datetime
