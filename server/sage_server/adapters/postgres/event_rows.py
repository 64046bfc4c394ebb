"""Rows of `events`: how they are sealed, numbered and opened."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from sqlalchemy import (
    ARRAY,
    DateTime,
    Integer,
    LargeBinary,
    SmallInteger,
    Uuid,
    bindparam,
    func,
    insert,
    select,
    true,
)
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.selectable import FromClause, TableValuedAlias
from sqlalchemy.types import TypeEngine

from sage_server.adapters.postgres.database import Record
from sage_server.adapters.postgres.schema import cell, events
from sage_server.domain.events import (
    EVENTS_KEPT,
    KIND_OF,
    Accepted,
    Event,
    EventChannel,
    NewEvent,
    Payload,
    Retrieved,
    Said,
    Told,
    Unknown,
)
from sage_server.ports.keys import UserCipher

_log = logging.getLogger("sage.events")
_e = events.c
_PAYLOAD = cell(_e.payload_enc)
_CODECS: dict[int, TypeAdapter[Payload]] = {kind: TypeAdapter(cls) for cls, kind in KIND_OF.items()}
EVENT_COLUMNS = tuple(column for column in events.c if column.name not in ("user_id", "expires_at"))
_ARRAYS: dict[str, TypeEngine[Any]] = {
    "id": Uuid(),
    "kind": SmallInteger(),
    "turn_id": Uuid(),
    "step": Integer(),
    "agent_id": Uuid(),
    "conversation_id": Uuid(),
    "channel": SmallInteger(),
    "item": Integer(),
    "payload_enc": LargeBinary(),
    "created_at": DateTime(timezone=True),
}


def new_events() -> TableValuedAlias:
    """The events of a statement's parameters as a table, numbered from 1 in `n`."""
    arrays: list[ColumnElement[Any]] = [
        bindparam(f"event_{name}", type_=ARRAY(type_)) for name, type_ in _ARRAYS.items()
    ]
    return func.unnest(*arrays).table_valued(*_ARRAYS, with_ordinality="n", name="told").render_derived()


def inserted_events(
    head: FromClause,
    item_base: ColumnElement[Any] | None,
    position: ColumnElement[Any] | None = None,
    *,
    some: bool = False,
) -> Insert:
    """Insert the events of the parameters after the number `base` of `head`; with `some` only as many as
    `told` of `head` says.

    `item_base` is the position before the items that the same statement stores; `position` is the place in
    the queue that all of them show.
    """
    new = new_events()
    names = ("id", "kind", "turn_id", "step", "agent_id", "conversation_id", "channel", "payload_enc")
    columns = ["user_id", "seq", "key_version", *names, "created_at", "expires_at"]
    values: list[ColumnElement[Any]] = [
        bindparam("user_id", type_=Uuid()),
        head.c.base + new.c.n,
        bindparam("key_version", type_=_e.key_version.type),
        *(new.c[name] for name in names),
        new.c.created_at,
        new.c.created_at + EVENTS_KEPT,
    ]
    if item_base is not None:
        columns.append("item_seq")
        values.append(item_base + new.c.item + 1)
    if position is not None:
        columns.append("queue_position")
        values.append(position)
    rows = select(*values).select_from(head.join(new, new.c.n <= head.c.told if some else true()))
    return insert(events).from_select(columns, rows, include_defaults=False)


def sealed_events(
    cipher: UserCipher, told: Sequence[tuple[Told, NewEvent]], now: datetime
) -> dict[str, list[Any]]:
    """The parameters of `new_events`."""
    return {
        "event_id": [event.id for _, event in told],
        "event_kind": [KIND_OF[type(event.payload)] for _, event in told],
        "event_turn_id": [whose.turn_id for whose, _ in told],
        "event_step": [event.step for _, event in told],
        "event_agent_id": [whose.agent_id for whose, _ in told],
        "event_conversation_id": [whose.conversation_id for whose, _ in told],
        "event_channel": [whose.channel for whose, _ in told],
        "event_item": [event.item for _, event in told],
        "event_payload_enc": [_sealed(cipher, event) for _, event in told],
        "event_created_at": [now] * len(told),
    }


def told_events(
    told: Sequence[tuple[Told, NewEvent]],
    now: datetime,
    *,
    base: int,
    item_base: int | None = None,
    position: int = 0,
) -> list[Event]:
    """The events as they were just stored, without reading them back."""
    return [
        Event(
            seq=base + n,
            turn_id=whose.turn_id,
            step=event.step,
            created_at=now,
            agent_id=whose.agent_id,
            conversation_id=whose.conversation_id,
            channel=whose.channel,
            payload=_placed(
                event.payload,
                None if event.item is None or item_base is None else item_base + event.item + 1,
                position,
            ),
        )
        for n, (whose, event) in enumerate(told, 1)
    ]


def opened_event(cipher: UserCipher, row: Record) -> Event:
    """A row of EVENT_COLUMNS. What another version of the server wrote, and this one cannot read, is Unknown:
    nobody is shown it, and everybody gets past it."""
    return Event(
        seq=row["seq"],
        turn_id=row["turn_id"],
        step=row["step"],
        created_at=row["created_at"],
        agent_id=row["agent_id"],
        conversation_id=row["conversation_id"],
        channel=EventChannel(row["channel"]),
        payload=_opened(cipher, row),
    )


def _opened(cipher: UserCipher, row: Record) -> Payload | Unknown:
    written = cipher.open(_PAYLOAD, row["id"], row["payload_enc"])
    codec = _CODECS.get(row["kind"])
    if codec is None:
        return Unknown()
    try:
        payload = codec.validate_json(written)
    except ValidationError:
        _log.error("an event cannot be read", extra={"row": row["id"], "kind": row["kind"]})
        return Unknown()
    return _placed(payload, row["item_seq"], row["queue_position"])


def _sealed(cipher: UserCipher, event: NewEvent) -> bytes:
    payload = event.payload
    if isinstance(payload, Retrieved):
        # By name: as a codec writes what was found, a new field would be read as another one.
        written = to_json({name: _named(value) for name, value in vars(payload).items()})
    else:
        written = _CODECS[KIND_OF[type(payload)]].dump_json(payload)
    return cipher.seal(_PAYLOAD, event.id, written)


def _named(value: Any) -> Any:
    """Tuples that have names for what they hold, as objects."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _named(inner) for name, inner in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [_named(inner) for inner in value]
    return dict(value) if isinstance(value, Mapping) else value


def _placed(payload: Payload, item_seq: int | None, position: int) -> Payload:
    """With the numbers that the statement handed out."""
    if isinstance(payload, Said):
        return replace(payload, item=replace(payload.item, seq=item_seq or 0))
    if isinstance(payload, Accepted):
        item = payload.input
        shown = None if item is None else replace(item, seq=item_seq or 0)
        return replace(payload, input=shown, queue_position=position)
    return payload
