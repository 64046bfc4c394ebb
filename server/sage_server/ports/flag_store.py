"""Where feature flags are kept, and what has them at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from sage_server.domain.flags import Feature, Flag, FlagScope, FlagState
from sage_server.domain.paging import Page


@dataclass(frozen=True)
class FlagPlace:
    """One level. `tenant` is empty at the global one, `external_id` at all but the user's."""

    scope: FlagScope
    tenant: str = ""
    external_id: str = ""


@dataclass(frozen=True)
class FlagFilter:
    """The flags of some levels; of a tenant, where a level has tenants."""

    scopes: frozenset[FlagScope]
    tenant: str


@dataclass(frozen=True)
class FlagCursor:
    """The last flag of a page: global ones come first, then the tenant's, then those of its users."""

    tenant: str
    user_id: UUID
    name: str


@dataclass(frozen=True)
class SharedFlags:
    """What is set for everybody and for tenants, by the names of the flags."""

    everywhere: Mapping[str, bool]
    tenants: Mapping[str, Mapping[str, bool]]


@dataclass(frozen=True)
class UserFlags:
    """What is set for one user, by the names of the flags."""

    user_id: UUID
    tenant: str
    flags: Mapping[str, bool]


class FlagStore(Protocol):
    """Flags at their three levels."""

    async def revision(self) -> int:
        """A number that is another one after every change. Whoever reads it before the flags must find in
        them every change that it stands for."""
        ...

    async def shared(self) -> SharedFlags:
        """Everything but what is set for users."""
        ...

    async def of_user(self, user_id: UUID) -> UserFlags:
        """The user's tenant and flags. Must raise NOT_FOUND if there never was such a user."""
        ...

    async def list(self, which: FlagFilter, size: int, after: FlagCursor | None) -> Page[Flag, FlagCursor]:
        """A page, in the order of FlagCursor. Its cost must not grow with the number of flags."""
        ...

    async def set(self, place: FlagPlace, name: str, enabled: bool, now: datetime) -> Flag:  # noqa: FBT001
        """Set a flag at a level, over what is there. Must raise NOT_FOUND if there is no such user or they
        are being erased."""
        ...

    async def clear(self, place: FlagPlace, name: str) -> None:
        """Remove a flag from a level. Nothing happens if it is not there."""
        ...


class FlagSource(Protocol):
    """Sage's own flags, at hand."""

    async def prepare(self, user_id: UUID | None) -> str:
        """Have what decides for a user in memory, or for nobody in particular with None, and answer with the
        user's tenant. It must stay there until the caller next waits for something."""
        ...

    def decide(self, user_id: UUID | None, feature: Feature) -> FlagState:
        """What holds for a user who was prepared. No scope if nothing is set at any level."""
        ...
