"""Rows of `conversations` and `items`: how they are sealed and opened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    DateTime,
    Integer,
    LargeBinary,
    SmallInteger,
    Uuid,
    bindparam,
    cast,
    func,
    select,
    true,
)
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine

from sage_server.adapters.postgres.database import Record
from sage_server.adapters.postgres.schema import cell, conversation_summaries, conversations, items
from sage_server.adapters.postgres.sealed_rows import open_text, seal_json, seal_text
from sage_server.domain.conversations import (
    Conversation,
    ConversationMemory,
    DraftItem,
    Item,
    ItemKind,
    ToolInvocation,
)
from sage_server.ports.keys import UserCipher

_TITLE = cell(conversations.c.title_enc)
_METADATA = cell(conversations.c.metadata_enc)
_AUTHOR = cell(items.c.author_enc)
_CONTENT = cell(items.c.content_enc)
_TOOL = cell(items.c.tool_enc)
_SUMMARY = cell(conversation_summaries.c.content_enc)

CONVERSATION_COLUMNS = (
    conversations.c.id,
    conversations.c.title_enc,
    conversations.c.metadata_enc,
    conversations.c.private,
    conversations.c.memory,
    conversations.c.message_count,
    conversations.c.total_tokens,
    conversations.c.last_item_at,
    conversations.c.active_at,
    conversations.c.created_at,
    conversations.c.updated_at,
    conversations.c.deleted_at,
    conversations.c.version,
    conversations.c.key_version,
)
_s = conversation_summaries.c
_latest = (
    select(
        _s.id,
        _s.content_enc,
        _s.key_version,
        cast(func.sum(_s.message_count).over(), BigInteger).label("summarized_count"),
    )
    .where(_s.user_id == conversations.c.user_id, _s.conversation_id == conversations.c.id)
    .order_by(_s.epoch.desc())
    .limit(1)
    .lateral("latest")
)
SHOWN_CONVERSATIONS = conversations.outerjoin(_latest, true())
"""Conversations, each with its newest summary: select SHOWN_COLUMNS from it."""
SHOWN_COLUMNS = (
    *(column for column in CONVERSATION_COLUMNS if column is not conversations.c.key_version),
    func.greatest(conversations.c.key_version, _latest.c.key_version).label("key_version"),
    _latest.c.id.label("summary_id"),
    _latest.c.content_enc.label("summary_enc"),
    _latest.c.summarized_count,
)
ITEM_COLUMNS = tuple(column for column in items.c if column is not items.c.user_id)

_ITEM_ARRAYS: dict[str, TypeEngine[Any]] = {
    "id": Uuid(),
    "kind": SmallInteger(),
    "author_enc": LargeBinary(),
    "content_enc": LargeBinary(),
    "tool_enc": LargeBinary(),
    "token_count": Integer(),
    "turn_id": Uuid(),
    "step": Integer(),
    "agent_id": Uuid(),
    "hidden": Boolean(),
    "recalled": Boolean(),
    "created_at": DateTime(timezone=True),
}
GIVEN = tuple(_ITEM_ARRAYS)
"""The columns of an item that a statement's parameters bring."""


def new_items() -> TableValuedAlias:
    """The items of a statement's parameters as a table, numbered from 1 in `n`.

    One array a column: a statement for any number of rows, prepared once.
    """
    arrays: list[ColumnElement[Any]] = [
        bindparam(f"item_{name}", type_=ARRAY(type_)) for name, type_ in _ITEM_ARRAYS.items()
    ]
    return func.unnest(*arrays).table_valued(*_ITEM_ARRAYS, with_ordinality="n", name="new").render_derived()


def sealed_items(cipher: UserCipher, drafts: Sequence[DraftItem]) -> dict[str, list[Any]]:
    """The parameters of `new_items`."""
    return {
        "item_id": [d.id for d in drafts],
        "item_kind": [d.kind for d in drafts],
        "item_author_enc": [seal_text(cipher, _AUTHOR, d.id, d.author) if d.author else None for d in drafts],
        "item_content_enc": [seal_text(cipher, _CONTENT, d.id, d.text) for d in drafts],
        "item_tool_enc": [_seal_tool(cipher, d.id, d.tool) for d in drafts],
        "item_token_count": [d.token_count for d in drafts],
        "item_turn_id": [d.turn_id for d in drafts],
        "item_step": [d.step for d in drafts],
        "item_agent_id": [d.agent_id for d in drafts],
        "item_hidden": [d.hidden for d in drafts],
        "item_recalled": [d.recalled for d in drafts],
        "item_created_at": [d.created_at for d in drafts],
    }


