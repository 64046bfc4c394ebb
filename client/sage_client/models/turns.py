"""Turns: one message to an agent, the steps that it takes for it, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class OnBusy(StrEnum):
    """What to do with a message while another turn runs in the same thread."""

    QUEUE = "queue"
    """Accept it and run its turn after the ones before it, in order. The default."""
    REJECT = "reject"
    """Accept nothing: Aborted with the reason TURN_BUSY."""
    INTERRUPT = "interrupt"
    """Cancel the running and the waiting turns of the thread first. What they committed stays."""


class TurnStatus(StrEnum):
    """Where a turn is."""

    QUEUED = "queued"
    """Accepted; waits for the turns before it."""
    RUNNING = "running"
    """Runs, or will be taken over by another replica."""
    DONE = "done"
    """Ended well."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """A status that this version of the client does not know. Never sent."""


class TurnOrigin(StrEnum):
    """What started a turn."""

    CHAT = "chat"
    """A message to an agent."""
    RESPOND = "respond"
    """A message in a conversation."""
    SCHEDULE = "schedule"
    """A run of a schedule."""
    DELEGATION = "delegation"
    """Another agent."""
    TASK = "task"
    """A task of a task graph."""
    UNKNOWN = "unknown"
    """An origin that this version of the client does not know. Never sent."""


class StopReason(StrEnum):
    """Why a turn ended without failing."""

    ANSWERED = "answered"
    """The model answered without calling a tool."""
    DONE_TOOL = "done_tool"
    """The model called the tool `done`."""
    SILENT = "silent"
    """The agent chose to say nothing."""
    STEP_LIMIT = "step_limit"
    """What it said and did up to its last step stays. So with the other limits."""
    TIME_LIMIT = "time_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 -- no secret
    UNKNOWN = "unknown"
    """A reason that this version of the client does not know."""


class CancelCause(StrEnum):
    """Who cancelled a turn."""

    CALLER = "caller"
    """A caller, who asked for it."""
    INTERRUPTED = "interrupted"
    """Another message, with OnBusy.INTERRUPT."""
    PARENT = "parent"
    """The turn, task graph or schedule run that it belongs to was cancelled."""
    DELETED = "deleted"
    """Its conversation, agent or schedule was deleted."""
    OPERATOR = "operator"
    """An operator switched turns off."""
    UNKNOWN = "unknown"
    """A cause that this version of the client does not know."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What something cost, in the provider's own counts where it gives them.

    `prompt_tokens` were sent to language models, `completion_tokens` came from them, `embedding_tokens` were
    sent to embedding models. `model_calls` counts corrections and summaries too.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    embedding_tokens: int = 0
    model_calls: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn as it was when it was read. All times are in UTC.

    `conversation_id` is empty in an agent's own thread. `step` is the last one that was committed. Of
    `stop_reason`, `error_reason` (in the words of `SageError.reason`, with `retryable`) and `cancel_cause`
    only that of its status is set. `start_time` is None while it waits, `end_time` until it ends. Ids of
    what it does not belong to are empty. A search at least as fresh as `memory_token` sees all that it
    stored so far.
    """

    id: str
    agent_id: str
    agent: str
    conversation_id: str
    status: TurnStatus
    origin: TurnOrigin
    step: int
    message_count: int
    tool_call_count: int
    usage: TokenUsage
    stop_reason: StopReason | None
    error_reason: str | None
    retryable: bool
    cancel_cause: CancelCause | None
    request_id: str
    input_item_id: str
    parent_turn_id: str
    schedule_run_id: str
    task_graph_id: str
    first_event_id: int
    last_event_id: int
    create_time: datetime
    start_time: datetime | None
    end_time: datetime | None
    memory_token: str
