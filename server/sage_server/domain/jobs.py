"""Background jobs: what they are about, how they end, and when they are tried again."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeAlias
from uuid import UUID

NOTHING = UUID(int=0)
"""The subject of a job that is about the user as a whole."""
WORKER_LOST = "WorkerLost"
"""The reason of a job whose workers died under it, again and again."""
MALFORMED = "MalformedPayload"
"""The reason of a job that cannot be read."""
_PAYLOAD = struct.Struct(">16s16sqq")
_DOUBLINGS = 30


class JobKind(Enum):
    """What can be done in the background. The values are stored."""

    INDEX_ITEMS = "index_items"
    REEMBED_USER = "reembed_user"
    INGEST_DOCUMENT = "ingest_document"


@dataclass(frozen=True)
class Job:
    """Something to do for a user. Ids and positions only, never anything that a person wrote.

    `subject` is a conversation or a document; `first` and `last` are positions in it.
    """

    kind: JobKind
    user_id: UUID
    subject: UUID = NOTHING
    first: int = 0
    last: int = 0

    def pack(self) -> bytes:
        """48 bytes, as SQL makes them: uuid_send, uuid_send, int8send, int8send."""
        return _PAYLOAD.pack(self.user_id.bytes, self.subject.bytes, self.first, self.last)

    @classmethod
    def unpack(cls, kind: JobKind, payload: bytes) -> Job:
        """Reads `pack`. Raises ValueError if it is none."""
        if len(payload) != _PAYLOAD.size:
            raise ValueError("not the payload of a job")
        user_id, subject, first, last = _PAYLOAD.unpack(payload)
        return cls(kind, UUID(bytes=user_id), UUID(bytes=subject), first, last)


@dataclass(frozen=True)
class Attempt:
    """A job in the hands of a worker.

    `number` counts the tries since it was queued or revived, this one included. `lost` counts how often in
    a row a worker took the job and was never heard of again.
    """

    id: int
    job: Job
    number: int
    lost: int


@dataclass(frozen=True)
class Done:
    """Nothing is left to do."""


@dataclass(frozen=True)
class Again:
    """It failed and is tried again after a while."""

    delay: timedelta
    error_type: str


@dataclass(frozen=True)
class Dead:
    """It failed for good. The reason is a name, never the text of an error."""

    error_type: str


Outcome: TypeAlias = Done | Again | Dead


@dataclass(frozen=True)
class RetryPolicy:
    """How often a job is tried, and how long it waits in between: twice as long each time.

    An outage of something that jobs need is no fault of the job: `patient_attempts` is for that, about a day.
    """

    attempts: int = 6
    patient_attempts: int = 300
    first: timedelta = timedelta(seconds=2)
    longest: timedelta = timedelta(minutes=5)

    def after(self, number: int, error_type: str, retry_after: timedelta | None = None) -> Outcome:
        """What becomes of a job whose try `number` failed. `retry_after` is what an outage asks for."""
        if number >= (self.attempts if retry_after is None else self.patient_attempts):
            return Dead(error_type)
        delay = min(self.first * 2 ** min(number - 1, _DOUBLINGS), self.longest)
        return Again(max(delay, retry_after or delay), error_type)


@dataclass(frozen=True)
class DeadJob:
    """A job that failed for good and is kept. `error_type` is a name, never a text."""

    id: int
    kind: JobKind
    attempts: int
    error_type: str
    created_at: datetime
    failed_at: datetime


@dataclass(frozen=True)
class JobQueueStats:
    """How one kind of job is doing. `lag_seconds` is the age of the oldest that waits."""

    kind: JobKind
    queued: int
    running: int
    dead: int
    lag_seconds: float


@dataclass(frozen=True)
class Backlog:
    """Jobs that are due and that nobody takes.

    `age_seconds` is for how long the oldest of them has been due. `idle_seconds` is how long ago any worker
    took a job or said that it is at one; None if none ever did.
    """

    overdue: int
    age_seconds: float
    idle_seconds: float | None

    def is_stuck(self, patience: timedelta) -> bool:
        """Whether there is work and no worker. A long queue that moves is not stuck."""
        idle = self.idle_seconds
        return self.overdue > 0 and (idle is None or idle > patience.total_seconds())
