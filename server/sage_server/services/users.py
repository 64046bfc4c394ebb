"""Users as an administrator handles them."""

from __future__ import annotations

from dataclasses import dataclass

from sage_server.domain.errors import not_found
from sage_server.domain.identity import User, UserOverview
from sage_server.engine.replicas import Replicas
from sage_server.ports.clock import Clock
from sage_server.ports.stores import Erasure, ErasureStore, UserStore


@dataclass(frozen=True)
class ErasureReceipt:
    """What was erased, and which replicas have confirmed that they hold nothing more."""

    erasure: Erasure
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
        user = await self._find(tenant, external_id)
        erasure = await self._erasures.erase(user.id, self._clock.now())
        confirmed, unconfirmed = await self._replicas.forget_everywhere(user.id, erasure.signal)
        return ErasureReceipt(erasure, confirmed, unconfirmed)

    async def _find(self, tenant: str, external_id: str) -> User:
        user = await self._users.find(tenant, external_id)
        if user is None:
            raise not_found("user")
        return user
