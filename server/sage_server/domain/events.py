"""What happens in turns, as it is told to callers.

A stored event has a number in the sequence of all of the user's events. Deltas and heartbeats have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from sage_server.domain.conversations import Item
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.memories import MemorySource
from sage_server.domain.search import Scored
from sage_server.domain.turns import (
    BY_A_PERSON,
    CancelCause,
    StopReason,
    TokenUsage,
    ToolOutcome,
    Turn,
)

EVENTS_KEPT = timedelta(hours=24)


class EventChannel(IntEnum):
    """What made an event. Stored as a number."""

    TURN = 1
    PROACTIVE = 2


class HandoffCause(IntEnum):
    """Why another agent works."""

    MENTION = 1
    CONTINUITY = 2
    DELEGATION = 3
    FALLBACK = 4


@dataclass(frozen=True)
class Accepted:
    """The message is stored and the turn will run."""

    input: Item | None
    agent: str
    request_id: UUID | None = None
    queue_position: int = 0
    """Handed out by the statement that stores the event, as the position of the item is."""


@dataclass(frozen=True)
class Typing:
    """The agent began to work on a step."""

    model: str


@dataclass(frozen=True)
class Said:
    """A complete message of the agent."""

    item: Item
    index: int


@dataclass(frozen=True)
class ToolCalled:
    """The agent calls a tool."""

    call_id: str
    name: str
    arguments_json: str
    item_id: UUID


@dataclass(frozen=True)
class ToolAnswered:
    """A tool answered."""

    call_id: str
    name: str
    outcome: ToolOutcome
    output: str
    item_id: UUID
    block_id: UUID | None = None
    memory_id: UUID | None = None
    duration: timedelta = timedelta(0)


@dataclass(frozen=True)
class Retrieved:
    """Memory was searched."""

    call_id: str
    query: str
    sources: tuple[MemorySource, ...]
    results: tuple[Scored, ...]
    duration: timedelta


@dataclass(frozen=True)
class Compacted:
    """Older messages became a summary, or could not."""

    applied: bool
    from_seq: int
    to_seq: int
    message_count: int
    tokens_before: int
    tokens_after: int
    summary_id: UUID | None = None
    reason: Reason | None = None


@dataclass(frozen=True)
class HandedOff:
    """Another agent takes over, or works on a part."""

    from_agent_id: UUID
    to_agent_id: UUID
    to_agent: str
    cause: HandoffCause
    child_turn_id: UUID | None = None


@dataclass(frozen=True)
class Silent:
    """The agent chose to say nothing."""

    item_id: UUID


@dataclass(frozen=True)
class Done:
    """The turn is complete."""

    stop_reason: StopReason
    step_count: int
    message_count: int
    tool_call_count: int
    usage: TokenUsage
    memory_revision: int
    duration: timedelta


@dataclass(frozen=True)
class Failed:
    """The turn failed."""

    reason: Reason
    retryable: bool
    step_count: int
    message_count: int
    usage: TokenUsage
    memory_revision: int
    retry_after: timedelta | None = None


@dataclass(frozen=True)
class Cancelled:
    """The turn was cancelled."""

    cause: CancelCause
    step_count: int
    message_count: int
    usage: TokenUsage
    memory_revision: int
    interrupted_by: UUID | None = None


@dataclass(frozen=True)
class Delta:
    """Some words of a message in the making. Not stored."""

    index: int
    offset: int
    text: str


@dataclass(frozen=True)
class Heartbeat:
    """Nothing new. Not stored."""

    last_event: int


@dataclass(frozen=True)
class Unknown:
    """Something that this version of the server does not know. Nobody is shown it."""


Payload: TypeAlias = (
    Accepted
    | Typing
    | Said
    | ToolCalled
    | ToolAnswered
    | Retrieved
    | Compacted
    | HandedOff
    | Silent
    | Done
    | Failed
    | Cancelled
)
"""What a stored event tells."""
Ephemeral: TypeAlias = Delta | Heartbeat
ENDS = (Done, Failed, Cancelled)
"""One of these is the last event of a turn."""


class EventKind(IntEnum):
    """What an event tells. Stored as a number, which is that of the field in `sage.v1.TurnEvent`."""

    ACCEPTED = 10
    TYPING = 11
    MESSAGE = 13
    TOOL_CALL = 14
    TOOL_RESULT = 15
    RETRIEVAL = 16
    COMPACTION = 17
    HANDOFF = 18
    SILENT = 20
    DONE = 22
    FAILED = 23
    CANCELLED = 24


KIND_OF: dict[type[Payload], EventKind] = {
    Accepted: EventKind.ACCEPTED,
    Typing: EventKind.TYPING,
    Said: EventKind.MESSAGE,
    ToolCalled: EventKind.TOOL_CALL,
    ToolAnswered: EventKind.TOOL_RESULT,
    Retrieved: EventKind.RETRIEVAL,
    Compacted: EventKind.COMPACTION,
    HandedOff: EventKind.HANDOFF,
    Silent: EventKind.SILENT,
    Done: EventKind.DONE,
    Failed: EventKind.FAILED,
    Cancelled: EventKind.CANCELLED,
}


class Told(NamedTuple):
    """Whose events they are: what all events of one turn share."""

    turn_id: UUID
    agent_id: UUID
    conversation_id: UUID | None
    """None in an agent's own thread."""
    channel: EventChannel


def told_of(turn: Turn) -> Told:
    """What all events of a turn share."""
    channel = EventChannel.TURN if turn.origin in BY_A_PERSON else EventChannel.PROACTIVE
    return Told(turn.id, turn.agent_id, None if turn.own_thread else turn.conversation_id, channel)


@dataclass(frozen=True)
class NewEvent:
    """An event to be stored; the store hands out its number."""

    id: UUID
    payload: Payload
    step: int
    item: int | None = None
    """Which of the items that are stored with it the payload shows, counted from 0: the store adds the
    item's position."""


@dataclass(frozen=True)
class Event:
    """An event as callers see it. `seq` is 0 for what is not stored."""

    seq: int
    turn_id: UUID | None
    step: int
    created_at: datetime
    agent_id: UUID | None
    conversation_id: UUID | None
    """None in an agent's own thread, and for a heartbeat."""
    channel: EventChannel
    payload: Payload | Ephemeral | Unknown

    @property
    def last(self) -> bool:
        """Whether its turn has ended with it."""
        return isinstance(self.payload, ENDS)


@dataclass(frozen=True)
class EventRange:
    """The numbers of a user's events that can still be read."""

    oldest: int
    """The first that was not removed by retention."""
    last: int
    """The last that was handed out; `oldest - 1` if there is none."""


def cursor_expired(oldest: int) -> SageError:
    """Events after the cursor are gone."""
    return SageError(
        Reason.EVENT_CURSOR_EXPIRED,
        "Events after this one are no longer kept.",
        metadata={"oldest_event_id": str(oldest)},
    )


def cursor_invalid(last: int) -> SageError:
    """The cursor lies in the future."""
    return SageError(
        Reason.EVENT_CURSOR_INVALID,
        "There is no such event yet.",
        metadata={"last_event_id": str(last)},
    )
