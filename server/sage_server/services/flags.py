"""Feature flags as administrators set them."""

from __future__ import annotations

from sage_server.domain.errors import invalid
from sage_server.domain.flags import Feature, Flag, FlagScope
from sage_server.domain.identity import Role, permission_denied
from sage_server.domain.paging import Page
from sage_server.engine.flags import FlagCache
from sage_server.ports.clock import Clock
from sage_server.ports.flag_store import FlagCursor, FlagFilter, FlagPlace, FlagStore

_NAMES = frozenset(feature.value for feature in Feature)
_EVERY = frozenset(FlagScope)
_OF_TENANTS = _EVERY - {FlagScope.GLOBAL}


class FeatureFlags:
    """Looking at flags and changing them. The global level is an operator's.

    A change holds in this process before the call returns, and in the others about a second later.
    """

    def __init__(self, store: FlagStore, cache: FlagCache, clock: Clock) -> None:
        self._store = store
        self._cache = cache
        self._clock = clock

    async def list(
        self, role: Role, scope: FlagScope | None, tenant: str, size: int, after: FlagCursor | None
    ) -> Page[Flag, FlagCursor]:
        """A page of one level, or of every level that the role may see."""
        visible = _EVERY if role is Role.OPERATOR else _OF_TENANTS
        if scope is not None and scope not in visible:
            raise permission_denied(Role.OPERATOR)
        scopes = visible if scope is None else frozenset({scope})
        return await self._store.list(FlagFilter(scopes, tenant), size, after)

    async def set(self, role: Role, place: FlagPlace, name: str, *, enabled: bool) -> Flag:
        """Set a flag. NOT_FOUND if it is for a user that the tenant has never seen."""
        _check(role, place)
        if name not in _NAMES:
            # Names are stored as they are, so what somebody made up must not get in.
            raise invalid("name", f"must be one of {', '.join(sorted(_NAMES))}")
        flag = await self._store.set(place, name, enabled, self._clock.now())
        await self._cache.refresh()
        return flag

    async def clear(self, role: Role, place: FlagPlace, name: str) -> None:
        """Remove a flag, also one that only an earlier version knew. One that is not set stays so."""
        _check(role, place)
        await self._store.clear(place, name)
        await self._cache.refresh()


def _check(role: Role, place: FlagPlace) -> None:
    if place.scope is FlagScope.GLOBAL:
        if role is not Role.OPERATOR:
            raise permission_denied(Role.OPERATOR)
        if place.tenant:
            raise invalid("tenant", "must be empty at the global level")
    if place.scope is not FlagScope.USER and place.external_id:
        raise invalid("external_id", "must be empty but at the user level")
    if place.scope is FlagScope.USER and not place.external_id:
        raise invalid("external_id", "must be given at the user level")
