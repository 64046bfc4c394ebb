"""From credentials to a caller."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

from sage_server.domain.credentials import API_KEY_PREFIX, secret_hash, unauthenticated
from sage_server.domain.identity import ApiKey, Caller, Role
from sage_server.domain.ids import INSTALLATION
from sage_server.engine.lru import Lru
from sage_server.ports.clock import Clock
from sage_server.ports.credentials import TokenVerifier, VerifiedToken
from sage_server.ports.stores import ApiKeyStore, UserStore

LOCAL_USER = "local"
_FOR_EVER = datetime.max.replace(tzinfo=UTC)
_Asked: TypeAlias = tuple[str | None, str | None, bool]
MAX_EXTERNAL_ID = 256


class Authentication:
    """Decides who calls. What it has found out it remembers, so a warm call needs no database.

    Implements UserCache: a revoked key or an erased user is forgotten through it.
    """

    def __init__(
        self,
        *,
        users: UserStore,
        api_keys: ApiKeyStore,
        tokens: TokenVerifier | None,
        clock: Clock,
        required: bool,
        default_tenant: str,
        capacity: int,
    ) -> None:
        self._users = users
        self._api_keys = api_keys
        self._tokens = tokens
        self._clock = clock
        self._required = required
        self._default_tenant = default_tenant
        self._known_users: Lru[tuple[str, str], UUID] = Lru(capacity)
        self._known_keys: Lru[bytes, ApiKey] = Lru(capacity)
        self._known_tokens: Lru[str, VerifiedToken] = Lru(capacity)
        self._known_callers: Lru[_Asked, tuple[Caller, datetime]] = Lru(capacity)
        self._generation = 0

    async def authenticate(self, authorization: str | None, named_user: str | None, *, admin: bool) -> Caller:
        """The caller, or UNAUTHENTICATED. An admin RPC acts for no user."""
        asked = (authorization, named_user, admin)
        known = self._known_callers.get(asked)
        if known is not None and self._clock.now() < known[1]:
            return known[0]
        generation = self._generation
        caller, until = await self._identify(authorization, named_user, admin=admin)
        if generation == self._generation:
            self._known_callers.put(asked, (caller, until))
        return caller

    async def _identify(
        self, authorization: str | None, named_user: str | None, *, admin: bool
    ) -> tuple[Caller, datetime]:
        """The caller, and until when the credentials last."""
        if not self._required:
            tenant, external_id = self._default_tenant, named_user or LOCAL_USER
            return await self._caller(tenant, Role.OPERATOR, external_id, admin), _FOR_EVER
        token = _bearer(authorization)
        if token.startswith(API_KEY_PREFIX):
            key = await self._api_key(token)
            caller = await self._caller(key.tenant, key.role, named_user, admin)
            return caller, key.expires_at or _FOR_EVER
        verified = await self._verified(token)
        caller = await self._caller(verified.tenant, Role.USER, verified.subject, admin)
        return caller, verified.expires_at

    def forget(self, user_id: UUID) -> None:
        """The installation stands for its API keys."""
        self._generation += 1
        self._known_callers.clear()
        if user_id == INSTALLATION:
            self._known_keys.clear()
        else:
            self._known_users.discard(lambda known: known == user_id)

    def forget_all(self) -> None:
        """Every credential is checked anew."""
        self._generation += 1
        self._known_callers.clear()
        self._known_keys.clear()
        self._known_users.clear()
        self._known_tokens.clear()

    async def _caller(self, tenant: str, role: Role, external_id: str | None, admin: bool) -> Caller:  # noqa: FBT001
        if admin:
            return Caller(tenant, role, None)
        if not external_id or not _is_name(external_id):
            raise unauthenticated("no_user")
        return Caller(tenant, role, await self._user(tenant, external_id))

    async def _user(self, tenant: str, external_id: str) -> UUID:
        found = self._known_users.get((tenant, external_id))
        if found is None:
            generation = self._generation
            found = await self._users.resolve(tenant, external_id)
            if generation == self._generation:
                self._known_users.put((tenant, external_id), found)
        return found

    async def _api_key(self, secret: str) -> ApiKey:
        hashed = secret_hash(secret)
        key = self._known_keys.get(hashed)
        if key is None:
            generation = self._generation
            key = await self._api_keys.by_hash(hashed)
            if key is None:
                raise unauthenticated("unknown")
            if generation == self._generation:
                self._known_keys.put(hashed, key)
        if key.revoked_at is not None:
            raise unauthenticated("revoked")
        if not key.usable(self._clock.now()):
            raise unauthenticated("expired")
        return key

    async def _verified(self, token: str) -> VerifiedToken:
        if self._tokens is None:
            raise unauthenticated("invalid")
        found = self._known_tokens.get(token)
        if found is None:
            found = await self._tokens.verify(token)
            self._known_tokens.put(token, found)
        if self._clock.now() >= found.expires_at:
            raise unauthenticated("expired")
        return found


def _is_name(external_id: str) -> bool:
    """Whether it can be somebody's: not too long, valid Unicode, without control characters."""
    return len(external_id) <= MAX_EXTERNAL_ID and not any(
        unicodedata.category(letter) in {"Cc", "Cs"} for letter in external_id
    )


def _bearer(authorization: str | None) -> str:
    if not authorization:
        raise unauthenticated("missing")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip() or not token.isascii():
        raise unauthenticated("malformed")
    return token.strip()
