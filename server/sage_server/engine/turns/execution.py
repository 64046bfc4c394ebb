"""Running a turn: step after step from the last one that was stored, until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID

from sage_server.domain.agents import MAIN, Agent, TurnLimits
from sage_server.domain.conversations import ItemKind
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.events import (
    Delta,
    Done,
    Event,
    Failed,
    HandedOff,
    HandoffCause,
    NewEvent,
    Payload,
    Typing,
    told_of,
)
from sage_server.domain.flags import Feature
from sage_server.domain.ids import new_id
from sage_server.domain.model_output import ModelOutput
from sage_server.domain.turns import CancelCause, StopReason, Turn, TurnOrigin, TurnStatus
from sage_server.engine.event_hub import EventHub
from sage_server.engine.failpoints import NO_FAILPOINTS, Failpoints
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.model_calls import Spending
from sage_server.engine.tools.tool import Desk, ToolResult
from sage_server.engine.turns.compaction import Compaction, Crowd
from sage_server.engine.turns.contexts import Contexts, StepContext, Transcript
from sage_server.engine.turns.routing import continues, last_speaker, mentioned
from sage_server.engine.turns.thinking import thought
from sage_server.engine.turns.tool_work import Effects, ToolWork, Work
from sage_server.engine.usage import UsageMeter
from sage_server.ports.agents import AgentStore
from sage_server.ports.clock import Clock
from sage_server.ports.flags import Flags
from sage_server.ports.language_model import LanguageModel, LanguageModels, Purpose
from sage_server.ports.turns import EffectConflict, Ending, Lease, Step, Stored, TurnStore

_TRIES = 8
"""How often a step's tools are run anew because what they change has changed meanwhile."""
_NOT_THE_TURNS = frozenset({Reason.DATABASE_UNAVAILABLE, Reason.OVERLOADED, Reason.USER_ERASED})
"""Failures that say nothing about the turn: it stays as it is, and somebody takes it up again."""
_WORTH_ANOTHER_TRY = frozenset({Reason.MODEL_OUTPUT_EMPTY, Reason.MODEL_OUTPUT_INVALID})


@dataclass(frozen=True)
class RunAgain:
    """The model called tools, and sees their results in another step."""


@dataclass(frozen=True)
class Stop:
    """The turn is complete."""

    reason: StopReason


NextStep: TypeAlias = RunAgain | Stop


@dataclass
class _Run:
    """A turn under way."""

    lease: Lease
    agent: Agent
    transcript: Transcript
    spending: Spending

    @property
    def turn(self) -> Turn:
        return self.lease.turn


@dataclass(frozen=True)
class TurnParts:
    """What turns are run with."""

    store: TurnStore
    agents: AgentStore
    contexts: Contexts
    compaction: Compaction
    models: LanguageModels
    work: ToolWork
    writer: MemoryWriter
    hub: EventHub
    flags: Flags
    usage: UsageMeter
    clock: Clock
    limits: TurnLimits
    failpoints: Failpoints = NO_FAILPOINTS


