"""Statements on turns. Locks are taken in one order: turn, conversation, blocks, head of the user."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    DateTime,
    Integer,
    Interval,
    SmallInteger,
    Text,
    Uuid,
    bindparam,
    case,
    cast,
    exists,
    func,
    insert,
    literal,
    null,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.selectable import CTE, FromClause

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.database import Statement
from sage_server.adapters.postgres.event_rows import inserted_events
from sage_server.adapters.postgres.items import grown, indexed_later, inserted_items
from sage_server.adapters.postgres.jobs import enqueued
from sage_server.adapters.postgres.schema import (
    IS_QUEUED,
    IS_RUNNING,
    agents,
    conversations,
    heads,
    items,
    requests,
    turns,
)
from sage_server.adapters.postgres.turn_rows import TURN_COLUMNS, USAGE
from sage_server.adapters.postgres.usage import added_usage
from sage_server.domain.jobs import JobKind
from sage_server.domain.turns import TurnStatus

_t, _c, _h, _i = turns.c, conversations.c, heads.c, items.c
_TIME = DateTime(timezone=True)
_LEASE_FOR = bindparam("lease_for", type_=Interval())
_OWNER = bindparam("owner", type_=Uuid())
_NOW = bindparam("now", type_=_TIME)
_USER = bindparam("user_id", type_=Uuid())
_TURN = bindparam("turn_id", type_=Uuid())
_CONVERSATION = bindparam("conversation_id", type_=Uuid())
_RECALLED = bindparam("recalled", type_=Boolean())
_UNINDEXED = bindparam("unindexed", type_=Uuid())
"""The turn's message, while nothing has been indexed of the turn."""
IS_ACTIVE = IS_QUEUED | IS_RUNNING
_MINE = (_t.user_id == _USER) & (_t.id == _TURN)
_HELD = (
    _MINE
    & IS_RUNNING
    & (_t.fence == bindparam("fence", type_=BigInteger()))
    & (_t.lease_until > func.clock_timestamp())
)


def _numbered(told: ColumnElement[Any], *where: ColumnElement[bool]) -> CTE:
    """Take the user's next event numbers. The row's lock, held until commit, makes their order the order of
    commits."""
    return (
        update(heads)
        .where(_h.user_id == _USER, *where)
        .values(last_event=_h.last_event + told)
        .returning((_h.last_event - told).label("base"), told.label("told"))
        .cte("head")
    )


