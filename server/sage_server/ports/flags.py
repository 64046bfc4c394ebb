"""Feature flags."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from sage_server.domain.flags import Feature, FlagState


class Flags(Protocol):
    """What is switched on, for one user. Asked where work starts, so it must be cheap: a warm answer needs no
    database. A change must hold on every replica within a second or two.

    The most specific level wins, user before tenant before global, but for TURNS: switched off globally it is
    off for everybody.
    """

    async def state(self, user_id: UUID, feature: Feature) -> FlagState:
        """Whether the feature is on for the user, and which level decided."""
        ...

    async def is_on(self, user_id: UUID, feature: Feature) -> bool:
        """Whether the feature is on for the user."""
        ...

    async def globally_on(self, feature: Feature) -> bool:
        """Whether the feature is on for nobody in particular: what background work asks."""
        ...

    async def require(self, user_id: UUID, feature: Feature) -> None:
        """Raise FEATURE_DISABLED unless the feature is on for the user."""
        ...
