"""The log of events on Postgres, followed on several replicas: every event once, in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import asyncpg
import pytest

from sage_server.adapters.crypto import CachedKeyRing, EnvironmentRootKeys, KeyWrapping
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.event_notices import CHANNEL, PostgresEventNotices, connect_for_notices
from sage_server.adapters.postgres.events import PostgresEventStore
from sage_server.adapters.postgres.retention import PostgresRetentionStore
from sage_server.adapters.postgres.users import PostgresErasureStore, PostgresKeyStore, PostgresUserStore
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.events import EVENTS_KEPT, Event, EventRange, Heartbeat, Payload
from sage_server.engine.event_hub import EventHub, HubOptions
from sage_server.ports.stores import RetentionPolicy
from support.clock import FakeClock
from support.event_log import DONE, MAIN, EventWriter, numbered
from support.server import ROOT_KEY

NEVER = 600.0
WITHIN = 1.5
"""Seconds in which an event must arrive when nobody is woken."""


@dataclass(frozen=True)
class Replica:
    """What one process has."""

    database: Database
    keys: CachedKeyRing
    users: PostgresUserStore
    store: PostgresEventStore
    writer: EventWriter
    hub: EventHub
    clock: FakeClock

    async def tell(self, user_id: UUID, *payloads: Payload) -> list[Event]:
        """Store and publish, as a turn does."""
        events = await self.writer.store(user_id, *payloads)
        self.hub.publish(user_id, events)
        return events

    async def seen(
        self, user_id: UUID, after: int, count: int, *, poll_only: float | None = None
    ) -> list[int]:
        """The numbers of the next events."""
        following = self.hub.follow(user_id, after, wanted=lambda _: True, deltas=False, heartbeat=NEVER)
        try:
            async with asyncio.timeout(poll_only or 30):
                return [(await anext(following)).seq for _ in range(count)]
        finally:
            await following.aclose()


@dataclass
class Replicas:
    """Processes on one database."""

    dsn: str
    stack: AsyncExitStack
    clock: FakeClock = field(default_factory=FakeClock)

    async def start(self, *, notify: bool = True, listen: bool = True, poll: float = 0.5) -> Replica:
        database = await Database.open(self.dsn, PoolOptions(1, 6, 10, 30))
        self.stack.push_async_callback(database.close)
        wrapping = KeyWrapping(EnvironmentRootKeys(ROOT_KEY, []))
        keys = CachedKeyRing(PostgresKeyStore(database, self.clock), wrapping, 100)
        notices = PostgresEventNotices(partial(connect_for_notices, self.dsn)) if notify else None
        store = PostgresEventStore(database, keys)
        hub = EventHub(store, notices, self.clock, HubOptions(poll=poll))
        tasks = [asyncio.create_task(hub.run())]
        if notices is not None and listen:
            tasks.append(asyncio.create_task(notices.run(hub.heard)))
            await listening(self.dsn, 1)
        self.stack.push_async_callback(_stopped, tasks, hub)
        users = PostgresUserStore(database, self.clock, wrapping.new_key)
        writer = EventWriter(database, keys, self.clock)
        return Replica(database, keys, users, store, writer, hub, self.clock)


async def _stopped(tasks: list[asyncio.Task[None]], hub: EventHub) -> None:
    hub.close()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def listening(dsn: str, count: int, without: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Wait until so many processes listen; answers with their connections."""
    async with asyncio.timeout(20), _connected(dsn) as connection:
        while True:
            rows = await connection.fetch(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'sage-events' AND state = 'idle' AND query <> ''"
            )
            found = tuple(row["pid"] for row in rows if row["pid"] not in without)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def replicas(dsn: str) -> AsyncIterator[Replicas]:
    async with AsyncExitStack() as stack:
        yield Replicas(dsn, stack)


