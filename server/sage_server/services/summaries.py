"""Summaries of threads, on request."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sage_server.domain.agents import CompactionRules
from sage_server.domain.compaction import FARTHEST
from sage_server.domain.conversations import Conversation, Item, ItemFilter, conversation_deleted
from sage_server.domain.flags import Feature
from sage_server.domain.idempotency import Once
from sage_server.domain.paging import MAX_PAGE_SIZE, Page
from sage_server.domain.recall import Place
from sage_server.domain.summaries import Summarized, Summary
from sage_server.domain.turns import ACTIVE
from sage_server.engine.compactor import (
    Applied,
    CompactionRequest,
    Compactor,
    CouldNot,
    NotApplied,
    NothingToDo,
)
from sage_server.engine.model_calls import Spending
from sage_server.engine.usage import UsageMeter
from sage_server.ports.clock import Clock
from sage_server.ports.flags import Flags
from sage_server.ports.stores import ConversationStore
from sage_server.ports.transcripts import SummaryStore, TranscriptStore
from sage_server.ports.turns import TurnFilter, TurnStore

KEEP_NEWEST = 12
_BATCH = 500
_EVERYTHING = ItemFilter(show_hidden=True)


class Summaries:
    """What callers do with summaries of their threads. An agent's own thread is not found here."""

    def __init__(
        self,
        *,
        conversations: ConversationStore,
        transcripts: TranscriptStore,
        summaries: SummaryStore,
        compactor: Compactor,
        turns: TurnStore,
        usage: UsageMeter,
        flags: Flags,
        clock: Clock,
    ) -> None:
        self._conversations = conversations
        self._transcripts = transcripts
        self._summaries = summaries
        self._compactor = compactor
        self._turns = turns
        self._usage = usage
        self._flags = flags
        self._clock = clock

    async def list(
        self, user_id: UUID, conversation_id: UUID, size: int, after: int | None
    ) -> Page[Summary, int]:
        """A page, the newest first."""
        await self._conversations.get(user_id, conversation_id)
        return await self._summaries.list(user_id, conversation_id, size, after)

    async def summarize(
        self, user_id: UUID, conversation_id: UUID, keep: int, once: Once | None
    ) -> Summarized:
        """Cover all but the newest items with summaries: one, or several in a chain if one cannot hold them.

        What was stored when a model fails stays, and another request goes on from there.
        """
        thread = await self._conversations.get(user_id, conversation_id)
        first = await self._summaries.answered(user_id, once)
        if first is not None:
            return first
        if thread.deleted_at is not None:
            raise conversation_deleted()
        await self._flags.require(user_id, Feature.COMPACTION)
        spending = Spending(self._clock)
        try:
            return await self._summarized(user_id, thread, keep, spending, once)
        finally:
            self._usage.record(user_id, spending.records())

    async def _summarized(
        self, user_id: UUID, thread: Conversation, keep: int, spending: Spending, once: Once | None
    ) -> Summarized:
        """The answer, which is kept: with the last summary, or else by itself."""
        latest = await self._summaries.latest(user_id, thread.id)
        kept = await self._transcripts.newest(user_id, thread.id, _end(latest), keep) if keep else ()
        applied = False
        while True:
            items, last = await self._unsummarised(user_id, thread.id, _end(latest), kept)
            outcome = await self._compactor.compact(
                CompactionRequest(
                    user_id=user_id,
                    conversation_id=thread.id,
                    place=Place(),
                    private=thread.private,
                    rules=CompactionRules(),
                    previous=latest,
                    items=items,
                    spending=spending,
                    keep=len(kept) if last else FARTHEST,
                    current_turn=await self._current_turn(user_id, thread.id),
                    once=once if last else None,
                )
            )
            match outcome:
                case Applied():
                    latest, applied = outcome.summary, True
                    if last and outcome.complete:
                        return Summarized(latest, applied=True)
                    continue
                case CouldNot():
                    raise outcome.error
                case NotApplied():
                    latest = outcome.latest
                case NothingToDo():
                    pass
            answer = Summarized(latest, applied=applied)
            return await self._summaries.answer(user_id, once, answer, self._clock.now())

    async def _current_turn(self, user_id: UUID, conversation_id: UUID) -> UUID | None:
        """The first turn that has not ended: what it and those after it are about must stay in their context.
        Asked for after the items were read, so that none of them is of a turn that is not known here."""
        active = TurnFilter(conversation_id=conversation_id, statuses=ACTIVE)
        page = await self._turns.list(user_id, active, MAX_PAGE_SIZE, None)
        return page.rows[-1].id if page.rows else None

    async def _unsummarised(
        self, user_id: UUID, conversation_id: UUID, after: int, kept: Sequence[Item]
    ) -> tuple[Sequence[Item], bool]:
        """The oldest items after a position, and whether they are all there are but for newer ones; then
        those to be kept are the last of them."""
        page = await self._transcripts.items(user_id, conversation_id, _EVERYTHING, _BATCH, after)
        if not kept:
            return page.rows, page.next is None
        older = [item for item in page.rows if item.seq < kept[0].seq]
        if page.next is not None and len(older) == len(page.rows):
            return older, False
        return [*older, *kept], True


def _end(latest: Summary | None) -> int:
    return 0 if latest is None else latest.to_seq
