"""Flags in memory: what holds while the database is away, and what is never believed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import pytest

from sage_server.adapters.crypto import EnvironmentRootKeys, KeyWrapping
from sage_server.adapters.flags import OpenFeatureFlags
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.flags import PostgresFlagStore
from sage_server.adapters.postgres.users import PostgresUserStore
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.flags import Feature, FlagScope
from sage_server.engine.flags import FlagCache
from sage_server.ports.flag_store import FlagPlace, UserFlags
from support.clock import FakeClock
from support.server import ROOT_KEY

TOOLS = Feature.TOOLS.value
MARIA = FlagPlace(FlagScope.USER, "default", "maria")
EVERYWHERE = FlagPlace(FlagScope.GLOBAL)
NOW = datetime(2026, 5, 1, tzinfo=UTC)
"""Every change of these tests happens at the same moment: what tells them apart is no clock."""


@dataclass(frozen=True)
class Parts:
    database: Database
    store: PostgresFlagStore
    cache: FlagCache
    flags: OpenFeatureFlags
    maria: UUID
    otto: UUID


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Parts]:
    database = await Database.open(dsn, PoolOptions(1, 4, 5, 5))
    users = PostgresUserStore(database, FakeClock(), KeyWrapping(EnvironmentRootKeys(ROOT_KEY, [])).new_key)
    store = PostgresFlagStore(database)
    cache = FlagCache(store, 100)
    await cache.refresh()
    flags = await OpenFeatureFlags.open(cache)
    try:
        maria, otto = await users.resolve("default", "maria"), await users.resolve("default", "otto")
        yield Parts(database, store, cache, flags, maria, otto)
    finally:
        flags.close()
        await database.close()


async def test_while_the_database_is_away_what_was_read_last_holds(dsn: str) -> None:
    async with opened(dsn) as parts:
        await parts.store.set(MARIA, TOOLS, False, NOW)
        await parts.store.set(EVERYWHERE, Feature.TURNS.value, False, NOW)
        await parts.cache.refresh()
        assert not await parts.flags.is_on(parts.maria, Feature.TOOLS)
        await parts.database.close()
        with pytest.raises(SageError) as away:
            await parts.cache.refresh()
        assert away.value.reason is Reason.DATABASE_UNAVAILABLE
        assert not await parts.flags.is_on(parts.maria, Feature.TOOLS)
        assert not await parts.flags.is_on(parts.maria, Feature.TURNS)
        assert await parts.flags.is_on(parts.maria, Feature.SCHEDULES)
        assert not await parts.flags.globally_on(Feature.TURNS)
        # Of a user of whom nothing was read yet, nothing is made up.
        with pytest.raises(SageError) as unknown:
            await parts.flags.is_on(parts.otto, Feature.TOOLS)
        assert unknown.value.reason is Reason.DATABASE_UNAVAILABLE


async def test_every_kind_of_change_is_seen_by_the_next_refresh(dsn: str) -> None:
    async with opened(dsn) as parts:
        for place in (MARIA, FlagPlace(FlagScope.TENANT, "default"), EVERYWHERE):
            for enabled in (True, False, True):
                await parts.store.set(place, TOOLS, enabled, NOW)
                await parts.cache.refresh()
                assert await parts.flags.is_on(parts.maria, Feature.TOOLS) is enabled
            await parts.store.set(place, TOOLS, False, NOW)
            await parts.cache.refresh()
            await parts.store.clear(place, TOOLS)
            await parts.cache.refresh()
            assert await parts.flags.is_on(parts.maria, Feature.TOOLS)


async def test_a_process_that_slept_reads_again_before_it_decides(dsn: str) -> None:
    async with opened(dsn) as parts:
        assert await parts.flags.globally_on(Feature.TURNS)
        await parts.store.set(EVERYWHERE, Feature.TURNS.value, False, NOW)
        parts.cache.forget_all()
        assert not await parts.flags.globally_on(Feature.TURNS)


@dataclass
class LateStore(PostgresFlagStore):
    """A store after whose answers something happens before anybody acts on them."""

    database: Database
    meanwhile: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.database)

    async def of_user(self, user_id: UUID) -> UserFlags:
        found = await super().of_user(user_id)
        while self.meanwhile:
            await self.meanwhile.pop()()
        return found


@pytest.mark.parametrize("told", ["refresh", "forget", "forget_all"])
async def test_what_was_read_before_a_change_is_not_kept(dsn: str, told: str) -> None:
    async with opened(dsn) as parts:
        store = LateStore(parts.database)
        cache = FlagCache(store, 100)
        await cache.refresh()

        async def change() -> None:
            await parts.store.set(MARIA, TOOLS, False, NOW)
            if told == "refresh":
                await cache.refresh()
            elif told == "forget":
                cache.forget(parts.maria)
            else:
                cache.forget_all()

        store.meanwhile.append(change)
        assert await cache.prepare(parts.maria) == "default"
        assert not cache.decide(parts.maria, Feature.TOOLS).enabled
