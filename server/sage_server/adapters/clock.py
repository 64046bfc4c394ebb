"""The machine's clock."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """Time from the operating system."""

    def now(self) -> datetime:
        """The current time, in UTC."""
        return datetime.now(UTC)
