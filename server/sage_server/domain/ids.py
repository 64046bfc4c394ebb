"""Identifiers."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from uuid import UUID

INSTALLATION = UUID(int=0)
"""Owner of what belongs to the installation and to no user, such as the names of API keys."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_id(now: datetime) -> UUID:
    """A UUIDv7 (RFC 9562) whose order is the order of `now`, to the microsecond.

    The 12 bits after the milliseconds hold the fraction of the millisecond, so that ids made one after
    the other sort that way.
    """
    elapsed = now - _EPOCH
    micros = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    millis, rest = divmod(micros, 1000)
    random = int.from_bytes(os.urandom(8)) & ((1 << 62) - 1)
    return UUID(int=millis << 80 | 0x7 << 76 | (rest * 4096 // 1000) << 64 | 0b10 << 62 | random)