class TurnExecution:
    """Runs turns that this process holds."""

    def __init__(self, parts: TurnParts) -> None:
        self._parts = parts

    async def run(self, lease: Lease, agent: Agent | None = None) -> bool:
        """Run a turn to its end; without `agent` one that waited, or was left behind by another process.
        False if it is certain that no other turn waits for it.

        Whatever is wrong with the turn ends it with a `failed` event. Raises LeaseLost if it is no longer in
        this process's hands, and SageError if it could not be run to an end and should be taken up again.
        """
        spending = Spending(self._parts.clock)
        try:
            run = await self._begin(lease, spending, agent)
            while run is not None and await self._step(run):
                pass
            return run is None or run.turn.active or run.lease.thread_end is None
        except SageError as error:
            if error.reason in _NOT_THE_TURNS:
                raise
            await self.fail(lease, error, spending)
            return True
        finally:
            # Spent, and not stored with a step: the turn was cancelled, or is in other hands.
            if spending.usage.model_calls:
                self._parts.usage.record(lease.user_id, spending.records())

    async def fail(self, lease: Lease, error: SageError, spending: Spending | None = None) -> None:
        """End a turn that cannot go on, whatever it has stored since the lease was taken."""
        spending = spending or Spending(self._parts.clock)
        lease = await self._held(lease)
        turn = lease.turn
        retryable = error.retry_after is not None or error.reason in _WORTH_ANOTHER_TRY
        failed = Failed(
            reason=error.reason,
            retryable=retryable,
            step_count=turn.step,
            message_count=turn.message_count,
            usage=turn.usage + spending.usage,
            memory_revision=turn.memory_revision,
            retry_after=error.retry_after,
        )
        ending = Ending(TurnStatus.FAILED, error_reason=error.reason, retryable=retryable)
        await self._end(lease, failed, ending, spending)

    async def _begin(self, lease: Lease, spending: Spending, accepted_by: Agent | None) -> _Run | None:
        """Read what the turn needs. None if it may not run: then it is cancelled."""
        parts, turn = self._parts, lease.turn
        try:
            agent = accepted_by or await parts.agents.get(lease.user_id, str(turn.agent_id))
        except SageError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            await self._cancel(lease, CancelCause.DELETED)
            return None
        try:
            transcript = await parts.contexts.transcript(lease.user_id, agent, turn.conversation_id, turn)
        except SageError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            await self._cancel(lease, CancelCause.DELETED)  # its message, or the thread, is gone
            return None
        if transcript.thread.deleted:
            await self._cancel(lease, CancelCause.DELETED)
            return None
        run = _Run(lease, agent, transcript, spending)
        if turn.origin is TurnOrigin.RESPOND and turn.step == 0 and agent.name == MAIN:
            await self._route(run)
        if accepted_by is None:
            model = parts.models.get(agent.profile.model, Purpose.CHAT)
            await self._commit(run, [Typing(model.name)], step=turn.step, told_at=turn.step + 1)
        return run

    async def _route(self, run: _Run) -> None:
        """Let the agent that answered last in the thread go on, if the message goes on with its matter."""
        parts, transcript = self._parts, run.transcript
        last, message = last_speaker(transcript.before), transcript.own[0]
        if last is None or last.agent_id in (None, run.agent.id):
            return
        agents = await parts.agents.list(run.lease.user_id)
        other = next((agent for agent in agents if agent.enabled and agent.id == last.agent_id), None)
        if other is None or mentioned(message.text) in {agent.name for agent in agents}:
            return
        if await continues(parts.models, other, transcript.before, message, run.spending):
            told = HandedOff(run.agent.id, other.id, other.name, HandoffCause.CONTINUITY)
            await self._commit(run, [told], step=0, told_at=0, agent_id=other.id)
            run.agent = other
        else:
            told = HandedOff(other.id, run.agent.id, run.agent.name, HandoffCause.FALLBACK)
            await self._commit(run, [told], step=0, told_at=0)

    async def _step(self, run: _Run) -> bool:
        """Take one step. False if the turn has ended."""
        parts = self._parts
        if not await parts.flags.is_on(run.lease.user_id, Feature.TURNS):
            await self._cancel(run.lease, CancelCause.OPERATOR)
            return False
        if run.turn.step:
            run.agent = await parts.agents.get(run.lease.user_id, str(run.turn.agent_id))
        limit = self._limit(run)
        if limit is not None:
            await self._stop_at(run, limit)
            return False
        parts.failpoints.reach("context.before")
        model = parts.models.get(run.agent.profile.model, Purpose.CHAT)
        context = await self._context(run)
        parts.failpoints.reach("model.before")
        try:
            async with asyncio.timeout(self._time_left(run)):
                output = await thought(model, context.window, context.tools, run.spending, self._show(run))
        except TimeoutError:
            await self._stop_at(run, StopReason.TIME_LIMIT)
            return False
        parts.failpoints.reach("model.after")
        return isinstance(await self._carry_out(run, context, output, model), RunAgain)

    async def _context(self, run: _Run) -> StepContext:
        """The context, after older messages were compacted if it would be too full."""
        now = self._parts.clock.now()
        user_id = run.lease.user_id
        context = await self._parts.contexts.build(user_id, run.agent, run.transcript, now)
        crowd = Crowd(user_id, run.turn, run.agent, run.transcript, run.spending)
        async with aclosing(self._parts.compaction.compacted(crowd, context)) as rounds:
            async for made in rounds:
                # Not with the step: what follows may fail, and the summary is there all the same.
                await self._commit(run, [made.told], step=run.turn.step, told_at=run.turn.step + 1)
                context = made.context
                if self._time_left(run) <= 0:
                    break
        return context

    async def _carry_out(
        self, run: _Run, context: StepContext, output: ModelOutput, model: LanguageModel
    ) -> NextStep:
        """Do what the model wants, and store all of it together."""
        parts = self._parts
        step = run.turn.step + 1
        answered: dict[str, ToolResult] = {}
        for _ in range(_TRIES):
            parts.failpoints.reach("tools.before")
            desk = self._desk(run, context)
            try:
                async with asyncio.timeout(self._time_left(run)):
                    work, effects = await parts.work.done(output, context.tools, desk, step, answered)
            except TimeoutError:
                await self._stop_at(run, StopReason.TIME_LIMIT)
                return Stop(StopReason.TIME_LIMIT)
            parts.failpoints.reach("tools.after")
            following = self._next(run, output, work, step)
            try:
                await self._store_step(run, work, effects, following, model)
            except EffectConflict:
                await parts.writer.refresh(run.lease.user_id)
                context = await parts.contexts.build(
                    run.lease.user_id, run.agent, run.transcript, parts.clock.now()
                )
                continue
            run.transcript.own.extend(work.as_items())
            return following
        error = SageError(Reason.OVERLOADED, "Memory changes faster than the turn can follow.")
        await self.fail(run.lease, error, run.spending)
        return Stop(StopReason.ANSWERED)

    async def _store_step(
        self, run: _Run, work: Work, effects: Effects, following: NextStep, model: LanguageModel
    ) -> None:
        turn, spent = run.turn, run.spending.usage
        messages = sum(not item.hidden for item in work.items if item.tool is None)
        calls = sum(item.tool is not None for item in work.items) // 2

        def tell(revision: int) -> Sequence[NewEvent]:
            last: Payload = Typing(model.name)
            if isinstance(following, Stop):
                last = Done(
                    stop_reason=following.reason,
                    step_count=work.step,
                    message_count=turn.message_count + messages,
                    tool_call_count=turn.tool_call_count + calls,
                    usage=turn.usage + spent,
                    memory_revision=revision,
                    duration=work.now - turn.created_at,
                )
            at = work.step if isinstance(following, Stop) else work.step + 1
            return [*work.events, NewEvent(new_id(work.now), last, at)]

        # Positions of items in events count from the first item of the step, and none comes before those.
        stored = await self._stored(
            run.lease,
            Step(
                step=work.step,
                tell=tell,
                items=work.items,
                blocks=effects.blocks,
                memories=effects.memories,
                space=effects.space,
                scratchpad=effects.notes,
                usage=run.spending.records(),
                spent=spent,
                message_count=messages,
                tool_call_count=calls,
                memory_writes=effects.writes,
                tainted=work.external,
                ending=Ending(TurnStatus.DONE, following.reason) if isinstance(following, Stop) else None,
            ),
            work.now,
        )
        self._advance(run, stored)
        if effects.memories and effects.space is not None:
            await self._parts.writer.index(
                run.lease.user_id, run.turn.memory_revision, effects.memories, effects.space
            )
        self._parts.failpoints.reach("publish.before")
        self._parts.hub.publish(run.lease.user_id, stored.events)
        self._parts.failpoints.reach("publish.after")

    async def _commit(
        self,
        run: _Run,
        told: Sequence[Payload],
        *,
        step: int,
        told_at: int,
        agent_id: UUID | None = None,
    ) -> None:
        """Tell something that no step of its own belongs to."""
        now = self._parts.clock.now()
        events = [NewEvent(new_id(now), payload, told_at) for payload in told]
        spending = run.spending
        change = Step(
            step=step,
            tell=lambda _: events,
            usage=spending.records(),
            spent=spending.usage,
            agent_id=agent_id,
        )
        stored = await self._stored(run.lease, change, now)
        self._advance(run, stored)
        self._parts.hub.publish(run.lease.user_id, stored.events)

    async def _stored(self, lease: Lease, step: Step, now: datetime) -> Stored:
        failpoints = self._parts.failpoints
        failpoints.reach("commit.before" if step.ending is None else "end.before")
        stored = await self._parts.store.commit(lease, step, now)
        failpoints.reach("commit.after" if step.ending is None else "end.after")
        return stored

    def _advance(self, run: _Run, stored: Stored) -> None:
        run.lease = stored.lease
        run.spending.clear()

    async def _end(self, lease: Lease, last: Payload, ending: Ending, spending: Spending) -> None:
        now, turn = self._parts.clock.now(), lease.turn
        event = NewEvent(new_id(now), last, turn.step)
        step = Step(
            step=turn.step,
            tell=lambda _: [event],
            usage=spending.records(),
            spent=spending.usage,
            ending=ending,
        )
        stored = await self._stored(lease, step, now)
        spending.clear()
        self._parts.hub.publish(lease.user_id, stored.events)

    async def _stop_at(self, run: _Run, limit: StopReason) -> None:
        """A cap of the turn is reached: it is complete if it has said something, and has failed if not."""
        turn = run.turn
        if not turn.message_count:
            name = "time" if limit is StopReason.TIME_LIMIT else "tokens"
            error = SageError(
                Reason.TURN_LIMIT_EXCEEDED, "The turn reached its limit.", metadata={"limit": name}
            )
            await self.fail(run.lease, error, run.spending)
            return
        done = Done(
            stop_reason=limit,
            step_count=turn.step,
            message_count=turn.message_count,
            tool_call_count=turn.tool_call_count,
            usage=turn.usage + run.spending.usage,
            memory_revision=turn.memory_revision,
            duration=self._parts.clock.now() - turn.created_at,
        )
        await self._end(run.lease, done, Ending(TurnStatus.DONE, limit), run.spending)

    async def _cancel(self, lease: Lease, cause: CancelCause) -> None:
        _, events = await self._parts.store.cancel(
            lease.user_id, lease.turn.id, cause, self._parts.clock.now()
        )
        self._parts.hub.publish(lease.user_id, events)

    async def _held(self, lease: Lease) -> Lease:
        """The lease with the turn as it is stored by now."""
        return replace(lease, turn=await self._parts.store.get(lease.user_id, lease.turn.id))

    def _next(self, run: _Run, output: ModelOutput, work: Work, step: int) -> NextStep:
        if work.ends:
            return Stop(StopReason.DONE_TOOL)
        if not output.tool_calls and not output.cut_off:
            said = run.turn.message_count + len(output.messages)
            return Stop(StopReason.ANSWERED if said else StopReason.SILENT)
        if step >= run.agent.profile.max_steps:
            return Stop(StopReason.STEP_LIMIT)
        return RunAgain()

    def _limit(self, run: _Run) -> StopReason | None:
        profile, limits = run.agent.profile, self._parts.limits
        tokens = limits.tokens if profile.max_turn_tokens is None else profile.max_turn_tokens
        if self._time_left(run) <= 0:
            return StopReason.TIME_LIMIT
        return StopReason.TOKEN_LIMIT if run.turn.usage.tokens >= tokens else None

    def _time_left(self, run: _Run) -> float:
        allowed = run.agent.profile.max_turn_duration or self._parts.limits.duration
        started = run.turn.started_at or run.turn.created_at
        return (started + allowed - self._parts.clock.now()) / timedelta(seconds=1)

    def _desk(self, run: _Run, context: StepContext) -> Desk:
        writes = run.agent.profile.max_memory_writes
        most = self._parts.limits.memory_writes if writes is None else writes
        return Desk(
            user_id=run.lease.user_id,
            agent=run.agent,
            turn=run.turn,
            thread=run.transcript.thread,
            now=self._parts.clock.now(),
            spending=run.spending,
            blocks=dict(context.blocks),
            writes_left=max(0, most - run.turn.memory_writes),
            notes=context.notes,
            message="\n".join(item.text for item in run.transcript.own if item.kind is ItemKind.USER),
            tainted=run.turn.tainted,
        )

    def _show(self, run: _Run) -> Callable[[Delta], None] | None:
        """Tells words while they are written, if anybody wants to see them."""
        hub, user_id, turn = self._parts.hub, run.lease.user_id, run.turn
        if not hub.wants_deltas(user_id):
            return None
        whose = told_of(turn)

        def show(delta: Delta) -> None:
            hub.delta(
                user_id,
                Event(
                    seq=0,
                    turn_id=turn.id,
                    step=turn.step + 1,
                    created_at=self._parts.clock.now(),
                    agent_id=turn.agent_id,
                    conversation_id=whose.conversation_id,
                    channel=whose.channel,
                    payload=delta,
                ),
            )

        return show
