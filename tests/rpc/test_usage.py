"""Usage through the real client and server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

import sage_client
from sage.v1 import conversation_service_pb2 as pb
from sage.v1 import usage_pb2
from sage_client import AsyncSageClient
from sage_client.retry import Repeat
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.usage import PostgresUsageStore
from sage_server.domain.errors import Reason, SageError, database_unavailable
from sage_server.domain.usage import (
    UsageCounts,
    UsageEntry,
    UsageKey,
    UsagePeriod,
    UsagePurpose,
    UsageRecord,
)
from sage_server.engine.usage import UsageMeter
from support.clock import FakeClock
from support.server import RunningServer, running_server

MODEL = "local/wordllama-256"
TODAY = UsagePeriod(date(1970, 1, 1), date(9999, 12, 31))


async def usage(
    client: AsyncSageClient,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    purpose: UsagePurpose | None = None,
) -> Sequence[usage_pb2.UsageRecord]:
    request = pb.GetUsageRequest(purpose=usage_pb2.UsagePurpose.ValueType(purpose or 0))
    if start is not None:
        request.start_time.FromDatetime(start)
    if end is not None:
        request.end_time.FromDatetime(end)
    method = client.stubs.conversations.GetUsage
    response = await client.transport.unary(method, request, repeat=Repeat.IF_REFUSED)
    return list(response.records)


async def user_of(client: AsyncSageClient, name: str = "maria") -> UUID:
    await client.conversations.create("so that the user exists")
    return UUID((await client.admin.get_user(name)).id)


def entry(
    user_id: UUID, day: date, model: str = MODEL, purpose: UsagePurpose = UsagePurpose.EMBEDDING
) -> UsageEntry:
    return UsageEntry(user_id, UsageRecord(UsageKey(day, model, purpose), UsageCounts(1, 2, 3, 4)))


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresUsageStore]:
    database = await Database.open(dsn, PoolOptions(1, 4, 10, 10))
    yield PostgresUsageStore(database)
    await database.close()


class FailingStore:
    """A store whose database goes and comes back."""

    def __init__(self, store: PostgresUsageStore) -> None:
        self.failing = True
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self._store = store

    async def add(self, entries: Sequence[UsageEntry]) -> None:
        self.asked.set()
        await self.answers.wait()
        if self.failing:
            raise database_unavailable()
        await self._store.add(entries)

    async def list(
        self, user_id: UUID, period: UsagePeriod, purpose: UsagePurpose | None
    ) -> Sequence[UsageRecord]:
        return await self._store.list(user_id, period, purpose)


async def test_what_is_recorded_is_counted_by_day_model_and_purpose(
    server: RunningServer, client: AsyncSageClient
) -> None:
    assert await usage(client) == []
    user_id = await user_of(client)
    meter = server.application.usage
    for tokens in (5, 7):
        meter.record_embedding(user_id, MODEL, tokens)
    meter.record_embedding(user_id, "openai/other", 1)
    today = server.clock.now().date().isoformat()
    expected = [
        usage_pb2.UsageRecord(
            day=today, model=model, purpose=usage_pb2.USAGE_PURPOSE_EMBEDDING, calls=calls, embedding_tokens=n
        )
        for model, calls, n in ((MODEL, 2, 12), ("openai/other", 1, 1))
    ]
    assert await usage(client) == expected
    embedding = sage_client.UsagePurpose.EMBEDDING
    assert [
        (one.day.isoformat(), one.model, one.purpose, one.calls, one.embedding_tokens)
        for one in await client.usage(purpose=embedding)
    ] == [(today, MODEL, embedding, 2, 12), (today, "openai/other", embedding, 1, 1)]
    assert await client.usage(before=server.clock.now() - timedelta(days=1)) == ()
    assert await client.usage(purpose=sage_client.UsagePurpose.STEP) == ()
    meter.record_embedding(user_id, MODEL, 100)
    (first, _) = await usage(client)
    assert (first.calls, first.embedding_tokens) == (3, 112)


async def test_two_replicas_add_to_the_same_records(server: RunningServer, client: AsyncSageClient) -> None:
    user_id = await user_of(client)
    async with running_server(server.dsn) as other:
        meters = (server.application.usage, other.application.usage)
        for n in range(10):
            for meter in meters:
                meter.record_embedding(user_id, f"model/{n % 5 if meter is meters[0] else 4 - n % 5}", 1)
            await asyncio.gather(*(meter.flush() for meter in meters))
    records = await usage(client)
    assert [(record.model, record.calls) for record in records] == [(f"model/{n}", 4) for n in range(5)]


async def test_the_newest_day_comes_first_and_the_last_30_days_are_the_default(
    server: RunningServer, client: AsyncSageClient, store: PostgresUsageStore
) -> None:
    user_id = await user_of(client)
    today = server.clock.now().date()
    days = [today - timedelta(days=n) for n in (31, 30, 2, 1, 0)]
    await store.add([entry(user_id, day) for day in days])
    assert [record.day for record in await usage(client)] == [day.isoformat() for day in reversed(days[1:])]
    long_ago = datetime(1970, 1, 1, tzinfo=UTC)
    assert len(await usage(client, start=long_ago)) == 5
    record = (await usage(client))[0]
    counts = (record.calls, record.prompt_tokens, record.completion_tokens, record.embedding_tokens)
    assert counts == (1, 2, 3, 4)


async def test_start_is_the_first_day_and_end_the_day_after_the_last(
    client: AsyncSageClient, store: PostgresUsageStore
) -> None:
    user_id = await user_of(client)
    await store.add([entry(user_id, date(2026, 3, day)) for day in range(1, 11)])

    async def days(start: datetime, end: datetime) -> list[int]:
        return [int(record.day[-2:]) for record in await usage(client, start=start, end=end)]

    midnight = [datetime(2026, 3, day, tzinfo=UTC) for day in range(1, 12)]
    hour = timedelta(hours=13)
    assert await days(midnight[2], midnight[5]) == [5, 4, 3]
    assert await days(midnight[2] + hour, midnight[5]) == [5, 4, 3]
    assert await days(midnight[2], midnight[5] + hour) == [6, 5, 4, 3]
    assert await days(midnight[2], midnight[3]) == [3]
    assert await days(midnight[2], midnight[2]) == []
    assert await days(midnight[5], midnight[2]) == []
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert await days(first, last) == list(range(10, 0, -1))
    assert await days(last, first) == []


async def test_a_filter_leaves_one_purpose(client: AsyncSageClient, store: PostgresUsageStore) -> None:
    user_id, day = await user_of(client), date(2026, 3, 1)
    entries = [entry(user_id, day, model, purpose) for model in ("b", "a") for purpose in UsagePurpose]
    await store.add(entries)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    everything = await usage(client, start=start)
    assert [(record.model, int(record.purpose)) for record in everything] == [
        (model, int(purpose)) for model in ("a", "b") for purpose in UsagePurpose
    ]
    for purpose in UsagePurpose:
        found = await usage(client, start=start, purpose=purpose)
        assert {record.purpose for record in found} == {int(purpose)}
        assert [record.model for record in found] == ["a", "b"]


async def test_usage_stays_with_its_user(
    server: RunningServer, client: AsyncSageClient, store: PostgresUsageStore
) -> None:
    server.application.usage.record_embedding(await user_of(client), MODEL, 5)
    other = client.with_options(user="otto")
    otto = await user_of(other, "otto")
    assert await usage(other) == []
    await store.add([entry(otto, server.clock.now().date())])
    assert [record.embedding_tokens for record in await usage(other)] == [4]
    assert [record.embedding_tokens for record in await usage(client)] == [5]


async def test_what_is_not_written_yet_is_written_when_the_server_stops(dsn: str) -> None:
    async with (
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        user_id = await user_of(client)
        server.application.usage.record_embedding(user_id, MODEL, 5)
    async with running_server(dsn) as again, sage_client.connect_async(again.address, user="maria") as client:
        assert [record.embedding_tokens for record in await usage(client)] == [5]


async def test_the_usage_of_an_erased_user_is_gone_and_does_not_come_back(
    server: RunningServer, client: AsyncSageClient, store: PostgresUsageStore
) -> None:
    other = client.with_options(user="otto")
    erased, kept = await user_of(client), await user_of(other, "otto")
    day = server.clock.now().date()
    await store.add([entry(erased, day), entry(kept, day)])
    result = await client.admin.erase_user("maria")
    assert result.rows_by_table["usage_records"] == 1
    meter = server.application.usage
    for user_id in (erased, kept):
        meter.record_embedding(user_id, MODEL, 1)
    await meter.flush()
    database = await asyncpg.connect(server.dsn)
    owners = await database.fetch("SELECT DISTINCT user_id FROM usage_records")
    await database.close()
    assert [row["user_id"] for row in owners] == [kept]
    assert [record.embedding_tokens for record in await usage(other)] == [5]


async def test_an_erasure_that_has_begun_waits_for_usage_and_takes_it_along(
    server: RunningServer, client: AsyncSageClient, store: PostgresUsageStore
) -> None:
    """Usage names no key, so no foreign key keeps it from being written behind an erasure's back."""
    user_id = await user_of(client)
    database = await asyncpg.connect(server.dsn)
    async with database.transaction():
        # As an erasure does before its last deletions.
        await database.fetch("SELECT 1 FROM user_keys WHERE user_id = $1 FOR UPDATE", user_id)
        adding = asyncio.create_task(store.add([entry(user_id, date(2026, 3, 1))]))
        while not await database.fetchval("SELECT true FROM pg_locks WHERE NOT granted"):
            assert not adding.done()
            await asyncio.sleep(0.01)
        for table in ("requests", "conversations", "usage_records", "user_keys"):
            await database.execute(f"DELETE FROM {table} WHERE user_id = $1", user_id)
    await adding
    assert await database.fetchval("SELECT count(*) FROM usage_records") == 0
    await database.close()


