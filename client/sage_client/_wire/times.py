"""Times and durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_from(message: Timestamp) -> datetime:
    """A time in UTC. Read it only where the contract always sets it."""
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def time_to(value: datetime | None) -> Timestamp | None:
    """A time as the contract carries it. A time without a zone is refused: it could mean any."""
    if value is None:
        return None
    if value.tzinfo is None:
        raise ValueError("a time needs a time zone, for example datetime.now(UTC)")
    message = Timestamp()
    message.FromDatetime(value)
    return message


def duration_to(value: timedelta | None) -> Duration | None:
    """A duration as the contract carries it."""
    if value is None:
        return None
    message = Duration()
    message.FromTimedelta(value)
    return message
