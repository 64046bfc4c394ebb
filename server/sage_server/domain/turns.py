"""Turns: one input, the steps that an agent takes for it, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from uuid import UUID

from sage_server.domain.errors import Reason, SageError


class TurnStatus(IntEnum):
    """Where a turn is. Stored as a number."""

    QUEUED = 1
    RUNNING = 2
    DONE = 3
    FAILED = 4
    CANCELLED = 5


ACTIVE = frozenset({TurnStatus.QUEUED, TurnStatus.RUNNING})


class TurnOrigin(IntEnum):
    """What started a turn. Stored as a number."""

    CHAT = 1
    RESPOND = 2
    SCHEDULE = 3
    DELEGATION = 4
    TASK = 5


BY_A_PERSON = frozenset({TurnOrigin.CHAT, TurnOrigin.RESPOND})
"""Turns that a person's own words started."""


class StopReason(IntEnum):
    """Why a turn ended without failing. Stored as a number."""

    ANSWERED = 1
    DONE_TOOL = 2
    SILENT = 3
    STEP_LIMIT = 4
    TIME_LIMIT = 5
    TOKEN_LIMIT = 6


class CancelCause(IntEnum):
    """Who cancelled a turn. Stored as a number."""

    CALLER = 1
    INTERRUPTED = 2
    PARENT = 3
    DELETED = 4
    OPERATOR = 5


class OnBusy(IntEnum):
    """What to do with a message while another turn runs in the same thread."""

    QUEUE = 1
    REJECT = 2
    INTERRUPT = 3


class ToolOutcome(IntEnum):
    """How a tool call went."""

    OK = 1
    INVALID = 2
    REFUSED = 3
    FAILED = 4


@dataclass(frozen=True)
class TokenUsage:
    """Tokens and calls, in the provider's own counts where it gives them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    embedding_tokens: int = 0
    model_calls: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.embedding_tokens + other.embedding_tokens,
            self.model_calls + other.model_calls,
        )

    @property
    def tokens(self) -> int:
        """Sent to and received from language models."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Turn:
    """A turn as it is stored. Nothing in it was written by a person or a model."""

    id: UUID
    agent_id: UUID
    conversation_id: UUID
    own_thread: bool
    """Whether the thread is the agent's own, whose id callers never see."""
    status: TurnStatus
    origin: TurnOrigin
    created_at: datetime
    store: bool = True
    """False keeps message and answer out of recall."""
    step: int = 0
    """The last step that was committed."""
    message_count: int = 0
    tool_call_count: int = 0
    memory_writes: int = 0
    tainted: bool = False
    """Whether the turn has read words that are neither the user's nor an agent's."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    memory_revision: int = 0
    """Of the last memory that it stored."""
    stop_reason: StopReason | None = None
    error_reason: Reason | None = None
    retryable: bool = False
    cancel_cause: CancelCause | None = None
    request_id: UUID | None = None
    input_item_id: UUID | None = None
    parent_turn_id: UUID | None = None
    first_event: int = 0
    last_event: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def active(self) -> bool:
        """Whether it waits or runs."""
        return self.status in ACTIVE


def turn_busy(turn_id: UUID) -> SageError:
    """Another turn runs or waits in the thread."""
    return SageError(
        Reason.TURN_BUSY, "Another turn runs in this thread.", metadata={"turn_id": str(turn_id)}
    )


def turn_queue_full(limit: int) -> SageError:
    """Too many turns wait in the thread."""
    return SageError(
        Reason.TURN_QUEUE_FULL,
        "Too many turns wait in this thread.",
        metadata={"limit": str(limit)},
        retry_after=timedelta(seconds=5),
    )


class LeaseLost(Exception):  # noqa: N818 (not an error of anybody's: another process has the turn now)
    """The turn is in other hands, or has ended: nothing of this try may be stored."""
