"""Conversations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ConversationMemory(StrEnum):
    """What a thread knows of the user's memory."""

    NONE = "none"
    """Only what was said in the thread itself."""
    AGENT = "agent"
    """What the main agent knows. The default."""
    UNKNOWN = "unknown"
    """A mode that this version of the client does not know. Never sent."""


class ConversationOrder(StrEnum):
    """The order of a list of conversations."""

    CREATED = "created"
    """By creation, the newest first. The default."""
    ACTIVE = "active"
    """By the last item, the latest first."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A thread as it was when it was read. All times are in UTC.

    `last_item_time` is None while the thread has never had an item, `delete_time` while it is live.
    `etag` changes with title, metadata, memory and deletion, not with new items. `summary` is the newest
    one, empty while there is none; all summaries together cover `summarized_count` items.
    """

    id: str
    title: str
    metadata: Mapping[str, str]
    private: bool
    memory: ConversationMemory
    message_count: int
    total_tokens: int
    last_item_time: datetime | None
    create_time: datetime
    update_time: datetime
    delete_time: datetime | None
    etag: str
    summary: str
    summarized_count: int


@dataclass(frozen=True, slots=True)
class BatchDeleted:
    """How many conversations a batch deleted, and under which ids there was none to delete."""

    deleted_count: int
    not_found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A summary of a stretch of a conversation, its first and last item included.

    `previous_id` is the summary that it continues, empty for the first one. `token_count` is the length of
    `text`.
    """

    id: str
    conversation_id: str
    from_seq: int
    to_seq: int
    message_count: int
    text: str
    token_count: int
    previous_id: str
    create_time: datetime


@dataclass(frozen=True, slots=True)
class Summarized:
    """The newest summary, None if there is none. `applied` is False if this call did not write it."""

    summary: ConversationSummary | None
    applied: bool