def sealed_conversation(cipher: UserCipher, conversation: Conversation) -> dict[str, Any]:
    """The sealed columns and their key version."""
    row_id = conversation.id
    return {
        "title_enc": seal_text(cipher, _TITLE, row_id, conversation.title),
        "metadata_enc": seal_json(cipher, _METADATA, row_id, dict(conversation.metadata)),
        "key_version": cipher.key_version,
    }


def opened_conversation(cipher: UserCipher, row: Record) -> Conversation:
    """A row of SHOWN_COLUMNS, or of CONVERSATION_COLUMNS for one whose summary does not matter."""
    row_id: UUID = row["id"]
    summary_id = row.get("summary_id")
    return Conversation(
        id=row_id,
        title=open_text(cipher, _TITLE, row_id, row["title_enc"]),
        metadata=json.loads(cipher.open(_METADATA, row_id, row["metadata_enc"])),
        private=row["private"],
        memory=ConversationMemory(row["memory"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        version=row["version"],
        message_count=row["message_count"],
        total_tokens=row["total_tokens"],
        last_item_at=row["last_item_at"],
        deleted_at=row["deleted_at"],
        summary="" if summary_id is None else open_text(cipher, _SUMMARY, summary_id, row["summary_enc"]),
        summarized_count=0 if summary_id is None else row["summarized_count"],
    )


def opened_item(cipher: UserCipher, row: Record) -> Item:
    """A row of ITEM_COLUMNS."""
    row_id: UUID = row["id"]
    author, tool = row["author_enc"], row["tool_enc"]
    return Item(
        id=row_id,
        conversation_id=row["conversation_id"],
        seq=row["seq"],
        kind=ItemKind(row["kind"]),
        text=open_text(cipher, _CONTENT, row_id, row["content_enc"]),
        author="" if author is None else open_text(cipher, _AUTHOR, row_id, author),
        token_count=row["token_count"],
        created_at=row["created_at"],
        hidden=row["hidden"],
        tool=None if tool is None else ToolInvocation(*json.loads(cipher.open(_TOOL, row_id, tool))),
        turn_id=row["turn_id"],
        step=row["step"],
        agent_id=row["agent_id"],
        recalled=row["recalled"],
    )


def conversation_answer(conversation: Conversation) -> dict[str, Any]:
    """A conversation just created, as the answer kept for its request id."""
    return {
        "id": str(conversation.id),
        "title": conversation.title,
        "metadata": dict(conversation.metadata),
        "private": conversation.private,
        "memory": int(conversation.memory),
        "message_count": conversation.message_count,
        "total_tokens": conversation.total_tokens,
        "last_item_at": conversation.last_item_at and conversation.last_item_at.isoformat(),
        "created_at": conversation.created_at.isoformat(),
    }


def answered_conversation(answer: dict[str, Any]) -> Conversation:
    """The conversation of a kept answer."""
    created_at = datetime.fromisoformat(answer["created_at"])
    last_item_at = answer["last_item_at"]
    return Conversation(
        id=UUID(answer["id"]),
        title=answer["title"],
        metadata=answer["metadata"],
        private=answer["private"],
        memory=ConversationMemory(answer["memory"]),
        message_count=answer["message_count"],
        total_tokens=answer["total_tokens"],
        last_item_at=None if last_item_at is None else datetime.fromisoformat(last_item_at),
        created_at=created_at,
        updated_at=created_at,
    )


def _seal_tool(cipher: UserCipher, row_id: UUID, tool: ToolInvocation | None) -> bytes | None:
    if tool is None:
        return None
    return seal_json(cipher, _TOOL, row_id, [tool.call_id, tool.name, tool.arguments_json])
