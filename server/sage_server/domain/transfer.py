"""The lines of an export, as JSON. What is written can be read back; what is read is checked first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from sage_server.domain.conversations import (
    Conversation,
    ConversationMemory,
    Item,
    ItemKind,
    NewItem,
    ToolInvocation,
)

E = TypeVar("E", bound=IntEnum)

MAX_TITLE = 512
MAX_TEXT = 100_000
MAX_SHORT = 128
MAX_PAIRS = 32
MAX_KEY = 64
MAX_VALUE = 512


@dataclass(frozen=True)
class ConversationLine:
    """A conversation to import."""

    conversation: Conversation


@dataclass(frozen=True)
class ItemLine:
    """An item to import, with the id that it had."""

    id: UUID
    conversation_id: UUID
    item: NewItem


Line: TypeAlias = ConversationLine | ItemLine


class LineError(Exception):
    """What is wrong with a line. Never quotes the line."""


def conversation_line(conversation: Conversation) -> bytes:
    """A conversation as one line."""
    return _line(
        {
            "type": "conversation",
            "id": str(conversation.id),
            "title": conversation.title,
            "metadata": dict(conversation.metadata),
            "private": conversation.private,
            "memory": conversation.memory.name.lower(),
            "create_time": conversation.created_at.isoformat(),
            "update_time": conversation.updated_at.isoformat(),
            "delete_time": conversation.deleted_at.isoformat() if conversation.deleted_at else None,
        }
    )


def item_line(item: Item) -> bytes:
    """An item as one line."""
    line: dict[str, Any] = {
        "type": "item",
        "id": str(item.id),
        "conversation_id": str(item.conversation_id),
        "kind": item.kind.name.lower(),
        "text": item.text,
        "author": item.author,
        "create_time": item.created_at.isoformat(),
        "token_count": item.token_count,
        "hidden": item.hidden,
    }
    if item.tool is not None:
        line["tool"] = {
            "call_id": item.tool.call_id,
            "name": item.tool.name,
            "arguments_json": item.tool.arguments_json,
        }
    if not item.recalled:
        line["recalled"] = False
    return _line(line)


def parse_line(raw: bytes) -> Line:
    """Read one line, or raise LineError."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):  # ValueError alone: a number of thousands of digits
        raise LineError("is not a line of an export: it is not JSON") from None
    if not isinstance(value, dict):
        raise LineError("is not a line of an export: it is not a JSON object")
    match value.get("type"):
        case "conversation":
            return ConversationLine(_conversation(value))
        case "item":
            return _item(value)
    raise LineError('is not a line of an export: it has no `type` of "conversation" or "item"')


def _conversation(value: Mapping[str, Any]) -> Conversation:
    metadata = value.get("metadata", {})
    if not isinstance(metadata, dict) or len(metadata) > MAX_PAIRS or "" in metadata:
        raise LineError(f"`metadata` must be an object of at most {MAX_PAIRS} pairs")
    pairs = {
        _checked("metadata", k, MAX_KEY): _checked("metadata", v, MAX_VALUE) for k, v in metadata.items()
    }
    created_at = _time(value, "create_time")
    if created_at is None:
        raise LineError("`create_time` is missing")
    return Conversation(
        id=_uuid(value, "id"),
        title=_text(value, "title", MAX_TITLE),
        metadata=pairs,
        private=_bool(value, "private"),
        memory=_enum(value, "memory", ConversationMemory, "agent"),
        created_at=created_at,
        updated_at=_time(value, "update_time") or created_at,
        deleted_at=_time(value, "delete_time"),
    )


def _item(value: Mapping[str, Any]) -> ItemLine:
    tool = value.get("tool")
    if tool is not None and not isinstance(tool, dict):
        raise LineError("`tool` must be an object")
    item = NewItem(
        kind=_enum(value, "kind", ItemKind, None),
        text=_text(value, "text", MAX_TEXT),
        author=_text(value, "author", MAX_SHORT),
        created_at=_time(value, "create_time"),
        hidden=_bool(value, "hidden"),
        tool=None
        if tool is None
        else ToolInvocation(
            _text(tool, "call_id", MAX_SHORT),
            _text(tool, "name", MAX_SHORT),
            _text(tool, "arguments_json", MAX_TEXT),
        ),
        recalled=_bool(value, "recalled", default=True),
    )
    return ItemLine(_uuid(value, "id"), _uuid(value, "conversation_id"), item)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _text(value: Mapping[str, Any], name: str, limit: int) -> str:
    return _checked(name, value.get(name, ""), limit)


def _checked(name: str, text: object, limit: int) -> str:
    if not isinstance(text, str) or len(text) > limit or "\0" in text:
        raise LineError(f"`{name}` must be text of at most {limit} characters without NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LineError(f"`{name}` is not valid Unicode") from None
    return text


def _uuid(value: Mapping[str, Any], name: str) -> UUID:
    try:
        return UUID(value[name])
    except (KeyError, ValueError, AttributeError, TypeError):
        raise LineError(f"`{name}` must be a UUID") from None


def _bool(value: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    found = value.get(name, default)
    if not isinstance(found, bool):
        raise LineError(f"`{name}` must be true or false")
    return found


def _time(value: Mapping[str, Any], name: str) -> datetime | None:
    found = value.get(name)
    if found is None:
        return None
    try:
        parsed = datetime.fromisoformat(found)
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        # Before the epoch no UUIDv7 and no Timestamp of the contract can stand for it.
        if parsed.timestamp() < 0:
            raise ValueError
        return parsed.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise LineError(f"`{name}` must be an ISO 8601 time after 1970") from None


def _enum(value: Mapping[str, Any], name: str, kinds: type[E], default: str | None) -> E:
    found = value.get(name, default)
    for kind in kinds:
        if kind.name.lower() == found:
            return kind
    known = ", ".join(kind.name.lower() for kind in kinds)
    raise LineError(f"`{name}` must be one of {known}")
