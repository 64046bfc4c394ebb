"""Feature flags: what an operator can switch off, for everybody, for a tenant, or for a user."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum

from sage_server.domain.errors import Reason, SageError


class Feature(Enum):
    """What can be switched. The values are the names of the flags."""

    TURNS = "turns"
    """The kill switch: off globally, no turn starts and no background job runs."""
    AUTO_EMBEDDING = "auto_embedding"
    """Messages are indexed for recall."""
    TOOLS = "tools"
    WEB_ACCESS = "web_access"
    COMPACTION = "compaction"
    SCHEDULES = "schedules"
    INSTRUCTION_OPTIMIZATION = "instruction_optimization"


DEFAULTS = {feature: feature is not Feature.INSTRUCTION_OPTIMIZATION for feature in Feature}
"""What holds where nobody has set a flag."""


class FlagScope(IntEnum):
    """Where a flag applies. Stored as a number."""

    GLOBAL = 1
    TENANT = 2
    USER = 3


@dataclass(frozen=True)
class Flag:
    """A flag's value at one level."""

    name: str
    scope: FlagScope
    tenant: str
    """Empty at the global level."""
    external_id: str
    """Of the user, at the user level; else empty."""
    enabled: bool
    updated_at: datetime


@dataclass(frozen=True)
class FlagState:
    """What holds for one user, and which level decided; None if nobody set it."""

    enabled: bool
    scope: FlagScope | None = None


def decided(
    feature: Feature, *, everywhere: bool | None, tenant: bool | None, user: bool | None
) -> FlagState:
    """What the values of the three levels come to; None where nothing is set."""
    if feature is Feature.TURNS and everywhere is False:
        return FlagState(enabled=False, scope=FlagScope.GLOBAL)
    levels = ((FlagScope.USER, user), (FlagScope.TENANT, tenant), (FlagScope.GLOBAL, everywhere))
    for scope, enabled in levels:
        if enabled is not None:
            return FlagState(enabled, scope)
    return FlagState(DEFAULTS[feature])


def feature_disabled(feature: Feature, scope: FlagScope | None) -> SageError:
    """A flag switches it off."""
    level = "default" if scope is None else scope.name.lower()
    return SageError(
        Reason.FEATURE_DISABLED,
        "This feature is switched off.",
        metadata={"flag": feature.value, "level": level},
    )
