"""Feature flags in memory: what is shared always, what is a user's while the user is about."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID

from sage_server.domain.flags import Feature, FlagState, decided
from sage_server.engine.lru import Lru
from sage_server.ports.flag_store import FlagStore, SharedFlags, UserFlags

_NONE: Mapping[str, bool] = {}


class FlagCache:
    """Implements FlagSource, and UserCache.

    A change holds here at the next `refresh`. While the database does not answer, what was read last holds.
    """

    def __init__(self, store: FlagStore, capacity: int) -> None:
        self._store = store
        self._shared = SharedFlags({}, {})
        self._revision: int | None = None
        self._users: Lru[UUID, UserFlags] = Lru(capacity)
        self._generation = 0
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        """Take over what has changed. One small statement if nothing has."""
        async with self._refreshing:
            generation = self._generation
            revision = await self._store.revision()
            if revision == self._revision:
                return
            self._shared = await self._store.shared()
            # What was read before somebody said "forget" must be read again.
            self._revision = revision if generation == self._generation else None
            self._drop_users()

    async def prepare(self, user_id: UUID | None) -> str:
        """No database on a warm call."""
        if self._revision is None:
            await self.refresh()
        if user_id is None:
            return ""
        found = self._users.get(user_id)
        while found is None:
            generation = self._generation
            read = await self._store.of_user(user_id)
            if generation == self._generation:
                self._users.put(user_id, read)
                found = read
        return found.tenant

    def decide(self, user_id: UUID | None, feature: Feature) -> FlagState:
        """From memory."""
        name = feature.value
        everywhere = self._shared.everywhere.get(name)
        if user_id is None:
            return decided(feature, everywhere=everywhere, tenant=None, user=None)
        user = self._users.get(user_id)
        if user is None:
            raise LookupError("decide was called for a user who was not prepared")
        tenant = self._shared.tenants.get(user.tenant, _NONE).get(name)
        return decided(feature, everywhere=everywhere, tenant=tenant, user=user.flags.get(name))

    def forget(self, user_id: UUID) -> None:
        """Drop the user's flags. What is shared is nobody's."""
        self._generation += 1
        self._users.discard(lambda known: known.user_id == user_id)

    def forget_all(self) -> None:
        """What is shared is read again before it decides anything: this process may have slept."""
        self._drop_users()
        self._revision = None

    def _drop_users(self) -> None:
        self._generation += 1
        self._users.clear()