def _accept(*, once: bool) -> Statement:
    """Message, turn, events and kept answer in one statement. The message is indexed with the turn's answer,
    or its end: see `_commit` and `_cancel`.

    It runs at once if no other turn is active. What is active is seen as of the beginning of the statement.
    A turn that was accepted since has made the thread longer: then nothing is stored, so that turns run in
    the order of their numbers and places in the queue are exact, and the statement is to be run again. One
    that ended since leaves this one waiting, and whoever accepted it takes it.
    """
    long = select(_c.last_seq).where(_c.user_id == _USER, _c.id == _CONVERSATION).scalar_subquery()
    active = (
        select(func.count().label("n"), long.label("long"))
        .where(_t.user_id == _USER, _t.conversation_id == _CONVERSATION, IS_ACTIVE)
        .cte("active")
    )
    ahead = select(active.c.n).scalar_subquery()
    runs = ahead == 0
    room = grown(
        _c.deleted_at.is_(None),
        _c.kind == bindparam("kind", type_=SmallInteger()),
        ahead <= bindparam("most_ahead", type_=BigInteger()),
        _c.last_seq == select(active.c.long).scalar_subquery(),
    )
    told = case(
        (runs, bindparam("told_running", type_=BigInteger())),
        else_=bindparam("told_waiting", type_=BigInteger()),
    )
    head = _numbered(told, exists(select(room.c.base)))
    values: dict[str, ColumnElement[Any]] = {
        "user_id": _USER,
        "id": _TURN,
        "conversation_id": _CONVERSATION,
        "agent_id": bindparam("agent_id", type_=Uuid()),
        "own_thread": bindparam("own_thread", type_=Boolean()),
        "status": case(
            (runs, literal(int(TurnStatus.RUNNING), SmallInteger())),
            else_=literal(int(TurnStatus.QUEUED), SmallInteger()),
        ),
        "origin": bindparam("origin", type_=SmallInteger()),
        "store": bindparam("store", type_=Boolean()),
        "lease_owner": case((runs, _OWNER)),
        "lease_until": case((runs, func.clock_timestamp() + _LEASE_FOR)),
        "fence": case((runs, literal(1, BigInteger())), else_=literal(0, BigInteger())),
        "request_id": bindparam("turn_request_id", type_=Uuid()),
        "input_item_id": bindparam("input_item_id", type_=Uuid()),
        "parent_turn_id": bindparam("parent_turn_id", type_=Uuid()),
        "first_event": head.c.base + 1,
        "last_event": head.c.base + head.c.told,
        "created_at": _NOW,
        "started_at": case((runs, _NOW)),
    }
    begun = (
        update(agents)
        .where(
            agents.c.user_id == _USER,
            agents.c.id == bindparam("agent_id", type_=Uuid()),
            runs,
            exists(select(head.c.base)),
        )
        .values(last_turn_at=_NOW)
    )
    statement = select(room.c.base, head.c.base.label("event_base"), head.c.told, active.c.n).add_cte(
        inserted_items(room).cte("inserted"),
        insert(turns).from_select(list(values), select(*values.values()).select_from(head)).cte("new_turn"),
        inserted_events(
            head, select(room.c.base).scalar_subquery(), func.cast(ahead, Integer()), some=True
        ).cte("new_events"),
        begun.cte("begun"),
    )
    if once:
        kept = select(*replays.VALUES.values()).select_from(head)
        statement = statement.add_cte(insert(requests).from_select([*replays.VALUES], kept).cte("kept"))
    return Statement(statement)


ACCEPT = {once: _accept(once=once) for once in (False, True)}
ACTIVE_TURNS = Statement(
    select(*TURN_COLUMNS)
    .where(_t.user_id == _USER, _t.conversation_id == _CONVERSATION, IS_ACTIVE)
    .order_by(_t.first_event)
    .with_for_update()
)
"""Several turns are locked in the order of their first events everywhere: one that is passed over, because it
ended while a statement waited for it, stays locked all the same."""
ACTIVE_IN = Statement(
    select(*TURN_COLUMNS)
    .where(
        _t.user_id == _USER,
        _t.conversation_id == func.any(bindparam("conversation_ids", type_=ARRAY(Uuid()))),
        IS_ACTIVE,
    )
    .order_by(_t.first_event)
    .with_for_update()
)
LOCK_THREAD = Statement(
    select(_c.id).where(_c.user_id == _USER, _c.id == _CONVERSATION).with_for_update(key_share=True)
)
BUSY_WITH = Statement(
    select(_t.id)
    .where(_t.user_id == _USER, _t.conversation_id == _CONVERSATION, IS_ACTIVE)
    .order_by(_t.first_event)
)
GET = Statement(select(*TURN_COLUMNS).where(_MINE))
LOCK = Statement(select(*TURN_COLUMNS).where(_MINE).with_for_update())

HOLD = Statement(
    select(_c.id)
    .where(
        _c.user_id == _USER,
        _c.id.in_(select(_t.conversation_id).where(_HELD).with_for_update().cte("held").select()),
    )
    .with_for_update(key_share=True)
)
"""Make sure of a turn and its thread before its effects are stored."""


def _indexed_alone(source: FromClause, *where: ColumnElement[bool]) -> CTE:
    """Have the messages of turns indexed that say nothing more: `source` has their ids and threads."""
    found = source.join(items, (_i.user_id == _USER) & (_i.id == source.c.input_item_id)).join(
        conversations, (_c.user_id == _i.user_id) & (_c.id == _i.conversation_id)
    )
    return enqueued(
        JobKind.INDEX_ITEMS,
        user_id=_USER,
        subject=_i.conversation_id,
        first=_i.seq,
        last=_i.seq,
        source=found,
        where=[~_c.private, *where],
    ).cte("job")


