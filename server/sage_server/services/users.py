"""Users as an administrator handles them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sage_server.domain.errors import SageError, not_found
from sage_server.domain.identity import User, UserOverview
from sage_server.engine.replicas import Replicas
from sage_server.ports.clock import Clock
from sage_server.ports.stores import ErasureStore, UserStore

_BATCH = 100
_log = logging.getLogger("sage.users")


@dataclass(frozen=True)
class ErasureReceipt:
    """What was erased, and which replicas have confirmed that they hold nothing more."""

    erased_at: datetime
    rows_by_table: dict[str, int]
    confirmed: int
    unconfirmed: int


class Users:
    """Looking at users and erasing them."""

    def __init__(self, users: UserStore, erasures: ErasureStore, replicas: Replicas, clock: Clock) -> None:
        self._users = users
        self._erasures = erasures
        self._replicas = replicas
        self._clock = clock

    async def get(self, tenant: str, external_id: str) -> UserOverview:
        """A user, or NOT_FOUND."""
        return await self._users.overview(await self._find(tenant, external_id))

    async def erase(self, tenant: str, external_id: str) -> ErasureReceipt:
        """Remove everything of a user, for good."""
        return await self._erase((await self._find(tenant, external_id)).id)

    async def finish_erasures(self) -> int:
        """Go on with erasures that were cut short; answers with how many."""
        users = await self._erasures.unfinished(_BATCH)
        for user_id in users:
            try:
                await self._erase(user_id)
            except SageError as error:
                _log.warning("an erasure did not finish: %s", error, extra={"user": user_id})
        return len(users)

    async def _erase(self, user_id: UUID) -> ErasureReceipt:
        """The key first: from then on every ciphertext in the database is noise. Then the caches, so that
        nobody writes any more. Then the rows."""
        erased_at, signal = await self._erasures.destroy_keys(user_id, self._clock.now())
        confirmed, unconfirmed = await self._replicas.forget_everywhere(user_id, signal)
        rows = await self._erasures.delete_rows(user_id)
        return ErasureReceipt(
            erased_at, {table: count for table, count in rows.items() if count}, confirmed, unconfirmed
        )

    async def _find(self, tenant: str, external_id: str) -> User:
        user = await self._users.find(tenant, external_id)
        if user is None:
            raise not_found("user")
        return user
