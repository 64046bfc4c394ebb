"""Threads and their items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from uuid import UUID

from sage_server.domain.errors import Reason, SageError, etag_mismatch, invalid

CLOCK_TOLERANCE = timedelta(days=1)
"""How far into the future an appended item may be dated."""


class ConversationKind(IntEnum):
    """Whose the thread is. Stored as a number."""

    THREAD = 1
    AGENT = 2


class ConversationMemory(IntEnum):
    """What the thread knows of the user's memory. Stored as a number."""

    NONE = 1
    AGENT = 2


class ConversationOrder(IntEnum):
    """The order of a list of conversations, newest first."""

    CREATED = 1
    ACTIVE = 2


class ItemKind(IntEnum):
    """What an item is. Stored as a number."""

    USER = 1
    ASSISTANT = 2
    TOOL_CALL = 3
    TOOL_OUTPUT = 4
    REASONING = 5
    SYSTEM = 6


@dataclass(frozen=True)
class Conversation:
    """A thread."""

    id: UUID
    title: str
    metadata: Mapping[str, str]
    private: bool
    memory: ConversationMemory
    created_at: datetime
    updated_at: datetime
    version: int = 1
    message_count: int = 0
    total_tokens: int = 0
    last_item_at: datetime | None = None
    deleted_at: datetime | None = None
    summary: str = ""
    """The newest summary of its older part; empty if there is none."""
    summarized_count: int = 0
    """How many items that summary and those before it cover."""

    @property
    def etag(self) -> str:
        """Changes with everything that an update can change."""
        return f"v{self.version}"

    def check_etag(self, etag: str) -> None:
        """Refuse a caller who read an older version. An empty etag asks for no check."""
        if etag and etag != self.etag:
            raise etag_mismatch("conversation")


@dataclass(frozen=True)
class ConversationChange:
    """New values for the fields that an update names; None leaves a field as it is."""

    title: str | None = None
    metadata: Mapping[str, str] | None = None
    memory: ConversationMemory | None = None


@dataclass(frozen=True)
class ToolInvocation:
    """A call of a tool."""

    call_id: str
    name: str
    arguments_json: str


@dataclass(frozen=True)
class Item:
    """One entry of a conversation's history."""

    id: UUID
    conversation_id: UUID
    seq: int
    kind: ItemKind
    text: str
    author: str
    token_count: int
    created_at: datetime
    hidden: bool = False
    tool: ToolInvocation | None = None
    turn_id: UUID | None = None
    step: int = 0
    agent_id: UUID | None = None
    recalled: bool = True
    """False keeps it out of memory: search never knows it."""


@dataclass(frozen=True)
class NewItem:
    """An item as a caller gives it: the server adds id, position and token count."""

    kind: ItemKind
    text: str
    author: str = ""
    created_at: datetime | None = None
    hidden: bool = False
    tool: ToolInvocation | None = None
    recalled: bool = True


@dataclass(frozen=True)
class DraftItem:
    """An item that lacks only its position, which the store hands out."""

    id: UUID
    kind: ItemKind
    text: str
    author: str
    token_count: int
    created_at: datetime
    hidden: bool = False
    tool: ToolInvocation | None = None
    turn_id: UUID | None = None
    step: int = 0
    agent_id: UUID | None = None
    recalled: bool = True


def draft(item: NewItem, item_id: UUID, token_count: int, now: datetime) -> DraftItem:
    """What a caller gave, with what the server adds."""
    return DraftItem(
        id=item_id,
        kind=item.kind,
        text=item.text,
        author=item.author,
        token_count=token_count,
        created_at=item.created_at or now,
        hidden=item.hidden,
        tool=item.tool,
        recalled=item.recalled,
    )


@dataclass(frozen=True)
class AppendedItem:
    """What was decided about an appended item."""

    id: UUID
    seq: int
    token_count: int
    created_at: datetime


@dataclass(frozen=True)
class Fork:
    """A copy to make of a conversation."""

    source_id: UUID
    new_id: UUID
    up_to_seq: int | None
    """The last position to copy; None copies everything."""
    title: str | None
    """None keeps the original's."""
    created_at: datetime


@dataclass(frozen=True)
class ItemFilter:
    """Which items of a conversation to list, and in which order."""

    kinds: frozenset[ItemKind] = field(default_factory=frozenset)
    """Empty means every kind."""
    show_hidden: bool = False
    newest_first: bool = False


def check_new_items(items: Sequence[NewItem], now: datetime) -> None:
    """Refuse what the constraints of the contract cannot express."""
    for index, item in enumerate(items):
        problem = _problem(item, now)
        if problem:
            raise invalid(f"items[{index}].{problem[0]}", problem[1])


def check_times(conversation: Conversation, now: datetime) -> None:
    """Refuse an imported conversation that is dated into the future."""
    times = (conversation.created_at, conversation.updated_at, conversation.deleted_at)
    if any(at is not None and at > now + CLOCK_TOLERANCE for at in times):
        raise invalid("create_time", "times must not be more than one day in the future")


def _problem(item: NewItem, now: datetime) -> tuple[str, str] | None:
    if item.created_at is not None and item.created_at > now + CLOCK_TOLERANCE:
        return "create_time", "must not be more than one day in the future"
    if item.tool is not None and item.kind not in (ItemKind.TOOL_CALL, ItemKind.TOOL_OUTPUT):
        return "tool", "must not be set for this kind of item"
    if item.tool is None and item.kind is ItemKind.TOOL_CALL:
        return "tool", "must be set for a tool call"
    return None


def conversation_deleted() -> SageError:
    """The thread takes nothing while it is deleted."""
    return SageError(Reason.CONVERSATION_DELETED, "The conversation is deleted. Undelete it first.")


def conversation_not_deleted() -> SageError:
    """There is nothing to undelete."""
    return SageError(Reason.CONVERSATION_NOT_DELETED, "The conversation is not deleted.")
