"""What feature flags are built of."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from openfeature.provider import FeatureProvider

from sage_server.adapters.flags import OpenFeatureFlags
from sage_server.adapters.postgres.database import Database
from sage_server.adapters.postgres.flags import PostgresFlagStore
from sage_server.engine.flags import FlagCache
from sage_server.ports.clock import Clock
from sage_server.services.flags import FeatureFlags
from sage_server.settings import Settings, SettingsError


@dataclass(frozen=True)
class FlagParts:
    """What the rest of the application needs of them."""

    flags: OpenFeatureFlags
    cache: FlagCache
    service: FeatureFlags


async def open_flags(settings: Settings, database: Database, clock: Clock) -> FlagParts:
    """Flags as they are now. `flags` is to be closed."""
    store = PostgresFlagStore(database)
    cache = FlagCache(store, settings.key_cache)
    await cache.refresh()
    another = None if settings.flag_provider is None else _provider(settings.flag_provider)
    return FlagParts(await OpenFeatureFlags.open(cache, another), cache, FeatureFlags(store, cache, clock))


def _provider(name: str) -> FeatureProvider:
    """The operator's own, made by the function that the setting names."""
    module, _, function = name.partition(":")
    try:
        make = getattr(import_module(module), function)
    except (ImportError, AttributeError):
        raise SettingsError(
            "SAGE_FLAG_PROVIDER: must name a function that can be imported, as package.module:function"
        ) from None
    provider: FeatureProvider = make()
    return provider
