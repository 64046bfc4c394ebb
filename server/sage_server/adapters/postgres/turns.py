"""Turns on Postgres."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from sage_server.adapters.postgres import replays, turn_statements
from sage_server.adapters.postgres.conversation_rows import sealed_items
from sage_server.adapters.postgres.database import Database, Record, Transaction
from sage_server.adapters.postgres.event_rows import sealed_events, told_events
from sage_server.adapters.postgres.sealed_rows import write_sealed
from sage_server.adapters.postgres.turn_effects import store_effects
from sage_server.adapters.postgres.turn_rows import new_turn_values, turn_of
from sage_server.adapters.postgres.usage import usage_values
from sage_server.domain.agents import agent_not_found
from sage_server.domain.conversations import ConversationKind, conversation_deleted
from sage_server.domain.errors import not_found, overloaded
from sage_server.domain.events import Cancelled, Event, NewEvent, Told, told_of
from sage_server.domain.idempotency import Once
from sage_server.domain.ids import new_id
from sage_server.domain.paging import Page
from sage_server.domain.turns import (
    CancelCause,
    LeaseLost,
    OnBusy,
    Turn,
    TurnStatus,
    turn_busy,
    turn_queue_full,
)
from sage_server.domain.usage import UsageEntry
from sage_server.ports.keys import KeyRing, UserCipher
from sage_server.ports.stores import ConversationStore
from sage_server.ports.turns import (
    Acceptance,
    EffectConflict,
    Lease,
    NewTurn,
    Step,
    Stored,
    TurnFilter,
    TurnKey,
)

_TRIES = 50
_listed = cache(turn_statements.listed)


Failpoint: TypeAlias = Callable[[str], None]
"""Told where the process is, for tests of what survives its death there."""


def _never(_where: str) -> None:
    """Nothing happens there."""


@dataclass(frozen=True)
class _Accepting:
    """A turn on its way in."""

    user_id: UUID
    new: NewTurn
    once: Once | None
    now: datetime


@dataclass(frozen=True)
class _Told:
    """What a step tells, and the revision of the memories stored by then."""

    events: Sequence[tuple[Told, NewEvent]]
    revision: int


class PostgresTurnStore:
    """Implements TurnStore for one process, which holds leases as `owner`."""

    def __init__(
        self,
        database: Database,
        keys: KeyRing,
        threads: ConversationStore,
        *,
        owner: UUID,
        lease: timedelta,
        failpoints: Failpoint = _never,
    ) -> None:
        self._database = database
        self._keys = keys
        self._threads = threads
        self._leasing = {"owner": owner, "lease_for": lease}
        self._lease = lease
        self._failpoint = failpoints

    async def accept(self, user_id: UUID, new: NewTurn, once: Once | None, now: datetime) -> Acceptance:
        """One statement. One that is accepted in the same thread at the same moment has it run again."""
        accepting = _Accepting(user_id, new, once, now)
        for _ in range(_TRIES):
            try:
                accepted = await write_sealed(self._keys, user_id, partial(self._accept, accepting))
            except asyncpg.UniqueViolationError as error:
                if once is None or not replays.is_repeat(error):
                    raise
                return _repeated(await replays.replayed(self._database, self._keys, user_id, once))
            if accepted is not None:
                return accepted
            earlier = await replays.find(self._database, self._keys, user_id, once)
            if earlier is not None:
                return _repeated(earlier)
            await self._refuse(accepting)
        raise overloaded("The thread is too busy.")

    async def accepted_before(self, user_id: UUID, once: Once | None) -> UUID | None:
        """By the kept answer."""
        earlier = await replays.find(self._database, self._keys, user_id, once)
        return None if earlier is None else UUID(earlier.answer)

    async def get(self, user_id: UUID, turn_id: UUID) -> Turn:
        """By primary key."""
        row = await self._database.fetchrow(turn_statements.GET, user_id=user_id, turn_id=turn_id)
        if row is None:
            raise not_found("turn")
        return turn_of(row)

    async def list(self, user_id: UUID, which: TurnFilter, size: int, after: UUID | None) -> Page[Turn, UUID]:
        """By primary key: ids are in the order of acceptance."""
        given: dict[str, Any] = {
            "agent_id": which.agent_id,
            "conversation_id": which.conversation_id,
            "statuses": [int(status) for status in which.statuses] or None,
            "origins": [int(origin) for origin in which.origins] or None,
            "start": which.start,
            "end": which.end,
        }
        values = {name: value for name, value in given.items() if value is not None}
        statement = _listed(frozenset(values), following=after is not None)
        if after is not None:
            values["after"] = after
        rows = await self._database.fetch(statement, user_id=user_id, limit=size + 1, **values)
        page = [turn_of(row) for row in rows[:size]]
        return Page(page, page[-1].id if len(rows) > size else None)

    async def commit(self, lease: Lease, step: Step, now: datetime) -> Stored:
        """One statement, or with effects a transaction that makes sure of the lease first."""

        async def write(cipher: UserCipher) -> Stored:
            if not (step.blocks or step.memories or step.scratchpad is not None):
                told = _told(lease.turn, step, lease.turn.memory_revision)
                values = self._step_values(cipher, lease, step, told, now)
                row = await self._database.fetchrow(turn_statements.COMMIT[bool(step.items)], **values)
                return _stored(lease, step, told, row, now)

            async def together(transaction: Transaction) -> Stored:
                held = await transaction.fetchrow(
                    turn_statements.HOLD,
                    user_id=lease.user_id,
                    turn_id=lease.turn.id,
                    fence=lease.fence,
                )
                if held is None:
                    raise LeaseLost
                self._failpoint("effects.before")
                written = await store_effects(transaction, cipher, lease, step, now)
                self._failpoint("effects.after")
                told = _told(lease.turn, step, written or lease.turn.memory_revision)
                values = self._step_values(cipher, lease, step, told, now)
                row = await transaction.fetchrow(turn_statements.COMMIT[bool(step.items)], **values)
                return _stored(lease, step, told, row, now)

            try:
                return await self._database.transact(together)
            except asyncpg.UniqueViolationError as error:
                raise EffectConflict from error

        return await write_sealed(self._keys, lease.user_id, write)

    async def cancel(
        self, user_id: UUID, turn_id: UUID, cause: CancelCause, now: datetime
    ) -> tuple[Turn, Sequence[Event]]:
        """Whoever holds the turn finds its fence too low."""

        async def write(cipher: UserCipher) -> tuple[Turn, Sequence[Event]]:
            async def together(transaction: Transaction) -> tuple[Turn, Sequence[Event]]:
                row = await transaction.fetchrow(turn_statements.LOCK, user_id=user_id, turn_id=turn_id)
                if row is None:
                    raise not_found("turn")
                turn = turn_of(row)
                if not turn.active:
                    return turn, ()
                told = await cancelled(transaction, cipher, user_id, [turn], cause, now=now)
                ended = replace(
                    turn,
                    status=TurnStatus.CANCELLED,
                    cancel_cause=cause,
                    ended_at=now,
                    last_event=told[-1].seq,
                )
                return ended, told

            return await self._database.transact(together)

        return await write_sealed(self._keys, user_id, write)

    async def cancel_in(
        self, user_id: UUID, conversation_ids: Collection[UUID], cause: CancelCause, now: datetime
    ) -> Sequence[Event]:
        """As `cancel`, one transaction for all of them."""

        async def write(cipher: UserCipher) -> Sequence[Event]:
            async def together(transaction: Transaction) -> Sequence[Event]:
                rows = await transaction.fetch(
                    turn_statements.ACTIVE_IN, user_id=user_id, conversation_ids=list(conversation_ids)
                )
                active = [turn_of(row) for row in rows]
                return await cancelled(transaction, cipher, user_id, active, cause, now=now) if active else ()

            return await self._database.transact(together)

        return await write_sealed(self._keys, user_id, write)

    async def take_next(self, user_id: UUID, conversation_id: UUID, now: datetime) -> Lease | None:
        """One statement; the unique index refuses a second turn beside one that runs."""
        try:
            row = await self._database.fetchrow(
                turn_statements.TAKE_NEXT,
                user_id=user_id,
                conversation_id=conversation_id,
                now=now,
                **self._leasing,
            )
        except asyncpg.UniqueViolationError as error:
            if not _is_running(error):
                raise
            return None
        return None if row is None else _lease(row)

    async def take_abandoned(self, limit: int, now: datetime) -> Sequence[Lease]:
        """By the index of leases, and the one of turns that wait."""
        rows = await self._database.fetch(turn_statements.TAKE_LAPSED, limit=limit, now=now, **self._leasing)
        taken = [_lease(row) for row in rows]
        waiting = await self._database.fetch(turn_statements.WAITING_THREADS, limit=limit)
        for row in waiting:
            lease = await self.take_next(row["user_id"], row["conversation_id"], now)
            if lease is not None:
                taken.append(lease)
        return taken

    async def renew(self, held: Collection[TurnKey]) -> set[TurnKey]:
        """One statement for all of them."""
        rows = await self._database.fetch(
            turn_statements.RENEW,
            user_ids=[user_id for user_id, _ in held],
            ids=[turn_id for _, turn_id in held],
            **self._leasing,
        )
        return {(row["user_id"], row["id"]) for row in rows}

    async def release(self) -> int:
        """One statement."""
        return await self._database.execute(turn_statements.RELEASE, owner=self._leasing["owner"])

    async def _accept(self, accepting: _Accepting, cipher: UserCipher) -> Acceptance | None:
        """None if there is no room in the thread, no such thread, or a longer one by now."""
        if accepting.new.on_busy is OnBusy.INTERRUPT:
            try:
                return await self._database.transact(partial(self._interrupt, accepting, cipher))
            except _NotAcceptedError:
                return None
        values = self._new_values(accepting, cipher)
        statement = turn_statements.ACCEPT[accepting.once is not None]
        row = await self._database.fetchrow(statement, **values)
        return None if row is None else self._accepted(accepting, row)

    async def _interrupt(
        self, accepting: _Accepting, cipher: UserCipher, transaction: Transaction
    ) -> Acceptance:
        """Cancel what is active and accept, together. A turn that slips in between has it tried again: its
        cancellations are undone, because the transaction must not commit without an acceptance."""
        user_id, turn, now = accepting.user_id, accepting.new.turn, accepting.now
        rows = await transaction.fetch(
            turn_statements.ACTIVE_TURNS, user_id=user_id, conversation_id=turn.conversation_id
        )
        active = [turn_of(row) for row in rows]
        told: Sequence[Event] = ()
        self._failpoint("interrupt.before")
        if active:
            # Before the head of the user, which is locked with the first event: see the order of locks.
            place = {"user_id": user_id, "conversation_id": turn.conversation_id}
            await transaction.fetchrow(turn_statements.LOCK_THREAD, **place)
            told = await cancelled(
                transaction, cipher, user_id, active, CancelCause.INTERRUPTED, by=turn.id, now=now
            )
        self._failpoint("interrupt.after")
        statement = turn_statements.ACCEPT[accepting.once is not None]
        row = await transaction.fetchrow(statement, **self._new_values(accepting, cipher))
        if row is None:
            raise _NotAcceptedError
        accepted = self._accepted(accepting, row)
        return replace(accepted, events=[*told, *accepted.events])

    def _new_values(self, accepting: _Accepting, cipher: UserCipher) -> dict[str, Any]:
        user_id, new, once, now = accepting.user_id, accepting.new, accepting.once, accepting.now
        turn = new.turn
        told = [(told_of(turn), event) for event in (*new.told, *new.told_when_running)]
        kept = {} if once is None else replays.values(cipher, user_id, once, str(turn.id), now)
        most = new.most_waiting if new.on_busy is OnBusy.QUEUE else 0
        return {
            **kept,
            **new_turn_values(user_id, turn, now),
            **sealed_items(cipher, [new.input]),
            **sealed_events(cipher, told, now),
            **self._leasing,
            "key_version": cipher.key_version,
            "kind": ConversationKind.AGENT if turn.own_thread else ConversationKind.THREAD,
            "count": 1,
            "tokens": new.input.token_count,
            "at": new.input.created_at,
            "told_running": len(told),
            "told_waiting": len(new.told),
            "most_ahead": most,
        }

    def _accepted(self, accepting: _Accepting, row: Record) -> Acceptance:
        new, now = accepting.new, accepting.now
        runs = row["n"] == 0
        told = [(told_of(new.turn), e) for e in (*new.told, *new.told_when_running)][: row["told"]]
        events = told_events(told, now, base=row["event_base"], item_base=row["base"], position=row["n"])
        turn = replace(
            new.turn,
            status=TurnStatus.RUNNING if runs else TurnStatus.QUEUED,
            first_event=row["event_base"] + 1,
            last_event=row["event_base"] + row["told"],
            started_at=now if runs else None,
        )
        lease = Lease(accepting.user_id, turn, 1, thread_end=row["base"] + 1) if runs else None
        return Acceptance(turn.id, lease, events)

    async def _refuse(self, accepting: _Accepting) -> None:
        """Raise why nothing was accepted; returns if it is worth another try."""
        user_id, turn = accepting.user_id, accepting.new.turn
        thread = turn.conversation_id
        rows = await self._database.fetch(turn_statements.BUSY_WITH, user_id=user_id, conversation_id=thread)
        if accepting.new.on_busy is OnBusy.REJECT and rows:
            raise turn_busy(rows[0]["id"])
        if accepting.new.on_busy is OnBusy.QUEUE and len(rows) > accepting.new.most_waiting:
            raise turn_queue_full(accepting.new.most_waiting)
        if turn.own_thread:
            if not await self._threads.reserved(user_id, [thread]):
                raise agent_not_found()
        elif (await self._threads.get(user_id, thread)).deleted_at is not None:
            raise conversation_deleted()

    def _step_values(
        self, cipher: UserCipher, lease: Lease, step: Step, told: _Told, now: datetime
    ) -> dict[str, Any]:
        turn, ending, spent, items = lease.turn, step.ending, step.spent, step.items
        growth = {
            "count": len(items),
            "tokens": sum(item.token_count for item in items),
            "at": items[-1].created_at if items else now,
            "conversation_id": turn.conversation_id,
            **sealed_items(cipher, items),
        }
        said_before = turn.message_count > 0
        return {
            **(growth if items else {}),
            "recalled": turn.store and (step.message_count > 0 or (ending is not None and not said_before)),
            "unindexed": None if said_before else turn.input_item_id,
            **sealed_events(cipher, told.events, now),
            **usage_values([UsageEntry(lease.user_id, record) for record in step.usage]),
            "lease_for": self._lease,
            "user_id": lease.user_id,
            "turn_id": turn.id,
            "fence": lease.fence,
            "key_version": cipher.key_version,
            "told": len(told.events),
            "status": TurnStatus.RUNNING if ending is None else ending.status,
            "new_step": step.step,
            "new_agent_id": step.agent_id,
            "new_tainted": step.tainted,
            "revision": told.revision,
            "stop_reason": None if ending is None else ending.stop_reason,
            "error_reason": None
            if ending is None or ending.error_reason is None
            else ending.error_reason.value,
            "retryable": ending is not None and ending.retryable,
            "now": now,
            "spent_prompt_tokens": spent.prompt_tokens,
            "spent_completion_tokens": spent.completion_tokens,
            "spent_embedding_tokens": spent.embedding_tokens,
            "spent_model_calls": spent.model_calls,
            "more_message_count": step.message_count,
            "more_tool_call_count": step.tool_call_count,
            "more_memory_writes": step.memory_writes,
        }


class _NotAcceptedError(Exception):
    """Undoes an interruption whose turn was not accepted."""


async def cancelled(
    transaction: Transaction,
    cipher: UserCipher,
    user_id: UUID,
    turns: Sequence[Turn],
    cause: CancelCause,
    *,
    now: datetime,
    by: UUID | None = None,
) -> Sequence[Event]:
    """End turns whose rows the transaction has locked, with an event each."""
    told = [
        (
            told_of(turn),
            NewEvent(
                new_id(now),
                Cancelled(cause, turn.step, turn.message_count, turn.usage, turn.memory_revision, by),
                turn.step,
            ),
        )
        for turn in turns
    ]
    row = await transaction.fetchrow(
        turn_statements.CANCEL,
        user_id=user_id,
        ids=[turn.id for turn in turns],
        cause=cause,
        now=now,
        told=len(told),
        key_version=cipher.key_version,
        **sealed_events(cipher, told, now),
    )
    assert row is not None
    return told_events(told, now, base=row["event_base"])


def _told(turn: Turn, step: Step, revision: int) -> _Told:
    return _Told([(told_of(turn), event) for event in step.tell(revision)], revision)


def _stored(lease: Lease, step: Step, told: _Told, row: Record | None, now: datetime) -> Stored:
    if row is None:
        raise LeaseLost
    turn, ending = lease.turn, step.ending
    events = told_events(told.events, now, base=row["event_base"], item_base=row["base"])
    after = replace(
        turn,
        step=step.step,
        agent_id=step.agent_id or turn.agent_id,
        message_count=turn.message_count + step.message_count,
        tool_call_count=turn.tool_call_count + step.tool_call_count,
        memory_writes=turn.memory_writes + step.memory_writes,
        tainted=turn.tainted or step.tainted,
        usage=turn.usage + step.spent,
        memory_revision=max(turn.memory_revision, told.revision),
        last_event=row["event_base"] + len(told.events),
    )
    if ending is not None:
        after = replace(
            after,
            status=ending.status,
            stop_reason=ending.stop_reason,
            error_reason=ending.error_reason,
            retryable=ending.retryable,
            ended_at=now,
        )
    return Stored(events, replace(lease, turn=after, thread_end=_thread_end(lease, step, row["base"])))


def _thread_end(lease: Lease, step: Step, base: int | None) -> int | None:
    """Every turn that is accepted makes its thread longer. `base` is how long it was, read under its lock; a
    step without items has not looked."""
    return None if base is None or base != lease.thread_end else base + len(step.items)


def _repeated(first: replays.Replay) -> Acceptance:
    return Acceptance(UUID(first.answer), repeated=True)


def _lease(row: Record) -> Lease:
    return Lease(row["user_id"], turn_of(row), row["fence"])


def _is_running(error: asyncpg.UniqueViolationError) -> bool:
    """Whether a turn was to run beside another one."""
    return error.constraint_name == "uq_turns_running"