def _commit(*, growing: bool) -> Statement:
    """A step, or a turn's end, in one statement, if the lease is still held. What the turn says is indexed,
    the first time together with the message that it answers."""
    held = select(_t.id).where(_HELD).with_for_update().cte("held")
    is_held = exists(select(held.c.id))
    told = bindparam("told", type_=BigInteger())
    room = grown(_c.deleted_at.is_(None), is_held) if growing else None
    head = _numbered(told, is_held if room is None else exists(select(room.c.base)))
    ended = bindparam("status", type_=SmallInteger())
    still = ended == int(TurnStatus.RUNNING)
    advanced = (
        update(turns)
        .where(_MINE, exists(select(head.c.base)))
        .values(
            status=ended,
            step=bindparam("new_step", type_=Integer()),
            agent_id=func.coalesce(bindparam("new_agent_id", type_=Uuid()), _t.agent_id),
            last_event=select(head.c.base + head.c.told).scalar_subquery(),
            tainted=_t.tainted | bindparam("new_tainted", type_=Boolean()),
            memory_revision=func.greatest(_t.memory_revision, bindparam("revision", type_=BigInteger())),
            lease_owner=case((still, _t.lease_owner)),
            lease_until=case((still, func.clock_timestamp() + _LEASE_FOR)),
            stop_reason=bindparam("stop_reason", type_=SmallInteger()),
            error_reason=bindparam("error_reason", type_=Text()),
            retryable=bindparam("retryable", type_=Boolean()),
            ended_at=case((still, null()), else_=_NOW),
            **{name: _t[name] + bindparam(f"spent_{name}", type_=_t[name].type) for name in USAGE},
            **{
                name: _t[name] + bindparam(f"more_{name}", type_=Integer())
                for name in ("message_count", "tool_call_count", "memory_writes")
            },
        )
    )
    base: ColumnElement[Any] = cast(null(), BigInteger())
    if room is not None:
        base = select(room.c.base).scalar_subquery()
    statement = select(head.c.base.label("event_base"), base.label("base")).add_cte(
        advanced.cte("advanced"),
        inserted_events(head, base, None).cte("new_events"),
        added_usage(head).cte("used"),
    )
    if room is None:
        alone = select(_UNINDEXED.label("input_item_id")).select_from(head).cte("alone")
        return Statement(statement.add_cte(_indexed_alone(alone, _RECALLED)))
    message = select(_i.seq).where(_i.user_id == _USER, _i.id == _UNINDEXED).scalar_subquery()
    return Statement(
        statement.add_cte(inserted_items(room).cte("inserted"), indexed_later(room, _RECALLED, since=message))
    )


COMMIT = {growing: _commit(growing=growing) for growing in (False, True)}
"""By whether the step has items."""


def _cancel() -> Statement:
    """End turns that are locked, with an event each."""
    arrays = [bindparam("ids", type_=ARRAY(Uuid()))]
    which = func.unnest(*arrays).table_valued("id", with_ordinality="n", name="which").render_derived()
    head = _numbered(bindparam("told", type_=BigInteger()))
    ended = (
        update(turns)
        .where(_t.user_id == _USER, _t.id == which.c.id, IS_ACTIVE)
        .values(
            status=int(TurnStatus.CANCELLED),
            fence=_t.fence + 1,
            lease_owner=null(),
            lease_until=null(),
            cancel_cause=bindparam("cause", type_=SmallInteger()),
            ended_at=_NOW,
            last_event=select(head.c.base).scalar_subquery() + which.c.n,
        )
        .returning(_t.input_item_id, _t.store, _t.message_count)
        .cte("ended")
    )
    return Statement(
        select(head.c.base.label("event_base")).add_cte(
            inserted_events(head, None, None).cte("new_events"),
            _indexed_alone(ended, ended.c.store, ended.c.message_count == 0),
        )
    )


