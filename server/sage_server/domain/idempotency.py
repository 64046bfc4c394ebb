"""Requests that may be sent more than once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sage_server.domain.errors import Reason, SageError

REPLAY_WINDOW = timedelta(hours=24)


@dataclass(frozen=True)
class Once:
    """Marks a creation that must happen once however often it is asked for."""

    request_id: UUID
    digest: bytes
    """SHA-256 of the method and the whole request. Stored sealed only: it is derived from user text."""


def request_id_reused() -> SageError:
    """The id was used for another request before."""
    return SageError(
        Reason.REQUEST_ID_REUSED, "This request_id was used with another request within the last 24 hours."
    )