async def test_every_event_once_and_in_order_for_followers_that_come_and_go(replicas: Replicas) -> None:
    """8 writers and 100 followers on two replicas, 2,000 events."""
    here, there = await replicas.start(), await replicas.start()
    maria = await here.users.resolve("default", "maria")
    chance = random.Random(4)

    async def write(at: Replica) -> None:
        for _ in range(125):
            await at.tell(maria, *numbered(2))
            if chance.random() < 0.1:
                await asyncio.sleep(chance.random() / 50)

    async def follow() -> list[int]:
        seen: list[int] = []
        while len(seen) < 2000:
            at = chance.choice((here, there))
            count = min(chance.randint(50, 600), 2000 - len(seen))
            seen += await at.seen(maria, seen[-1] if seen else 0, count, poll_only=60)
        return seen

    everybody = [asyncio.create_task(follow()) for _ in range(100)]
    await asyncio.gather(*(write(at) for at in (here, there) for _ in range(4)))
    for seen in await asyncio.gather(*everybody):
        assert seen == list(range(1, 2001))


async def test_without_notify_an_event_of_another_replica_arrives_in_time(replicas: Replicas) -> None:
    here, there = await replicas.start(notify=False), await replicas.start(notify=False)
    maria = await here.users.resolve("default", "maria")
    following = asyncio.create_task(there.seen(maria, 0, 2, poll_only=WITHIN + 1))
    await asyncio.sleep(1)
    await here.tell(maria, *numbered(2))
    async with asyncio.timeout(WITHIN):
        assert await following == [1, 2]


async def test_an_event_arrives_in_time_though_every_notice_is_lost(replicas: Replicas) -> None:
    here, there = await replicas.start(), await replicas.start(listen=False)
    maria = await here.users.resolve("default", "maria")
    following = asyncio.create_task(there.seen(maria, 0, 2, poll_only=WITHIN + 1))
    await asyncio.sleep(1)
    await here.tell(maria, *numbered(2))
    async with asyncio.timeout(WITHIN):
        assert await following == [1, 2]


async def test_a_notice_wakes_another_replica_also_after_its_connection_was_lost(replicas: Replicas) -> None:
    here = await replicas.start(poll=NEVER)
    there = await replicas.start(poll=NEVER)
    before = await listening(replicas.dsn, 2)
    maria = await here.users.resolve("default", "maria")
    following = asyncio.create_task(there.seen(maria, 0, 4))
    await asyncio.sleep(0.1)  # nobody polls: what is stored from here on is seen by notices only
    await here.tell(maria, *numbered(2))
    async with _connected(replicas.dsn) as connection:
        for pid in before:
            await connection.execute("SELECT pg_terminate_backend($1)", pid)
    await listening(replicas.dsn, 2, without=before)
    await here.tell(maria, *numbered(2))
    assert await following == [1, 2, 3, 4]


async def test_a_notice_names_a_user_once_and_nothing_else(replicas: Replicas) -> None:
    here = await replicas.start()
    maria, otto, ada = [await here.users.resolve("default", name) for name in ("maria", "otto", "ada")]
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with _connected(replicas.dsn) as connection, asyncio.timeout(20):
        await connection.add_listener(CHANNEL, lambda *notice: heard.put_nowait(str(notice[-1])))
        for user_id in [maria] * 50 + [otto]:
            here.hub.publish(user_id, [_said(user_id)])
        assert {await heard.get(), await heard.get()} == {str(maria), str(otto)}
        here.hub.publish(ada, [_said(ada)])
        assert await heard.get() == str(ada)


async def test_what_is_on_the_channel_and_no_notice_does_no_harm(replicas: Replicas) -> None:
    here = await replicas.start(poll=NEVER)
    there = await replicas.start(poll=NEVER)
    maria = await here.users.resolve("default", "maria")
    following = asyncio.create_task(there.seen(maria, 0, 1))
    await asyncio.sleep(0.1)
    async with _connected(replicas.dsn) as connection:
        await connection.execute(f"NOTIFY {CHANNEL}, 'no user at all'")
        await connection.execute(f"NOTIFY {CHANNEL}, '{uuid4()}'")
    await here.tell(maria, *numbered(1))
    assert await following == [1]


