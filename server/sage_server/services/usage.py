"""What models were used for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sage_server.domain.usage import DEFAULT_PERIOD, UsagePeriod, UsagePurpose, UsageRecord
from sage_server.engine.usage import UsageMeter
from sage_server.ports.clock import Clock
from sage_server.ports.usage import UsageStore


class Usage:
    """Tells a user what was counted."""

    def __init__(self, *, usage: UsageStore, meter: UsageMeter, clock: Clock) -> None:
        self._usage = usage
        self._meter = meter
        self._clock = clock

    async def list(
        self, user_id: UUID, *, start: datetime | None, end: datetime | None, purpose: UsagePurpose | None
    ) -> Sequence[UsageRecord]:
        """The records of a period, the newest day first; see UsagePeriod. By default of the last 30 days.

        What this replica has counted is in it; what another has counted within the last seconds may not.
        """
        await self._meter.flush()
        now = self._clock.now()
        period = UsagePeriod.between(start or now - DEFAULT_PERIOD, end or now)
        return await self._usage.list(user_id, period, purpose)
