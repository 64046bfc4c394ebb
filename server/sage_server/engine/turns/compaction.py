"""Making room in a turn's context."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from uuid import UUID

from sage_server.domain.agents import Agent, CompactionMode
from sage_server.domain.compaction import FARTHEST, FEWEST
from sage_server.domain.conversations import ItemFilter
from sage_server.domain.events import Compacted
from sage_server.domain.flags import Feature
from sage_server.domain.recall import Place
from sage_server.domain.turns import Turn
from sage_server.engine.compactor import (
    Applied,
    CompactionOutcome,
    CompactionRequest,
    Compactor,
    CouldNot,
    NothingToDo,
)
from sage_server.engine.failpoints import NO_FAILPOINTS, Failpoints
from sage_server.engine.model_calls import Spending
from sage_server.engine.turns.contexts import Contexts, StepContext, Transcript
from sage_server.ports.clock import Clock
from sage_server.ports.flags import Flags
from sage_server.ports.transcripts import TranscriptStore

_ROUNDS = 32
"""Summaries that one step may write: a thread that was never compacted needs several."""
_PAGE = 500
_TARGET = 0.5
"""How much of the context is left in use."""
_TOKENS_A_WORD = 20
"""A summary has at most as many words as the context has tokens, divided by this: it must leave room."""


@dataclass(frozen=True)
class Crowd:
    """A turn whose context may be too full."""

    user_id: UUID
    turn: Turn
    agent: Agent
    transcript: Transcript
    spending: Spending


@dataclass(frozen=True)
class MadeRoom:
    """A compaction and the context after it."""

    told: Compacted
    context: StepContext


class Compaction:
    """Compacts a thread whose context is too full."""

    def __init__(
        self,
        *,
        compactor: Compactor,
        transcripts: TranscriptStore,
        contexts: Contexts,
        flags: Flags,
        clock: Clock,
        failpoints: Failpoints = NO_FAILPOINTS,
    ) -> None:
        self._compactor = compactor
        self._transcripts = transcripts
        self._contexts = contexts
        self._flags = flags
        self._clock = clock
        self._failpoints = failpoints

    async def compacted(self, crowd: Crowd, context: StepContext) -> AsyncGenerator[MadeRoom]:
        """Compact until the context is no longer too full, and change the transcript with it.

        A model that fails, or another compactor that was faster, is told and ends it: the turn goes on.
        """
        if not is_due(crowd.agent, crowd.transcript, context):
            return
        if not await self._flags.is_on(crowd.user_id, Feature.COMPACTION):
            return
        target = crowd.agent.profile.max_context_tokens * _TARGET
        for _ in range(_ROUNDS):
            before = context.window.wanted_tokens
            self._failpoints.reach("compaction.before")
            outcome = await self._compact(crowd, int(before - target))
            self._failpoints.reach("compaction.after")
            if isinstance(outcome, NothingToDo):
                return
            if not isinstance(outcome, CouldNot):
                context = await self._rebuilt(crowd)
            yield MadeRoom(_told(outcome, before, context.window.wanted_tokens), context)
            if not isinstance(outcome, Applied) or _is_enough(crowd, context, target):
                return

    async def _compact(self, crowd: Crowd, excess: int) -> CompactionOutcome:
        transcript, rules = crowd.transcript, crowd.agent.profile.compaction
        thread, summary = transcript.thread, transcript.summary
        after = 0 if summary is None else summary.to_seq
        everything = ItemFilter(show_hidden=True)
        oldest = await self._transcripts.items(crowd.user_id, thread.id, everything, _PAGE, after)
        by_count = rules.mode is CompactionMode.MESSAGES
        own = {item.id for item in transcript.own}
        keep = max(0, rules.keep_newest - len(own)) if by_count else 0
        if oldest.next is not None:
            keep = FARTHEST  # the output of a call may lie on the next page
        most = crowd.agent.profile.max_context_tokens
        return await self._compactor.compact(
            CompactionRequest(
                user_id=crowd.user_id,
                conversation_id=thread.id,
                place=Place(thread.memory_owner, thread.agent_id),
                private=thread.private,
                rules=replace(rules, summary_words=min(rules.summary_words, most // _TOKENS_A_WORD)),
                previous=summary,
                items=[item for item in oldest.rows if item.id not in own],
                spending=crowd.spending,
                keep=keep,
                current_turn=crowd.turn.id,
                target=None if by_count else max(excess, 1),
                most=most,
            )
        )

    async def _rebuilt(self, crowd: Crowd) -> StepContext:
        """The context with the thread as it is by now."""
        transcript = crowd.transcript
        fresh = await self._contexts.transcript(crowd.user_id, crowd.agent, transcript.thread.id, crowd.turn)
        transcript.summary, transcript.before = fresh.summary, fresh.before
        transcript.older, transcript.whole = fresh.older, fresh.whole
        return await self._contexts.build(crowd.user_id, crowd.agent, transcript, self._clock.now())


def is_due(agent: Agent, transcript: Transcript, context: StepContext) -> bool:
    """Whether the context is fuller than the agent's rules allow."""
    rules, window = agent.profile.compaction, context.window
    if rules.mode is CompactionMode.OFF or transcript.unsummarised < FEWEST:
        return False
    if not transcript.whole:
        return True
    if rules.mode is CompactionMode.MESSAGES:
        return transcript.unsummarised + len(transcript.own) > rules.message_threshold
    return window.wanted_tokens > rules.threshold * agent.profile.max_context_tokens


def _is_enough(crowd: Crowd, context: StepContext, target: float) -> bool:
    """Whether as much is gone as was to go."""
    agent, transcript = crowd.agent, crowd.transcript
    rules = agent.profile.compaction
    if not transcript.whole:
        return False
    if rules.mode is CompactionMode.MESSAGES:
        return transcript.unsummarised + len(transcript.own) <= rules.message_threshold
    return context.window.wanted_tokens <= target or not is_due(agent, transcript, context)


def _told(outcome: CompactionOutcome, before: int, after: int) -> Compacted:
    if not isinstance(outcome, Applied):
        reason = outcome.reason if isinstance(outcome, CouldNot) else None
        return Compacted(
            applied=False,
            from_seq=0,
            to_seq=0,
            message_count=0,
            tokens_before=before,
            tokens_after=before,
            reason=reason,
        )
    summary = outcome.summary
    return Compacted(
        applied=True,
        from_seq=summary.from_seq,
        to_seq=summary.to_seq,
        message_count=summary.message_count,
        tokens_before=before,
        tokens_after=after,
        summary_id=summary.id,
    )
