"""What happens in a turn, event by event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sage_client.models.items import Item
from sage_client.models.memory import MemorySource
from sage_client.models.search import SearchResult
from sage_client.models.turns import CancelCause, StopReason, TokenUsage


class EventChannel(StrEnum):
    """What made an event."""

    TURN = "turn"
    """A turn that a caller asked for."""
    PROACTIVE = "proactive"
    """What an agent does while nobody asked, such as the run of a schedule."""
    UNKNOWN = "unknown"
    """A channel that this version of the client does not know. Never sent."""


class ToolOutcome(StrEnum):
    """How a tool call went. In all cases but OK nothing changed."""

    OK = "ok"
    """It did what was asked."""
    INVALID = "invalid"
    """The arguments were wrong, or the tool does not exist."""
    REFUSED = "refused"
    """A rule forbids it: a full or read-only block, a disabled tool, untrusted text, a cap of the turn."""
    FAILED = "failed"
    """The tool failed or ran out of time."""
    UNKNOWN = "unknown"
    """An outcome that this version of the client does not know."""


class HandoffCause(StrEnum):
    """Why another agent works."""

    MENTION = "mention"
    """The message names it: `@researcher find …`."""
    CONTINUITY = "continuity"
    """It answered last and the message continues that."""
    DELEGATION = "delegation"
    """The agent delegated to it."""
    FALLBACK = "fallback"
    """The agent that answered before does not fit any more; the main agent takes over."""
    UNKNOWN = "unknown"
    """A cause that this version of the client does not know."""


@dataclass(frozen=True, slots=True)
class EventHead:
    """What every event says of itself. The time is in UTC.

    - `event_id`: its number among all of the user's events; 0 for what is not stored, deltas and heartbeats.
    - `turn_id`, `agent_id`: whose it is. Empty for a heartbeat of a watch.
    - `step`: counted from 1; 0 for what belongs to no step.
    - `conversation_id`: empty in an agent's own thread.
    - `schedule_run_id`: empty if no schedule started the turn.
    """

    event_id: int
    turn_id: str
    step: int
    create_time: datetime
    agent_id: str
    conversation_id: str
    channel: EventChannel
    schedule_run_id: str


@dataclass(frozen=True, slots=True)
class TurnAccepted(EventHead):
    """The message is stored and the turn will run, whatever becomes of the stream. Always the first event.

    `input` is the user's message as it is stored, None for a turn without one. `queue_position` counts the
    turns of the same thread that run before this one.
    """

    input: Item | None
    agent: str
    queue_position: int
    request_id: str


@dataclass(frozen=True, slots=True)
class TurnTyping(EventHead):
    """The agent began to work on a step, and asks this model."""

    model: str


@dataclass(frozen=True, slots=True)
class TurnDelta(EventHead):
    """Some words of a message in the making: a preview. The TurnMessage that follows has the whole text.

    `index` is which message of the step, `offset` where `text` begins in it, in characters. Both begin again
    with 0 if a model is asked again, and words may be missing after a lost connection.
    """

    index: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class TurnMessage(EventHead):
    """A complete message of the agent, as it is stored. `index` counts the messages of the step from 0."""

    item: Item
    index: int

    @property
    def text(self) -> str:
        """What the agent said."""
        return self.item.text


@dataclass(frozen=True, slots=True)
class TurnToolCall(EventHead):
    """The agent calls a tool. `call_id` joins the result to the call; the arguments are a JSON object."""

    call_id: str
    name: str
    arguments_json: str
    item_id: str


@dataclass(frozen=True, slots=True)
class TurnToolResult(EventHead):
    """A tool answered; `output` is what the model reads. The answer and its effects were committed together.

    `block_id` is the block that it changed, `memory_id` the memory that it stored; empty if there is none.
    """

    call_id: str
    name: str
    outcome: ToolOutcome
    output: str
    item_id: str
    block_id: str
    memory_id: str
    duration: timedelta


@dataclass(frozen=True, slots=True)
class TurnRetrieval(EventHead):
    """Memory was searched: what was found, the best first, and why. `call_id` is empty if no tool asked."""

    call_id: str
    query: str
    sources: tuple[MemorySource, ...]
    results: tuple[SearchResult, ...]
    duration: timedelta


@dataclass(frozen=True, slots=True)
class TurnCompaction(EventHead):
    """Older messages were compacted into a summary or, if not `applied`, could not be. The originals stay.

    `from_seq` and `to_seq` are the first and last item that the summary covers. `reason` is why none could
    be made, in the words of `SageError.reason`.
    """

    applied: bool
    summary_id: str
    from_seq: int
    to_seq: int
    message_count: int
    tokens_before: int
    tokens_after: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class TurnHandoff(EventHead):
    """Another agent takes over or, in the turn `child_turn_id`, works on a part."""

    from_agent_id: str
    to_agent_id: str
    to_agent: str
    cause: HandoffCause
    child_turn_id: str


@dataclass(frozen=True, slots=True)
class TurnSilent(EventHead):
    """The agent chose to say nothing. A hidden item records it."""

    item_id: str


@dataclass(frozen=True, slots=True)
class TurnHeartbeat(EventHead):
    """Nothing new; the connection is alive. A watch that begins after `last_event_id` misses nothing."""

    last_event_id: int


@dataclass(frozen=True, slots=True)
class TurnDone(EventHead):
    """The turn is complete. The last event.

    `usage` is all that it cost. A search at least as fresh as `memory_token` sees all that it stored.
    """

    stop_reason: StopReason
    step_count: int
    message_count: int
    tool_call_count: int
    usage: TokenUsage
    memory_token: str
    duration: timedelta


@dataclass(frozen=True, slots=True)
class TurnFailed(EventHead):
    """The turn failed. The last event. What was committed before stays.

    `reason` is a name in the words of `SageError.reason`, `message` a sentence for people. If `retryable`,
    sending the message again can help, after `retry_delay` if that is known.
    """

    reason: str
    retryable: bool
    message: str
    retry_delay: timedelta | None
    step_count: int
    message_count: int
    usage: TokenUsage
    memory_token: str


@dataclass(frozen=True, slots=True)
class TurnCancelled(EventHead):
    """The turn was cancelled. The last event. What was committed before stays.

    `interrupted_by_turn_id` is the turn that interrupted it, empty for other causes.
    """

    cause: CancelCause
    interrupted_by_turn_id: str
    step_count: int
    message_count: int
    usage: TokenUsage
    memory_token: str


TurnEvent = (
    TurnAccepted
    | TurnTyping
    | TurnDelta
    | TurnMessage
    | TurnToolCall
    | TurnToolResult
    | TurnRetrieval
    | TurnCompaction
    | TurnHandoff
    | TurnSilent
    | TurnHeartbeat
    | TurnDone
    | TurnFailed
    | TurnCancelled
)
"""An event of a kind that this version of the client knows. It skips others."""
