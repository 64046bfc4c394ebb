"""Tokens that somebody else issues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class VerifiedToken:
    """What a valid token says."""

    tenant: str
    subject: str
    expires_at: datetime
    """Until when it is accepted: what the token says, and what clocks may differ."""


class TokenVerifier(Protocol):
    """Checks JWTs."""

    async def verify(self, token: str) -> VerifiedToken:
        """Must raise UNAUTHENTICATED unless signature, algorithm, issuer, audience and time are right."""
        ...
