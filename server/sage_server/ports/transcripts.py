"""Threads of any kind, as agents and background work read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from sage_server.domain.agents import MemoryMode
from sage_server.domain.conversations import ConversationMemory, Item, ItemFilter
from sage_server.domain.idempotency import Once
from sage_server.domain.paging import Page
from sage_server.domain.recall import Place
from sage_server.domain.summaries import Summarized, Summary
from sage_server.ports.memories import NewMemory, Space, Written


@dataclass(frozen=True)
class Thread:
    """A thread, with the agent whose own it is."""

    id: UUID
    private: bool
    deleted: bool
    memory: ConversationMemory
    last_seq: int
    message_count: int
    agent_id: UUID | None
    """None for a thread of the user's."""
    memory_mode: MemoryMode | None
    """Of that agent."""
    tainted: bool = False
    """Whether a turn in it has read words that are neither the user's nor an agent's: they may still be in
    view, or in a summary."""

    @property
    def memory_owner(self) -> UUID | None:
        """In whose memory its messages lie: the agent's own, or with None the user's."""
        return None if self.memory_mode in (None, MemoryMode.SHARED) else self.agent_id

    @property
    def place(self) -> Place:
        """Where what is said in it is remembered."""
        return Place(self.memory_owner, self.agent_id)


@dataclass(frozen=True)
class Reach:
    """How much of a thread's end is wanted: after the position `after`, at most `items`, and of those the
    newest that may fit into `tokens`.

    With a turn, what that has stored is wanted in any case, and messages that came after its own are not.
    """

    after: int
    items: int
    tokens: int
    each: int
    """What an item takes at least besides its text."""
    turn_id: UUID | None = None
    input_item_id: UUID | None = None


@dataclass(frozen=True)
class Recent:
    """The end of a thread, in its order."""

    items: Sequence[Item]
    older_count: int = 0
    """Items within reach that cannot fit any more, and so were not opened."""
    older_tokens: int = 0
    """Of their texts."""


class TranscriptStore(Protocol):
    """Reads threads of users and of agents alike. Says NOT_FOUND where ConversationStore would."""

    async def thread(self, user_id: UUID, conversation_id: UUID) -> Thread:
        """The thread. Must raise NOT_FOUND."""
        ...

    async def opened(self, user_id: UUID, conversation_id: UUID) -> tuple[Thread, Summary | None]:
        """The thread and its newest summary. Must raise NOT_FOUND."""
        ...

    async def items(
        self, user_id: UUID, conversation_id: UUID, which: ItemFilter, size: int, after: int | None
    ) -> Page[Item, int]:
        """A page by position, empty if there is no such thread."""
        ...

    async def item(self, user_id: UUID, conversation_id: UUID, item_id: UUID) -> Item | None:
        """One item; None if it is gone."""
        ...

    async def newest(self, user_id: UUID, conversation_id: UUID, after: int, limit: int) -> Sequence[Item]:
        """The newest items after a position, hidden ones too, in the order of the thread."""
        ...

    async def recent(self, user_id: UUID, conversation_id: UUID, reach: Reach) -> Recent:
        """As `newest`, but only what may fit into a context; the last ten in any case."""
        ...


@dataclass(frozen=True)
class NewSummary:
    """A summary to be stored, with the ids of all items that it covers."""

    summary: Summary
    covered: Sequence[UUID]


class SummaryOutdated(Exception):  # noqa: N818 (the answer to a race, not an error of anybody's)
    """The thread has another newest summary by now, or not all of the items any more: nothing was stored."""


class SummaryStore(Protocol):
    """Summaries of threads, chained."""

    async def latest(self, user_id: UUID, conversation_id: UUID) -> Summary | None:
        """The newest of a thread."""
        ...

    async def add(
        self,
        user_id: UUID,
        new: NewSummary,
        memories: Sequence[NewMemory],
        space: Space | None,
        once: Once | None,
    ) -> Written | None:
        """Store a summary that continues the one before it, and what search is to know of it, all or nothing.

        Must raise SummaryOutdated, and change nothing, unless the one before it is still the newest of a
        thread that is live, and all items that it covers are still there. Must store no memory of a private
        thread. None, and nothing changes, if `space` is no longer the user's: embed again. With `once` it
        also keeps the answer, and must raise SummaryOutdated if the request id is known.
        """
        ...

    async def list(
        self, user_id: UUID, conversation_id: UUID, size: int, after: int | None
    ) -> Page[Summary, int]:
        """A page, the newest first, by epoch."""
        ...

    async def answered(self, user_id: UUID, once: Once | None) -> Summarized | None:
        """What a request id was answered before; None if it is new, or there is none.

        Must raise REQUEST_ID_REUSED if it was another request.
        """
        ...

    async def answer(self, user_id: UUID, once: Once | None, answer: Summarized, now: datetime) -> Summarized:
        """Keep an answer for its request id, if there is one. The answer that is kept already wins."""
        ...
