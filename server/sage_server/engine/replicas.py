"""What this process and the others tell each other, and whether its caches may still be believed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from uuid import UUID

from sage_server.engine.caches import Caches
from sage_server.ports.stores import Replica, ReplicaStore

STALE_AFTER = 5.0
"""A process that has not heard of the others for this long (it was frozen, or the database was away) drops
its caches before it serves again."""
_CONFIRM_WITHIN = 5.0
_CONFIRM_POLL = 0.1


class Replicas:
    """This process among its peers."""

    def __init__(self, store: ReplicaStore, caches: Caches, me: Replica) -> None:
        self._store = store
        self._caches = caches
        self._me = me
        self._applied = -1
        self._synced_at = 0.0
        self._lock = asyncio.Lock()

    @property
    def me(self) -> Replica:
        """This process."""
        return self._me

    async def sync(self) -> None:
        """Report, and drop what others say must be dropped."""
        async with self._lock:
            started = time.monotonic()
            if self._applied < 0 or started - self._synced_at > STALE_AFTER:
                self._applied = await self._store.head()
                self._caches.forget_all()
            for signal in await self._store.report(self._me, self._applied):
                self._caches.forget(signal.user_id)
                self._applied = signal.seq
            self._synced_at = started

    @property
    def stale(self) -> bool:
        """Whether the caches may not be believed before the next `sync`."""
        return time.monotonic() - self._synced_at > STALE_AFTER

    async def forget_everywhere(self, user_id: UUID, signal: int | None = None) -> tuple[int, int]:
        """Have every replica drop the user, and wait for their word, but not for ever.

        Answers with how many have confirmed and how many have not.
        """
        self._caches.forget(user_id)
        if signal is None:
            signal = await self._store.signal(user_id)
        await self.sync()
        await self.sync()  # the first applies, the second reports that it did
        give_up = time.monotonic() + _CONFIRM_WITHIN
        while True:
            confirmed, behind = await self._store.behind(signal)
            if not behind or time.monotonic() > give_up:
                return confirmed, behind
            await asyncio.sleep(_CONFIRM_POLL)

    async def leave(self) -> None:
        """This process stops."""
        await self._store.leave(self._me.id)

    async def live(self) -> Sequence[Replica]:
        """Everybody who reported lately."""
        return await self._store.live()