async def test_what_could_not_be_written_is_written_the_next_time(
    server: RunningServer, client: AsyncSageClient, store: PostgresUsageStore
) -> None:
    user_id = await user_of(client)
    failing = FailingStore(store)
    meter = UsageMeter(failing, FakeClock())
    meter.record_embedding(user_id, MODEL, 5)
    flushing = asyncio.create_task(meter.flush())
    await failing.asked.wait()
    meter.record_embedding(user_id, MODEL, 7)
    failing.answers.set()
    with pytest.raises(SageError) as refused:
        await flushing
    assert refused.value.reason is Reason.DATABASE_UNAVAILABLE
    failing.asked.clear()
    failing.answers.clear()
    flushing = asyncio.create_task(meter.flush())
    await failing.asked.wait()
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    failing.answers.set()
    await meter.close()
    assert await usage(client) == []
    failing.failing = False
    await meter.flush()
    await meter.flush()
    (record,) = await usage(client)
    assert (record.calls, record.embedding_tokens) == (2, 12)


async def test_a_day_ends_at_midnight_in_utc(
    server: RunningServer, client: AsyncSageClient, store: PostgresUsageStore
) -> None:
    user_id = await user_of(client)
    clock = FakeClock()
    meter = UsageMeter(store, clock)
    meter.record_embedding(user_id, MODEL, 1)
    before = clock.now()
    clock.advance(timedelta(days=1))
    meter.record_embedding(user_id, MODEL, 1)
    await meter.flush()
    found = await store.list(user_id, TODAY, None)
    assert [record.key.day for record in found] == [
        (before + timedelta(days=1)).date(),
        before.date(),
    ]
    server.clock.advance(timedelta(days=1))
    assert len(await usage(client)) == 2


def test_purposes_have_the_numbers_of_the_contract() -> None:
    theirs = {name.removeprefix("USAGE_PURPOSE_"): number for name, number in usage_pb2.UsagePurpose.items()}
    assert {purpose.name: int(purpose) for purpose in UsagePurpose} | {"UNSPECIFIED": 0} == theirs
