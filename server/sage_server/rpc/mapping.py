"""Between the contract's messages and the domain: what all services share."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp

from sage_server.domain.errors import SageError, invalid
from sage_server.domain.idempotency import Once

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_timestamp(at: datetime | None) -> Timestamp | None:
    """A time, or nothing."""
    if at is None:
        return None
    timestamp = Timestamp()
    set_time(timestamp, at)
    return timestamp


def set_time(timestamp: Timestamp, at: datetime) -> None:
    """Write a time into a message."""
    since = at - _EPOCH
    timestamp.seconds = since.days * 86_400 + since.seconds
    timestamp.nanos = since.microseconds * 1000


def from_timestamp(request: Any, field: str) -> datetime | None:
    """The time in a field, or None if it is not set. INVALID_ARGUMENT if it is no time."""
    if not request.HasField(field):
        return None
    try:
        found: datetime = getattr(request, field).ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise invalid(field, "must be a valid time") from None
    return found


def from_time_of(message: Any, field: str, place: str) -> datetime | None:
    """As `from_timestamp`, for a message inside a request; `place` comes before the field in a refusal."""
    try:
        return from_timestamp(message, field)
    except SageError:
        raise invalid(f"{place}{field}", "must be a valid time") from None


def once(request: Any, scope: str = "") -> Once | None:
    """The request's id with a digest of all of it, or None if it has no id.

    `scope` is what else the answer depends on, where several callers share a space of request ids.
    """
    if not request.request_id:
        return None
    name = f"{request.DESCRIPTOR.full_name}\0{scope}".encode()
    body = request.SerializeToString(deterministic=True)
    return Once(UUID(request.request_id), hashlib.sha256(name + b"\0" + body).digest())
