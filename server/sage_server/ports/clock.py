"""Time."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The only source of the time of day."""

    def now(self) -> datetime:
        """The current time, in UTC, to the microsecond."""
        ...
