"""Rows of `turns`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sage_server.adapters.postgres.database import Record
from sage_server.adapters.postgres.schema import turns
from sage_server.domain.errors import Reason
from sage_server.domain.turns import (
    CancelCause,
    StopReason,
    TokenUsage,
    Turn,
    TurnOrigin,
    TurnStatus,
)

_LEASE = {"lease_owner", "lease_until", "fence"}
TURN_COLUMNS = tuple(column for column in turns.c if column.name not in {"user_id", *_LEASE})
USAGE = ("prompt_tokens", "completion_tokens", "embedding_tokens", "model_calls")


def turn_of(row: Record) -> Turn:
    """A row of TURN_COLUMNS."""
    reason, stop, cause = row["error_reason"], row["stop_reason"], row["cancel_cause"]
    return Turn(
        id=row["id"],
        agent_id=row["agent_id"],
        conversation_id=row["conversation_id"],
        own_thread=row["own_thread"],
        status=TurnStatus(row["status"]),
        origin=TurnOrigin(row["origin"]),
        created_at=row["created_at"],
        store=row["store"],
        step=row["step"],
        message_count=row["message_count"],
        tool_call_count=row["tool_call_count"],
        memory_writes=row["memory_writes"],
        tainted=row["tainted"],
        usage=TokenUsage(*(row[name] for name in USAGE)),
        memory_revision=row["memory_revision"],
        stop_reason=None if stop is None else StopReason(stop),
        error_reason=None if reason is None else Reason(reason),
        retryable=row["retryable"],
        cancel_cause=None if cause is None else CancelCause(cause),
        request_id=row["request_id"],
        input_item_id=row["input_item_id"],
        parent_turn_id=row["parent_turn_id"],
        first_event=row["first_event"],
        last_event=row["last_event"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )


def new_turn_values(user_id: UUID, turn: Turn, now: datetime) -> dict[str, Any]:
    """The parameters of a new turn, all but what the statement decides itself."""
    return {
        "user_id": user_id,
        "turn_id": turn.id,
        "conversation_id": turn.conversation_id,
        "agent_id": turn.agent_id,
        "own_thread": turn.own_thread,
        "origin": turn.origin,
        "store": turn.store,
        "turn_request_id": turn.request_id,
        "input_item_id": turn.input_item_id,
        "parent_turn_id": turn.parent_turn_id,
        "now": now,
    }
