"""What models were used for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class UsagePurpose(StrEnum):
    """What a model call was for."""

    STEP = "step"
    """A step of a turn."""
    CORRECTION = "correction"
    """The call that reshapes a malformed answer."""
    SUMMARY = "summary"
    ROUTING = "routing"
    """Choosing who answers."""
    EMBEDDING = "embedding"
    UNKNOWN = "unknown"
    """A purpose that this version of the client does not know. Never sent."""


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """What one model, `provider/model`, was used for on one day in UTC, in the provider's own counts."""

    day: date
    model: str
    purpose: UsagePurpose
    calls: int
    prompt_tokens: int
    completion_tokens: int
    embedding_tokens: int
