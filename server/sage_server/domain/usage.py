"""What models were used for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from uuid import UUID

DEFAULT_PERIOD = timedelta(days=30)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UsagePurpose(IntEnum):
    """What a model call was for. Stored as a number."""

    STEP = 1
    CORRECTION = 2
    SUMMARY = 3
    ROUTING = 4
    EMBEDDING = 5


@dataclass(frozen=True)
class UsageKey:
    """What is counted together: one model and purpose on one day in UTC."""

    day: date
    model: str
    purpose: UsagePurpose


@dataclass(frozen=True)
class UsageCounts:
    """Calls that were answered, and tokens as the provider counted them."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    embedding_tokens: int = 0

    def __add__(self, other: UsageCounts) -> UsageCounts:
        return UsageCounts(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.embedding_tokens + other.embedding_tokens,
        )


@dataclass(frozen=True)
class UsageRecord:
    """What one model was used for on one day."""

    key: UsageKey
    counts: UsageCounts


@dataclass(frozen=True)
class UsageEntry:
    """Usage of one user, to be added to what is counted already."""

    user_id: UUID
    record: UsageRecord


@dataclass(frozen=True)
class UsagePeriod:
    """Whole days in UTC."""

    first: date
    last: date
    """Inclusive. Before `first` if the period has no day."""

    @classmethod
    def between(cls, start: datetime, end: datetime) -> UsagePeriod:
        """From the day in which `start` lies to the last day that begins before `end`; times are in UTC.

        A midnight is therefore the day after the last, and now includes today.
        """
        return cls(start.date(), (max(end, _EPOCH) - datetime.resolution).date())