async def test_numbers_are_in_the_order_of_commits(replicas: Replicas) -> None:
    """A writer that took a number and has not committed keeps others from overtaking it."""
    here = await replicas.start()
    maria = await here.users.resolve("default", "maria")
    async with _connected(replicas.dsn) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE heads SET last_event = last_event + 1 WHERE user_id = $1", maria)
        second = asyncio.create_task(here.writer.store(maria, *numbered(1)))
        await asyncio.sleep(0.1)
        assert not second.done()
        assert await here.store.after(maria, 0, 10) == []
        await transaction.commit()
    assert [event.seq for event in await second] == [2]


async def test_events_are_read_as_they_were_told(replicas: Replicas) -> None:
    here = await replicas.start()
    maria = await here.users.resolve("default", "maria")
    otto = await here.users.resolve("default", "otto")
    told = await here.writer.store(maria, *numbered(100), DONE)
    assert await here.store.after(maria, 0, 1000) == told
    assert await here.store.after(maria, 98, 2) == told[98:100]
    assert await here.store.of_turn(maria, MAIN.turn_id, 99, 10) == told[99:]
    assert await here.store.of_turn(maria, uuid4(), 0, 10) == []
    assert await here.store.after(otto, 0, 10) == []
    assert await here.store.range(maria) == EventRange(1, 101)
    assert await here.store.range(otto) == EventRange(1, 0)
    assert await here.store.last([maria, otto, uuid4()]) == {maria: 101, otto: 0}


async def test_expired_events_go_in_batches_and_leave_word_of_it(replicas: Replicas) -> None:
    here = await replicas.start()
    maria = await here.users.resolve("default", "maria")
    otto = await here.users.resolve("default", "otto")
    await here.writer.store(maria, *numbered(5))
    replicas.clock.advance(EVENTS_KEPT + timedelta(minutes=1))
    await here.writer.store(maria, *numbered(2))
    await here.writer.store(otto, *numbered(2))
    now = replicas.clock.now()
    policy = RetentionPolicy(now - timedelta(days=30), None)
    retention = PostgresRetentionStore(here.database)
    assert await retention.prune(policy, now, 2) == 2
    assert await here.store.range(maria) == EventRange(3, 7)
    while await retention.prune(policy, now, 2):
        pass
    assert await here.store.range(maria) == EventRange(6, 7)
    assert await here.store.range(otto) == EventRange(1, 2)
    assert [event.seq for event in await here.store.after(maria, 0, 10)] == [6, 7]
    with pytest.raises(SageError) as expired:
        await here.seen(maria, 3, 1)
    assert expired.value.metadata == {"oldest_event_id": "6"}


async def test_a_restart_of_every_connection_does_not_end_a_follower(replicas: Replicas) -> None:
    here = await replicas.start()
    there = await replicas.start()
    maria = await here.users.resolve("default", "maria")
    await here.tell(maria, *numbered(300))
    following = there.hub.follow(maria, 0, wanted=lambda _: True, deltas=False, heartbeat=NEVER)
    seen = [(await anext(following)).seq for _ in range(100)]
    async with _connected(replicas.dsn) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    async with asyncio.timeout(30):
        seen += [(await anext(following)).seq for _ in range(200)]
        await (await replicas.start()).tell(maria, *numbered(1))
        seen.append((await anext(following)).seq)
    assert seen == list(range(1, 302))


async def test_followers_of_a_user_end_with_the_users_key(replicas: Replicas) -> None:
    here = await replicas.start()
    maria = await here.users.resolve("default", "maria")
    following = here.hub.follow(maria, 0, wanted=lambda _: True, deltas=False, heartbeat=0.05)
    await here.tell(maria, *numbered(1))
    assert (await anext(following)).seq == 1
    await PostgresErasureStore(here.database).destroy_keys(maria, replicas.clock.now())
    here.keys.forget(maria)
    here.hub.forget(maria)
    with pytest.raises(SageError) as ended:
        async with asyncio.timeout(20):
            async for event in following:
                assert isinstance(event.payload, Heartbeat)
    assert ended.value.reason is Reason.USER_ERASED
    with pytest.raises(SageError) as gone:
        await here.store.range(maria)
    assert gone.value.reason is Reason.USER_ERASED


def _said(user_id: UUID) -> Event:
    """What a notice must not show: it was never stored."""
    return Event(1, user_id, 0, FakeClock().now(), None, None, MAIN.channel, DONE)
