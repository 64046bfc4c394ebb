"""JWTs, verified with PyJWT."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import jwt

from sage_server.domain.credentials import unauthenticated
from sage_server.domain.identity import TENANT_PATTERN
from sage_server.ports.credentials import VerifiedToken

_LEEWAY = timedelta(seconds=30)
"""How far the issuer's clock and ours may be apart."""


@dataclass(frozen=True)
class JwtOptions:
    """What a token must be. Everything is pinned: a token never chooses how it is checked."""

    algorithm: str
    issuer: str
    audience: str
    key_file: Path | None
    tenant_claim: str | None
    default_tenant: str


class KeySource(Protocol):
    """Keys by their id."""

    async def key(self, key_id: str) -> Any:
        """Must be a key that PyJWT takes, or None if there is none of this id."""
        ...


class JwtVerifier:
    """Implements TokenVerifier."""

    def __init__(self, options: JwtOptions, published: KeySource | None) -> None:
        self._options = options
        self._key = None if options.key_file is None else options.key_file.read_text().strip()
        self._published = published

    async def verify(self, token: str) -> VerifiedToken:
        """Check everything; say only that it failed."""
        key = await self._verification_key(token)
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[self._options.algorithm],
                issuer=self._options.issuer,
                audience=self._options.audience,
                leeway=_LEEWAY,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise unauthenticated("expired") from None
        except jwt.PyJWTError:
            raise unauthenticated("invalid") from None
        return self._verified(claims)

    def _verified(self, claims: dict[str, Any]) -> VerifiedToken:
        claim = self._options.tenant_claim
        tenant = self._options.default_tenant if claim is None else claims.get(claim)
        if not isinstance(tenant, str) or not re.fullmatch(TENANT_PATTERN, tenant):
            raise unauthenticated("invalid")
        subject = str(claims["sub"])
        try:
            expires_at = datetime.fromtimestamp(int(claims["exp"]), UTC) + _LEEWAY
            subject.encode()
        except (ValueError, OverflowError, OSError):
            # A year beyond our calendar, or half of a surrogate pair: signed, and still no use here.
            raise unauthenticated("invalid") from None
        return VerifiedToken(tenant, subject, expires_at)

    async def _verification_key(self, token: str) -> Any:
        if self._published is None:
            return self._key
        key_id = _key_id(token, self._options.algorithm)
        key = None if key_id is None else await self._published.key(key_id)
        if key is None:
            raise unauthenticated("invalid")
        return key


def _key_id(token: str, algorithm: str) -> str | None:
    """The key that the token names; None if it cannot be verified with any, and no key need be looked for."""
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        return None
    named = header.get("kid")
    return named if isinstance(named, str) and header.get("alg") == algorithm else None
