"""Removing what is no longer kept."""

from __future__ import annotations

from datetime import timedelta

from sage_server.ports.clock import Clock
from sage_server.ports.stores import RetentionPolicy, RetentionStore

_BATCH = 1000


class Retention:
    """Applies the operator's retention. Safe on every replica at once."""

    def __init__(
        self, store: RetentionStore, clock: Clock, deleted_for: timedelta, inactive_for: timedelta | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._deleted_for = deleted_for
        self._inactive_for = inactive_for

    async def run(self) -> int:
        """Remove everything that is due; answers with how many rows."""
        now = self._clock.now()
        policy = RetentionPolicy(
            deleted_before=now - self._deleted_for,
            inactive_before=None if self._inactive_for is None else now - self._inactive_for,
        )
        pruned = 0
        while batch := await self._store.prune(policy, now, _BATCH):
            pruned += batch
        return pruned