CANCEL = _cancel()
_TAKEN = {
    "status": int(TurnStatus.RUNNING),
    "lease_owner": _OWNER,
    "lease_until": func.clock_timestamp() + _LEASE_FOR,
    "fence": _t.fence + 1,
    "started_at": func.coalesce(_t.started_at, _NOW),
}
_TAKEN_COLUMNS = (_t.user_id, _t.fence, *TURN_COLUMNS)
_other = turns.alias("other")
_none_runs = ~exists(
    select(_other.c.id).where(
        _other.c.user_id == _t.user_id,
        _other.c.conversation_id == _t.conversation_id,
        _other.c.status == int(TurnStatus.RUNNING),
    )
)
_first = (
    select(_t.id)
    .where(_t.user_id == _USER, _t.conversation_id == _CONVERSATION, IS_QUEUED, _none_runs)
    .order_by(_t.first_event)
    .limit(1)
    .with_for_update()
)
TAKE_NEXT = Statement(
    update(turns)
    .where(_t.user_id == _USER, _t.id.in_(_first.cte("first").select()), IS_QUEUED)
    .values(_TAKEN)
    .returning(*_TAKEN_COLUMNS)
)
_lapsed = (
    select(_t.user_id, _t.id)
    .where(IS_RUNNING, _t.lease_until <= func.clock_timestamp())
    .order_by(_t.lease_until)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
)
TAKE_LAPSED = Statement(
    update(turns)
    .where(tuple_(_t.user_id, _t.id).in_(_lapsed.cte("lapsed").select()), IS_RUNNING)
    .values(_TAKEN)
    .returning(*_TAKEN_COLUMNS)
)
WAITING_THREADS = Statement(
    select(_t.user_id, _t.conversation_id).where(IS_QUEUED, _none_runs).distinct().limit(bindparam("limit"))
)
_renewed = (
    func.unnest(bindparam("user_ids", type_=ARRAY(Uuid())), bindparam("ids", type_=ARRAY(Uuid())))
    .table_valued("user_id", "id", name="renewed")
    .render_derived()
)
_mine = (
    select(_t.user_id, _t.id)
    .where(
        tuple_(_t.user_id, _t.id).in_(select(_renewed.c.user_id, _renewed.c.id)),
        _t.lease_owner == _OWNER,
        IS_RUNNING,
        _t.lease_until > func.clock_timestamp(),
    )
    .order_by(_t.user_id, _t.first_event)
    .with_for_update()
)
RENEW = Statement(
    update(turns)
    .where(tuple_(_t.user_id, _t.id).in_(_mine.cte("mine").select()), IS_RUNNING)
    .values(lease_until=func.clock_timestamp() + _LEASE_FOR)
    .returning(_t.user_id, _t.id)
)
RELEASE = Statement(
    update(turns)
    .where(_t.lease_owner == _OWNER, IS_RUNNING)
    .values(lease_owner=null(), lease_until=func.clock_timestamp())
)


def listed(names: frozenset[str], *, following: bool) -> Statement:
    """A page of turns, the newest first; `names` are the conditions that it has."""
    tests: dict[str, ColumnElement[bool]] = {
        "agent_id": _t.agent_id == bindparam("agent_id", type_=Uuid()),
        "conversation_id": _t.conversation_id == _CONVERSATION,
        "statuses": _t.status == func.any(bindparam("statuses", type_=ARRAY(SmallInteger()))),
        "origins": _t.origin == func.any(bindparam("origins", type_=ARRAY(SmallInteger()))),
        "start": _t.created_at >= bindparam("start", type_=_TIME),
        "end": _t.created_at < bindparam("end", type_=_TIME),
    }
    last = _t.id < bindparam("after", type_=Uuid()) if following else true()
    page = select(*TURN_COLUMNS).where(_t.user_id == _USER, last, *(tests[name] for name in sorted(names)))
    return Statement(page.order_by(_t.id.desc()).limit(bindparam("limit")))
