"""JWTs, verified with PyJWT."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt

from sage_server.domain.credentials import unauthenticated
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.identity import TENANT_PATTERN
from sage_server.ports.credentials import VerifiedToken


@dataclass(frozen=True)
class JwtOptions:
    """What a token must be. Everything is pinned: a token never chooses how it is checked."""

    algorithm: str
    issuer: str
    audience: str
    key_file: Path | None
    jwks_url: str | None
    tenant_claim: str | None
    default_tenant: str


class JwtVerifier:
    """Implements TokenVerifier."""

    def __init__(self, options: JwtOptions) -> None:
        self._options = options
        self._key = None if options.key_file is None else options.key_file.read_text().strip()
        self._jwks = None if options.jwks_url is None else jwt.PyJWKClient(options.jwks_url, timeout=5)

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
            expires_at = datetime.fromtimestamp(claims["exp"], UTC)
            subject.encode()
        except (ValueError, OverflowError, OSError):
            # A year beyond our calendar, or half of a surrogate pair: signed, and still no use here.
            raise unauthenticated("invalid") from None
        return VerifiedToken(tenant, subject, expires_at)

    async def _verification_key(self, token: str) -> Any:
        if self._jwks is None:
            return self._key
        try:
            return (await asyncio.to_thread(self._jwks.get_signing_key_from_jwt, token)).key
        except (jwt.PyJWKClientConnectionError, OSError, ValueError):
            raise SageError(
                Reason.TOKEN_KEYS_UNAVAILABLE,
                "The keys that verify tokens cannot be fetched now.",
                retry_after=timedelta(seconds=2),
            ) from None
        except jwt.PyJWTError:
            raise unauthenticated("invalid") from None
