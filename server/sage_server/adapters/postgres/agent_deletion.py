"""What goes with an agent, or with the items of its own thread.

Locks are taken in the order of turns: turn, conversation, head of the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Uuid, bindparam, delete, null, select, update
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Record, Statement, Transaction
from sage_server.adapters.postgres.memory_statements import removed
from sage_server.adapters.postgres.schema import (
    agents,
    conversation_summaries,
    conversations,
    documents,
    events,
    heads,
    items,
    memories,
    memory_blocks,
    turns,
)
from sage_server.adapters.postgres.turn_rows import TURN_COLUMNS, turn_of
from sage_server.adapters.postgres.turn_statements import IS_ACTIVE
from sage_server.adapters.postgres.turns import cancelled
from sage_server.domain.agents import Agent, agent_not_found
from sage_server.domain.events import ENDS, KIND_OF, Event
from sage_server.domain.turns import CancelCause, turn_busy
from sage_server.ports.agents import ClearedThread, DeletedAgent
from sage_server.ports.keys import UserCipher
from sage_server.ports.memories import Removed

_t, _c, _e, _m = turns.c, conversations.c, events.c, memories.c
_USER = bindparam("user_id", type_=Uuid())
_AGENT = bindparam("agent_id", type_=Uuid())
_THREAD = bindparam("conversation_id", type_=Uuid())
_TURNS_OF_THREAD = (_t.user_id == _USER) & (_t.conversation_id == _THREAD)
_TURNS_OF_AGENT = (_t.user_id == _USER) & ((_t.agent_id == _AGENT) | (_t.conversation_id == _THREAD))
_NO_ENDING = [_e.kind != int(KIND_OF[ending]) for ending in ENDS]


def _forgotten(which: ColumnElement[bool]) -> Statement:
    """Delete what was told of turns, but how they ended: that shows nothing, and whoever attaches to such a
    turn still learns that it has ended."""
    return Statement(
        delete(events).where(_e.user_id == _USER, _e.turn_id.in_(select(_t.id).where(which)), *_NO_ENDING)
    )


_LOCK_TURNS = Statement(
    select(*TURN_COLUMNS).where(_TURNS_OF_AGENT, IS_ACTIVE).order_by(_t.first_event).with_for_update()
)
_BUSY_WITH = Statement(select(_t.id).where(_TURNS_OF_THREAD, IS_ACTIVE).order_by(_t.first_event).limit(1))
_LOCK_THREAD = Statement(select(_c.id).where(_c.user_id == _USER, _c.id == _THREAD).with_for_update())
_LOCK_HEAD = Statement(select(heads.c.memory_revision).where(heads.c.user_id == _USER).with_for_update())
_LOCK_AGENT = Statement(
    select(agents.c.id)
    .where(
        agents.c.user_id == _USER,
        agents.c.id == _AGENT,
        agents.c.version == bindparam("version", type_=BigInteger()),
    )
    .with_for_update()
)
_FORGET_OF_AGENT = _forgotten(_TURNS_OF_AGENT)
_FORGET_OF_THREAD = _forgotten(_TURNS_OF_THREAD)
_REMOVE_OF_AGENT = Statement(removed((_m.agent_id == _AGENT) | (_m.conversation_id == _THREAD)))
_REMOVE_OF_THREAD = Statement(removed(_m.conversation_id == _THREAD))
_DELETE_DOCUMENTS = Statement(
    delete(documents).where(documents.c.user_id == _USER, documents.c.agent_id == _AGENT)
)
_DELETE_BLOCKS = Statement(
    delete(memory_blocks).where(memory_blocks.c.user_id == _USER, memory_blocks.c.agent_id == _AGENT)
)
_DELETE_ITEMS = Statement(delete(items).where(items.c.user_id == _USER, items.c.conversation_id == _THREAD))
_DELETE_SUMMARIES = Statement(
    delete(conversation_summaries).where(
        conversation_summaries.c.user_id == _USER, conversation_summaries.c.conversation_id == _THREAD
    )
)
_DELETE_THREAD = Statement(delete(conversations).where(_c.user_id == _USER, _c.id == _THREAD))
# Positions go on from where they were, so that none ever names two items.
_EMPTY_THREAD = Statement(
    update(conversations)
    .where(_c.user_id == _USER, _c.id == _THREAD)
    .values(message_count=0, total_tokens=0, last_item_at=null())
)


async def delete_agent(
    transaction: Transaction, *, cipher: UserCipher, user_id: UUID, agent: Agent, now: datetime
) -> DeletedAgent | None:
    """All of it; None, and nothing is done, if the agent is of another version by now."""
    of_thread = {"user_id": user_id, "conversation_id": agent.conversation_id}
    of_agent = {"user_id": user_id, "agent_id": agent.id}
    either = of_thread | of_agent
    await transaction.fetch(_LOCK_TURNS, **either)
    await transaction.fetchrow(_LOCK_THREAD, **of_thread)
    # Once more: a turn may have been accepted before the thread was locked, and none can be since.
    active = [turn_of(row) for row in await transaction.fetch(_LOCK_TURNS, **either)]
    head = await transaction.fetchrow(_LOCK_HEAD, user_id=user_id)
    if await transaction.fetchrow(_LOCK_AGENT, **of_agent, version=agent.version) is None:
        return None
    assert head is not None
    blocks = await transaction.execute(_DELETE_BLOCKS, **of_agent)
    gone = await transaction.fetch(_REMOVE_OF_AGENT, **either, now=now)
    await transaction.execute(_DELETE_DOCUMENTS, **of_agent)
    await transaction.execute(_FORGET_OF_AGENT, **either)
    told: Sequence[Event] = ()
    if active:
        told = await cancelled(transaction, cipher, user_id, active, CancelCause.DELETED, now=now)
    deleted = await transaction.execute(_DELETE_ITEMS, **of_thread)
    # The agent, its turns in the thread and the thread's notes and summaries go with it.
    await transaction.execute(_DELETE_THREAD, **of_thread)
    return DeletedAgent(deleted, blocks, _removed(gone, head), told)


async def clear_thread(
    transaction: Transaction, *, user_id: UUID, agent: Agent, now: datetime
) -> ClearedThread:
    """Its items and what was made of them."""
    of_thread = {"user_id": user_id, "conversation_id": agent.conversation_id}
    if await transaction.fetchrow(_LOCK_THREAD, **of_thread) is None:
        raise agent_not_found()
    busy = await transaction.fetchrow(_BUSY_WITH, **of_thread)
    if busy is not None:
        raise turn_busy(busy["id"])
    summaries = await transaction.execute(_DELETE_SUMMARIES, **of_thread)
    deleted = await transaction.execute(_DELETE_ITEMS, **of_thread)
    await transaction.execute(_FORGET_OF_THREAD, **of_thread)
    await transaction.execute(_EMPTY_THREAD, **of_thread)
    head = await transaction.fetchrow(_LOCK_HEAD, user_id=user_id)
    assert head is not None
    gone = await transaction.fetch(_REMOVE_OF_THREAD, **of_thread, now=now)
    return ClearedThread(deleted, summaries, _removed(gone, head))


def _removed(rows: list[Record], head: Record) -> Removed:
    """With a revision also when nothing was removed: what is there now has none of it."""
    revision = rows[0]["revision"] if rows else head["memory_revision"]
    return Removed(revision, [row["id"] for row in rows])
