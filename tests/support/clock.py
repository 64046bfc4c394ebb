"""A clock that tests move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Runs with the machine's clock, plus what tests add."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def advance(self, step: timedelta) -> None:
        self._ahead += step


class StoppedClock(FakeClock):
    """Stands still but for what tests add."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped = datetime.now(UTC)

    def now(self) -> datetime:
        return self._stopped + self._ahead
