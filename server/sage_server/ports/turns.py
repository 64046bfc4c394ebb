"""The store of turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeAlias
from uuid import UUID

from sage_server.domain.blocks import Block, BlockActor
from sage_server.domain.conversations import DraftItem
from sage_server.domain.errors import Reason
from sage_server.domain.events import Event, NewEvent
from sage_server.domain.idempotency import Once
from sage_server.domain.paging import Page
from sage_server.domain.turns import CancelCause, OnBusy, StopReason, TokenUsage, Turn, TurnOrigin, TurnStatus
from sage_server.domain.usage import UsageRecord
from sage_server.ports.memories import NewMemory, Space


@dataclass(frozen=True)
class Lease:
    """A turn in this process's hands. Whoever takes it over gets a higher fence."""

    user_id: UUID
    turn: Turn
    fence: int
    thread_end: int | None = None
    """The last position in the thread, if nobody but this turn has said anything there since it was accepted,
    and so no other turn waits there. None if that is not known."""


@dataclass(frozen=True)
class NewTurn:
    """A turn to be accepted, with its message."""

    turn: Turn
    input: DraftItem
    told: Sequence[NewEvent]
    """`accepted`, which shows the input, and what else is told of it at once."""
    told_when_running: Sequence[NewEvent]
    """What is told besides if the turn runs at once."""
    on_busy: OnBusy
    most_waiting: int


@dataclass(frozen=True)
class Acceptance:
    """What became of a new turn."""

    turn_id: UUID
    lease: Lease | None = None
    """Set if the turn runs, in this process's hands."""
    events: Sequence[Event] = ()
    """What was stored, those of turns that were interrupted included."""
    repeated: bool = False
    """Whether the request id was known: `turn_id` is that of the first time."""


@dataclass(frozen=True)
class BlockEdit:
    """A block's next revision."""

    block: Block
    actor: BlockActor
    created: bool = False
    """Whether the block is new: an agent's own version of one that it may not change."""


@dataclass(frozen=True)
class Ending:
    """How a turn ends."""

    status: TurnStatus
    stop_reason: StopReason | None = None
    error_reason: Reason | None = None
    retryable: bool = False


@dataclass(frozen=True)
class Step:
    """All that one step of a turn stores, or its end."""

    step: int
    tell: Callable[[int], Sequence[NewEvent]]
    """The events, given the revision of the memories that the turn has stored by then."""
    items: Sequence[DraftItem] = ()
    blocks: Sequence[BlockEdit] = ()
    memories: Sequence[NewMemory] = ()
    space: Space | None = None
    """Of the memories' vectors."""
    scratchpad: Sequence[str] | None = None
    """The thread's notes from now on; None leaves them."""
    usage: Sequence[UsageRecord] = ()
    spent: TokenUsage = field(default_factory=TokenUsage)
    message_count: int = 0
    tool_call_count: int = 0
    memory_writes: int = 0
    tainted: bool = False
    agent_id: UUID | None = None
    """The agent that goes on with the turn; None if it stays the same."""
    ending: Ending | None = None


@dataclass(frozen=True)
class Stored:
    """What a step became."""

    events: Sequence[Event]
    lease: Lease
    """With the turn as it is now."""


class EffectConflict(Exception):  # noqa: N818 (the answer to a race, which is run again)
    """What a step wanted to change has changed meanwhile: nothing was stored, work it out again."""


@dataclass(frozen=True)
class TurnFilter:
    """Which turns to list; what is empty or None does not restrict."""

    agent_id: UUID | None = None
    conversation_id: UUID | None = None
    statuses: frozenset[TurnStatus] = frozenset()
    origins: frozenset[TurnOrigin] = frozenset()
    start: datetime | None = None
    end: datetime | None = None


TurnKey: TypeAlias = tuple[UUID, UUID]
"""A user and a turn of theirs."""


class TurnStore(Protocol):
    """Turns and what they store. At most one turn runs in a thread at a time.

    A lease lasts as long as the store was built to grant, by the database's clock, and must be renewed.
    """

    async def accept(self, user_id: UUID, new: NewTurn, once: Once | None, now: datetime) -> Acceptance:
        """Store message, turn and events, all or nothing.

        The turn runs at once, leased to this process, unless another one is active in the thread; then it
        waits, is refused with TURN_BUSY, or interrupts, as `on_busy` says. Must raise TURN_QUEUE_FULL if too
        many wait, NOT_FOUND and CONVERSATION_DELETED as ItemStore. A known request id must change nothing.
        """
        ...

    async def accepted_before(self, user_id: UUID, once: Once | None) -> UUID | None:
        """The turn that a request id was accepted as; None if it is new, or there is none.

        Must raise REQUEST_ID_REUSED if it was another request.
        """
        ...

    async def get(self, user_id: UUID, turn_id: UUID) -> Turn:
        """Must raise NOT_FOUND."""
        ...

    async def list(self, user_id: UUID, which: TurnFilter, size: int, after: UUID | None) -> Page[Turn, UUID]:
        """A page, the newest first."""
        ...

    async def commit(self, lease: Lease, step: Step, now: datetime) -> Stored:
        """Store a step, all or nothing.

        Must raise LeaseLost, and change nothing, unless the lease is still held and has not run out; and
        EffectConflict if a block has another revision than the one before the edit's, or `space` is no
        longer the user's.
        """
        ...

    async def cancel(
        self, user_id: UUID, turn_id: UUID, cause: CancelCause, now: datetime
    ) -> tuple[Turn, Sequence[Event]]:
        """End a turn that waits or runs, whoever holds it; one that has ended is returned as it is."""
        ...

    async def cancel_in(
        self, user_id: UUID, conversation_ids: Collection[UUID], cause: CancelCause, now: datetime
    ) -> Sequence[Event]:
        """End all turns that wait or run in these threads; answers with their last events."""
        ...

    async def take_next(self, user_id: UUID, conversation_id: UUID, now: datetime) -> Lease | None:
        """Lease the first turn that waits in a thread; None if none waits or one runs."""
        ...

    async def take_abandoned(self, limit: int, now: datetime) -> Sequence[Lease]:
        """Lease turns whose leases ran out, and turns that wait although none runs in their thread."""
        ...

    async def renew(self, held: Collection[TurnKey]) -> set[TurnKey]:
        """Prolong this process's leases of these turns; answers with those that it still holds."""
        ...

    async def release(self) -> int:
        """Give all leases of this process back, for others to take over at once; answers with how many."""
        ...
