"""API keys' secrets, and why credentials are refused."""

from __future__ import annotations

import hashlib
import secrets
from typing import Literal, TypeAlias

from sage_server.domain.errors import Reason, SageError

API_KEY_PREFIX = "sage_sk_"
_SHOWN = len(API_KEY_PREFIX) + 4

Problem: TypeAlias = Literal["missing", "malformed", "unknown", "expired", "revoked", "invalid", "no_user"]
_MESSAGES: dict[Problem, str] = {
    "missing": "Send credentials as `authorization: Bearer …`.",
    "malformed": "The authorization metadata is not `Bearer` and a token.",
    "unknown": "The API key is not known.",
    "expired": "The credentials have expired.",
    "revoked": "The API key was revoked.",
    "invalid": "The token is not valid here.",
    "no_user": "Name the user that the call acts for in the metadata `x-sage-user`: 1 to 256 characters "
    "without control characters, as percent-encoded UTF-8.",
}


def unauthenticated(problem: Problem) -> SageError:
    """A refusal that says which kind of problem it is and nothing more."""
    return SageError(Reason.UNAUTHENTICATED, _MESSAGES[problem], metadata={"problem": problem})


def new_secret() -> str:
    """A fresh secret with 256 random bits, so that a plain fast hash of it is safe to store."""
    return API_KEY_PREFIX + secrets.token_urlsafe(32)


def secret_hash(secret: str) -> bytes:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def shown_prefix(secret: str) -> str:
    """What is shown of a secret, to recognise it by."""
    return secret[:_SHOWN]
