"""Feature flags: who sets them, what they come to, and where they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import product
from uuid import UUID

import asyncpg
import pytest

import sage_client
from sage_client import AsyncSageClient, Flag, FlagScope, NewItem
from sage_server.domain import flags as domain
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.flags import DEFAULTS, Feature, FlagState
from sage_server.domain.identity import Role
from sage_server.settings import SettingsError
from support import flag_provider
from support.memory import indexed, texts
from support.server import RunningServer, running_server

LEVELS = (FlagScope.USER, FlagScope.TENANT, FlagScope.GLOBAL)
SETTINGS: tuple[bool | None, ...] = (None, True, False)


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def user_of(client: AsyncSageClient, name: str = "maria") -> UUID:
    """A user whom the server has seen."""
    await client.with_options(user=name).memory.stats()
    return UUID((await client.admin.get_user(name)).id)


async def state(server: RunningServer, user: UUID, feature: Feature) -> FlagState:
    return await server.application.flags.flags.state(user, feature)


def whose(scope: FlagScope) -> str:
    return "maria" if scope is FlagScope.USER else ""


async def put(client: AsyncSageClient, name: str, scope: FlagScope, enabled: bool | None) -> None:
    """Set the flag at a level, or clear it with None."""
    if enabled is None:
        await client.admin.clear_flag(name, scope, external_id=whose(scope))
    else:
        await client.admin.set_flag(name, scope, external_id=whose(scope), enabled=enabled)


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await true():  # noqa: ASYNC110 (another process may do it)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("feature", [Feature.TOOLS, Feature.INSTRUCTION_OPTIMIZATION, Feature.TURNS])
async def test_the_most_specific_level_wins_and_says_so(
    server: RunningServer, client: AsyncSageClient, feature: Feature
) -> None:
    """But for turns: switched off globally they are off, whatever the tenant or the user says."""
    user = await user_of(client)
    for values in product(SETTINGS, repeat=len(LEVELS)):
        for scope, enabled in zip(LEVELS, values, strict=True):
            await put(client, feature.value, scope, enabled)
        set_at = [n for n, enabled in enumerate(values) if enabled is not None]
        if feature is Feature.TURNS and values[-1] is False:
            set_at = [len(LEVELS) - 1]
        expected = FlagState(DEFAULTS[feature])
        if set_at:
            expected = FlagState(values[set_at[0]] is True, domain.FlagScope[LEVELS[set_at[0]].name])
        assert await state(server, user, feature) == expected, values
        everywhere = DEFAULTS[feature] if values[-1] is None else values[-1]
        assert await server.application.flags.flags.globally_on(feature) is everywhere


async def test_a_flag_is_for_its_tenant_and_its_user_alone(
    server: RunningServer, client: AsyncSageClient
) -> None:
    maria, otto = await user_of(client), await user_of(client, "otto")
    elsewhere = UUID(int=7)
    await client.admin.set_flag("tools", FlagScope.TENANT, tenant="elsewhere", enabled=False)
    await client.admin.set_flag("tools", FlagScope.USER, external_id="otto", enabled=False)
    assert await state(server, maria, Feature.TOOLS) == FlagState(enabled=True)
    assert await state(server, maria, Feature.WEB_ACCESS) == FlagState(enabled=True)
    assert not (await state(server, otto, Feature.TOOLS)).enabled
    with pytest.raises(SageError) as refused:
        await state(server, elsewhere, Feature.TOOLS)
    assert refused.value.reason is Reason.NOT_FOUND


@pytest.mark.parametrize("scope", LEVELS)
async def test_what_is_switched_off_is_refused_with_the_level(
    server: RunningServer, client: AsyncSageClient, scope: FlagScope
) -> None:
    user = await user_of(client)
    flags = server.application.flags.flags
    await flags.require(user, Feature.WEB_ACCESS)
    await put(client, "web_access", scope, False)
    with pytest.raises(SageError) as refused:
        await flags.require(user, Feature.WEB_ACCESS)
    assert refused.value.reason is Reason.FEATURE_DISABLED
    assert refused.value.metadata == {"flag": "web_access", "level": scope.value}


async def test_while_turns_are_off_globally_no_job_is_done_and_none_is_lost(
    client: AsyncSageClient, database: asyncpg.Connection
) -> None:
    async def workers_are_connected() -> bool:
        found = await database.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name = 'sage-jobs' AND datname = current_database()"
        )
        return bool(found)

    async def workers_have_left() -> bool:
        return not await workers_are_connected()

    await user_of(client)
    await eventually(workers_are_connected)
    await client.admin.set_flag("turns", FlagScope.USER, external_id="maria", enabled=True)
    await client.admin.set_flag("turns", FlagScope.GLOBAL, enabled=False)
    await eventually(workers_have_left)
    thread = await client.conversations.create("Thread")
    await client.conversations.append(thread.id, [NewItem.user("a word")])
    job = await database.fetchrow("SELECT status, attempts FROM pgqueuer")
    assert job is not None
    assert (job["status"], job["attempts"]) == ("queued", 0)
    assert (await client.memory.stats()).pending_count == 1
    assert await workers_have_left()
    await client.admin.clear_flag("turns", FlagScope.GLOBAL)
    await indexed(client)
    assert await texts(client) == ["a word"]


async def test_flags_are_listed_level_by_level_and_page_by_page(client: AsyncSageClient) -> None:
    for name in ("otto", "maria"):
        await user_of(client, name)
        await client.admin.set_flag("tools", FlagScope.USER, external_id=name, enabled=False)
    for name in ("schedules", "compaction"):
        await client.admin.set_flag(name, FlagScope.TENANT, enabled=True)
        await client.admin.set_flag(name, FlagScope.TENANT, tenant="elsewhere", enabled=False)
    shown = await client.admin.set_flag("turns", FlagScope.GLOBAL, enabled=True)

    async def listed(**options: object) -> list[Flag]:
        found = [flag async for flag in client.admin.list_flags(**options)]  # type: ignore[arg-type]
        paged = [flag async for flag in client.admin.list_flags(page_size=1, **options)]  # type: ignore[arg-type]
        assert found == paged
        return found

    def brief(flags: list[Flag]) -> list[tuple[str, str, str, bool]]:
        return [(flag.name, flag.tenant, flag.external_id, flag.enabled) for flag in flags]

    every = await listed()
    assert every[0] == shown
    assert brief(every) == [
        ("turns", "", "", True),
        ("compaction", "default", "", True),
        ("schedules", "default", "", True),
        ("tools", "default", "otto", False),
        ("tools", "default", "maria", False),
    ]
    assert [flag.scope for flag in every] == [
        FlagScope.GLOBAL,
        FlagScope.TENANT,
        FlagScope.TENANT,
        FlagScope.USER,
        FlagScope.USER,
    ]
    for scope in FlagScope:
        if scope is not FlagScope.UNKNOWN:
            assert await listed(scope=scope) == [flag for flag in every if flag.scope is scope]
    assert brief(await listed(scope=FlagScope.TENANT, tenant="elsewhere")) == [
        ("compaction", "elsewhere", "", False),
        ("schedules", "elsewhere", "", False),
    ]
    assert await listed(scope=FlagScope.USER, tenant="nowhere") == []


async def test_setting_and_clearing_can_be_repeated(client: AsyncSageClient) -> None:
    first = await client.admin.set_flag("tools", FlagScope.TENANT, enabled=False)
    again = await client.admin.set_flag("tools", FlagScope.TENANT, enabled=True)
    assert (first.enabled, again.enabled) == (False, True)
    assert again.update_time > first.update_time
    assert [flag async for flag in client.admin.list_flags()] == [again]
    for name in ("tools", "tools", "of_another_version"):
        await client.admin.clear_flag(name, FlagScope.TENANT)
    await client.admin.clear_flag("tools", FlagScope.USER, external_id="nobody")
    assert [flag async for flag in client.admin.list_flags()] == []


async def test_a_name_that_somebody_made_up_is_refused_and_not_stored(
    client: AsyncSageClient, database: asyncpg.Connection
) -> None:
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.admin.set_flag("marias_secret", FlagScope.GLOBAL, enabled=True)
    (violation,) = refused.value.field_violations
    assert violation.field == "name"
    assert all(feature.value in violation.description for feature in Feature)
    assert "marias_secret" not in str(refused.value)
    assert await database.fetchval("SELECT count(*) FROM flags") == 0


@pytest.mark.parametrize(
    ("scope", "options", "field"),
    [
        (FlagScope.GLOBAL, {"tenant": "default"}, "tenant"),
        (FlagScope.GLOBAL, {"external_id": "maria"}, "external_id"),
        (FlagScope.TENANT, {"external_id": "maria"}, "external_id"),
        (FlagScope.USER, {}, "external_id"),
    ],
)
async def test_a_level_takes_what_names_it_and_nothing_else(
    client: AsyncSageClient, scope: FlagScope, options: dict[str, str], field: str
) -> None:
    for change in (
        client.admin.set_flag("tools", scope, enabled=False, **options),
        client.admin.clear_flag("tools", scope, **options),
    ):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await change
        assert [violation.field for violation in refused.value.field_violations] == [field]


async def test_a_user_whom_the_tenant_has_never_seen_is_not_found(client: AsyncSageClient) -> None:
    with pytest.raises(sage_client.NotFound) as missing:
        await client.admin.get_user("nobody")
    with pytest.raises(sage_client.NotFound) as refused:
        await client.admin.set_flag("tools", FlagScope.USER, external_id="nobody", enabled=False)
    assert refused.value.message == missing.value.message
    assert refused.value.metadata == missing.value.metadata


async def test_an_admin_reaches_the_flags_of_their_own_tenant_alone(dsn: str) -> None:
    async with running_server(dsn, auth="required") as server:
        secrets = {}
        for tenant, role in (("here", Role.ADMIN), ("there", Role.ADMIN), ("here", Role.OPERATOR)):
            _, secrets[tenant, role] = await server.application.api_keys.create(
                tenant=tenant, name="x", role=role, expires_at=None, once=None
            )
        async with (
            sage_client.connect_async(server.address, token=secrets["here", Role.ADMIN]) as admin,
            sage_client.connect_async(server.address, token=secrets["there", Role.ADMIN]) as other,
            sage_client.connect_async(server.address, token=secrets["here", Role.OPERATOR]) as operator,
        ):
            await user_of(other)
            await other.admin.set_flag("tools", FlagScope.USER, external_id="maria", enabled=False)
            theirs = await other.admin.set_flag("tools", FlagScope.TENANT, enabled=False)
            everywhere = await operator.admin.set_flag("tools", FlagScope.GLOBAL, enabled=False)
            own = await admin.admin.set_flag("tools", FlagScope.TENANT, tenant="here", enabled=True)
            assert [flag async for flag in admin.admin.list_flags()] == [own]
            assert [flag async for flag in operator.admin.list_flags()] == [everywhere, own]
            listed = [flag async for flag in operator.admin.list_flags(tenant="there")]
            assert listed[:2] == [everywhere, theirs]
            with pytest.raises(sage_client.NotFound):
                await admin.admin.set_flag("tools", FlagScope.USER, external_id="maria", enabled=True)
            for denied in (
                admin.admin.set_flag("tools", FlagScope.GLOBAL, enabled=True),
                admin.admin.clear_flag("tools", FlagScope.GLOBAL),
                admin.admin.list_flags_page(scope=FlagScope.GLOBAL),
                admin.admin.set_flag("tools", FlagScope.TENANT, tenant="there", enabled=True),
                admin.admin.clear_flag("tools", FlagScope.TENANT, tenant="there"),
                admin.admin.list_flags_page(tenant="there"),
            ):
                with pytest.raises(sage_client.PermissionDenied) as refused:
                    await denied
                assert refused.value.metadata == {"required_role": "OPERATOR"}
            await admin.admin.clear_flag("tools", FlagScope.USER, external_id="maria")
            assert [flag async for flag in operator.admin.list_flags(tenant="there")] == listed


async def test_a_change_holds_on_the_other_replica_soon_and_after_a_restart(dsn: str) -> None:
    async with (
        running_server(dsn) as one,
        running_server(dsn) as two,
        sage_client.connect_async(one.address, user="maria") as client,
    ):
        user = await user_of(client)
        for scope in LEVELS:
            for server in (one, two):
                await state(server, user, Feature.TOOLS)
            await put(client, "tools", scope, False)
            off = FlagState(enabled=False, scope=domain.FlagScope[scope.name])
            assert await state(one, user, Feature.TOOLS) == off

            async def told(off: FlagState = off) -> bool:
                return await state(two, user, Feature.TOOLS) == off

            await eventually(told)
            await put(client, "tools", scope, None)
        await put(client, "tools", FlagScope.USER, False)
    async with running_server(dsn) as again:
        assert not (await state(again, user, Feature.TOOLS)).enabled


async def test_an_erased_users_flags_are_gone_everywhere(dsn: str, database: asyncpg.Connection) -> None:
    async with (
        running_server(dsn) as one,
        running_server(dsn) as two,
        sage_client.connect_async(one.address, user="maria") as client,
    ):
        user = await user_of(client)
        for name in ("tools", "schedules"):
            await client.admin.set_flag(name, FlagScope.USER, external_id="maria", enabled=False)
        await client.admin.set_flag("compaction", FlagScope.TENANT, enabled=False)
        for server in (one, two):
            await state(server, user, Feature.TOOLS)
        erased = await client.admin.erase_user("maria")
        assert erased.rows_by_table["flags"] == 2
        assert await database.fetchval("SELECT count(*) FROM flags") == 1
        for server in (one, two):
            assert (await state(server, user, Feature.TOOLS)).scope is None
        assert await user_of(client) != user
        assert [flag.name async for flag in client.admin.list_flags()] == ["compaction"]


async def test_a_flag_that_races_an_erasure_is_not_left_behind(
    client: AsyncSageClient, dsn: str, database: asyncpg.Connection
) -> None:
    """The flag is written and not committed yet when the erasure begins."""

    async def waiting(count: int) -> bool:
        found = await database.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return bool(found == count)

    await user_of(client)
    holding = await asyncpg.connect(dsn)
    async with holding.transaction():
        await holding.execute("SELECT revision FROM flag_head FOR UPDATE")
        change = client.admin.set_flag("tools", FlagScope.USER, external_id="maria", enabled=False)
        changing = asyncio.ensure_future(change)
        await eventually(lambda: waiting(1))
        erasing = asyncio.ensure_future(client.admin.erase_user("maria"))

        async def erasing_goes_no_further() -> bool:
            return erasing.done() or await waiting(2)

        await eventually(erasing_goes_no_further)
    await holding.close()
    await asyncio.gather(changing, erasing)
    assert await database.fetchval("SELECT count(*) FROM flags") == 0


async def test_a_user_who_is_being_erased_gets_no_flag(
    client: AsyncSageClient, database: asyncpg.Connection
) -> None:
    await user_of(client)
    await database.execute("UPDATE users SET erased_at = now() WHERE external_id = 'maria'")
    with pytest.raises(sage_client.NotFound):
        await client.admin.set_flag("tools", FlagScope.USER, external_id="maria", enabled=False)


async def test_another_provider_is_asked_where_no_flag_is_set(dsn: str) -> None:
    async with (
        running_server(dsn, flag_provider=flag_provider.PLUGGED) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        user = await user_of(client)
        provider = flag_provider.made[-1]
        provider.asked.clear()
        assert await state(server, user, Feature.TOOLS) == FlagState(enabled=False)
        asked = [context for name, context in provider.asked if name == "tools"]
        assert [(context.targeting_key, context.attributes) for context in asked if context] == [
            (str(user), {"tenant": "default"})
        ]
        assert not await server.application.flags.flags.globally_on(Feature.TOOLS)
        assert [context.targeting_key for name, context in provider.asked if name == "tools" and context] == [
            str(user),
            None,
        ]
        provider.asked.clear()
        await put(client, "tools", FlagScope.TENANT, True)
        on = FlagState(enabled=True, scope=domain.FlagScope.TENANT)
        assert await state(server, user, Feature.TOOLS) == on
        assert [name for name, _ in provider.asked if name == "tools"] == []


@pytest.mark.parametrize("name", [flag_provider.RAISING, flag_provider.NEVER_READY, flag_provider.WRONG_TYPE])
async def test_where_another_provider_does_not_answer_the_default_holds(dsn: str, name: str) -> None:
    async with (
        running_server(dsn, flag_provider=name) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        user = await user_of(client)
        for feature in Feature:
            assert await state(server, user, feature) == FlagState(DEFAULTS[feature])
        await put(client, "tools", FlagScope.USER, False)
        assert not (await state(server, user, Feature.TOOLS)).enabled


@pytest.mark.parametrize("name", ["support.nowhere:make", "support.flag_provider:nothing"])
async def test_a_provider_that_cannot_be_found_stops_the_start(dsn: str, name: str) -> None:
    with pytest.raises(SettingsError, match=r"^SAGE_FLAG_PROVIDER: "):
        async with running_server(dsn, flag_provider=name):
            pass
