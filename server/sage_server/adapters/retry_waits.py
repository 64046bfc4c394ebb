"""How long to wait before a provider is asked again."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_LONGEST_BACKOFF = 8.0


def backoff(first_seconds: float, tries: int) -> float:
    """Our own wait after so many tries: twice as long each time, spread at random."""
    longest = min(first_seconds * 2.0 ** (tries - 1), _LONGEST_BACKOFF)
    return longest * random.uniform(0.5, 1)  # noqa: S311 (only spreads the tries)


def retry_after(value: str | None) -> float | None:
    """The wait that a Retry-After header asks for, of seconds or a date; None for anything else."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value).astimezone(UTC) - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)
