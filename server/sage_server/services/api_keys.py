"""Credentials of backend services."""

from __future__ import annotations

import re
from datetime import datetime
from uuid import UUID

from sage_server.domain.credentials import new_secret, secret_hash, shown_prefix
from sage_server.domain.errors import invalid
from sage_server.domain.idempotency import Once
from sage_server.domain.identity import TENANT_PATTERN, ApiKey, Role
from sage_server.domain.ids import INSTALLATION, new_id
from sage_server.domain.paging import Page
from sage_server.engine.replicas import Replicas
from sage_server.ports.clock import Clock
from sage_server.ports.stores import ApiKeyStore


class ApiKeys:
    """What administrators do with API keys."""

    def __init__(self, store: ApiKeyStore, replicas: Replicas, clock: Clock) -> None:
        self._store = store
        self._replicas = replicas
        self._clock = clock

    async def create(
        self, *, tenant: str, name: str, role: Role, expires_at: datetime | None, once: Once | None
    ) -> tuple[ApiKey, str]:
        """A new key and its secret, which is shown this once."""
        now = self._clock.now()
        if not re.fullmatch(TENANT_PATTERN, tenant):
            raise invalid("tenant", "must be letters, digits, `.`, `_` and `-`, at most 64")
        if expires_at is not None and expires_at <= now:
            raise invalid("expire_time", "must be in the future")
        secret = new_secret()
        key = ApiKey(new_id(now), tenant, name, role, shown_prefix(secret), now, expires_at)
        return await self._store.create(key, secret, secret_hash(secret), once)

    async def list(self, tenant: str, size: int, after: UUID | None) -> Page[ApiKey, UUID]:
        """A page, newest first."""
        return await self._store.list(tenant, size, after)

    async def revoke(self, key_id: UUID, *, tenant: str, role: Role) -> ApiKey:
        """Revoke a key as somebody of this tenant and role; every replica refuses it before this returns.

        An operator reaches every tenant. Nobody reaches a key of a higher role.
        """
        reach = None if role is Role.OPERATOR else tenant
        key = await self._store.revoke(key_id, reach, role, self._clock.now())
        await self._replicas.forget_everywhere(INSTALLATION)
        return key
