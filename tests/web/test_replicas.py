"""Three replicas behind Envoy: users stick to theirs, and nothing is lost when one dies, hangs or stops, nor
when Envoy itself does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    EventChannel,
    ItemKind,
    NewItem,
    RetryPolicy,
    TurnDone,
    TurnEvent,
    TurnMessage,
)
from support.agents import answer, heard, model_settings, only, plain
from support.postgres import TestPostgres
from support.provider import FakeProvider, chat_reply, hang
from support.server import ROOT_KEY, ChildServer, child_server
from support.web import Proxy, free_port, running_proxy

USERS = [f"user {number}" for number in range(12)]
PATIENT = RetryPolicy(max_attempts=50, max_backoff=0.5)
LEASE = 2.5
"""Seconds. A replica that gets no processor for so long loses its turns to another one while it lives."""


class Cluster:
    """Replicas by their ids, on one database, behind Envoy."""

    def __init__(self, stack: AsyncExitStack, dsn: str, provider: FakeProvider) -> None:
        self.replicas: dict[str, ChildServer] = {}
        self.provider = provider
        self.proxy: Proxy
        self._stack = stack
        self._dsn = dsn

    @classmethod
    @asynccontextmanager
    async def running(cls, dsn: str) -> AsyncIterator[Cluster]:
        """Three of them."""
        async with AsyncExitStack() as stack:
            cluster = cls(stack, dsn, await stack.enter_async_context(FakeProvider.running()))
            await asyncio.gather(*(cluster._start("127.0.0.1:0") for _ in range(3)))
            addresses = [child.address for child in cluster.replicas.values()]
            admin = f"127.0.0.1:{free_port()}"
            cluster.proxy = await stack.enter_async_context(running_proxy(*addresses, admin_listen=admin))
            yield cluster

    async def whole(self) -> None:
        """Start again what has ended, and wait until Envoy knows that all are well: until then it sends users
        elsewhere than later."""
        for name, child in list(self.replicas.items()):
            if child.process.returncode is not None:
                del self.replicas[name]
                await self._start(child.address)
        await self.proxy.until_healthy(len(self.replicas))

    async def _start(self, address: str) -> None:
        settings = {"database_url": self._dsn, "root_key": ROOT_KEY, "turn_lease": LEASE, "pool_max": 8}
        starting = child_server(**model_settings(self.provider, **settings, drain=2, listen=address))
        child = await self._stack.enter_async_context(starting)
        async with sage_client.connect_async(child.address) as direct:
            self.replicas[await answering(direct)] = child

    @asynccontextmanager
    async def client(self, user: str) -> AsyncIterator[AsyncSageClient]:
        """On a connection of its own."""
        async with sage_client.connect_async(self.proxy.address, user=user, retry=PATIENT) as client:
            yield client

    async def replica_of(self, user: str) -> str:
        """The id of the replica that answers the user."""
        async with self.client(user) as client:
            return await answering(client)

    async def replicas_of(self, users: Sequence[str]) -> list[str]:
        """Likewise, all asked at once."""
        return await asyncio.gather(*map(self.replica_of, users))

    async def replica_that_runs(self, turn_id: str) -> str:
        """Nearly always that of its user, but a user may have moved meanwhile."""
        database = await asyncpg.connect(self._dsn)
        try:
            return str(await database.fetchval("SELECT lease_owner FROM turns WHERE id = $1", UUID(turn_id)))
        finally:
            await database.close()


@pytest.fixture(scope="module")
async def running(postgres: TestPostgres) -> AsyncIterator[Cluster]:
    """One for all tests here, since a replica takes seconds to start. Each test has users of its own."""
    async with postgres.database() as dsn, Cluster.running(dsn) as cluster:
        yield cluster


@pytest.fixture
async def cluster(running: Cluster) -> Cluster:
    await running.whole()
    return running


async def answering(client: AsyncSageClient) -> str:
    return (await client.admin.server_info()).replica.id


async def until_message(events: AsyncIterator[TurnEvent], text: str) -> list[TurnEvent]:
    """Events up to the message with this text."""
    seen = []
    async for event in events:
        seen.append(plain(event))
        if isinstance(event, TurnMessage) and event.text == text:
            return seen
    raise AssertionError("the message did not come")


def said(events: list[TurnEvent]) -> list[str]:
    return [message.text for message in only(events, TurnMessage)]


async def test_a_user_sticks_to_a_replica_and_users_are_spread(cluster: Cluster) -> None:
    first = await cluster.replicas_of(USERS)
    assert await cluster.replicas_of(USERS) == first
    assert len(set(first)) > 1
    assert set(first) <= set(cluster.replicas)


async def write(cluster: Cluster, user: str, stop: asyncio.Event) -> None:
    """Write one message after the other until told to stop; then all that were acknowledged are there, each
    once and in order."""
    async with cluster.client(user) as client:
        thread = await client.conversations.create(user)
        texts: list[str] = []
        while not stop.is_set():
            texts.append(f"Number {len(texts)}")
            await client.conversations.append(thread.id, [NewItem(ItemKind.USER, texts[-1])])
            await asyncio.sleep(0.05)
        assert [item.text async for item in client.conversations.items(thread.id)] == texts


@asynccontextmanager
async def everybody_writing(cluster: Cluster) -> AsyncIterator[None]:
    """All users write meanwhile."""
    stop = asyncio.Event()
    writers = [asyncio.create_task(write(cluster, user, stop)) for user in USERS]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*writers)


async def test_a_replica_that_hangs_is_left(cluster: Cluster) -> None:
    """Connections to it still open, so only health checks can tell."""
    hung = await cluster.replica_of("ada")
    cluster.replicas[hung].send(signal.SIGSTOP)
    try:
        async with asyncio.timeout(20), cluster.client("ada") as ada:
            hurried = ada.with_options(timeout=0.5, retry=RetryPolicy(max_attempts=1))
            while True:
                try:
                    assert await answering(hurried) != hung
                    break
                except sage_client.DeadlineExceeded:
                    continue
    finally:
        cluster.replicas[hung].send(signal.SIGCONT)


async def test_streams_go_on_when_envoy_is_killed_and_comes_back(cluster: Cluster) -> None:
    second, third = asyncio.Event(), asyncio.Event()
    cluster.provider.script_chat(
        chat_reply(answer("First.", calls=[("scratchpad_read", {})])),
        chat_reply(answer("Second.", calls=[("scratchpad_read", {})]), hold=second),
        chat_reply(answer("Third."), hold=third),
    )
    async with cluster.client("otto") as otto:
        await otto.agent("main").enable()
        async with otto.watch(after_event_id=0, channels=[EventChannel.TURN]) as watch:
            chat = otto.agent("main").chat("Hi")
            events, watched = await until_message(chat, "First."), await until_message(watch, "First.")
            await cluster.proxy.kill()
            second.set()
            await cluster.proxy.start()
            events += await until_message(chat, "Second.")
            watched += await until_message(watch, "Second.")
            third.set()
            events += await heard(chat)
            while not isinstance(watched[-1], TurnDone):
                watched.append(plain(await anext(watch)))
        assert said(events) == ["First.", "Second.", "Third."]
        assert events == watched == await heard(otto.turns.attach(chat.turn_id))


async def test_killing_a_replica_moves_its_users_within_3_seconds_and_loses_nothing(cluster: Cluster) -> None:
    asked = len(cluster.provider.chats)
    cluster.provider.script_chat(
        chat_reply(answer("First.", calls=[("scratchpad_read", {})])), hang, chat_reply(answer("Second."))
    )
    async with cluster.client("maria") as maria, everybody_writing(cluster):
        await maria.agent("main").enable()
        chat = maria.agent("main").chat("Hi")
        events = await until_message(chat, "First.")
        while len(cluster.provider.chats) < asked + 2:  # noqa: ASYNC110 (the provider has no event for the second)
            await asyncio.sleep(0.01)
        dead = await cluster.replica_that_runs(chat.turn_id)
        cluster.replicas[dead].send(signal.SIGKILL)
        async with asyncio.timeout(3):
            assert dead not in await cluster.replicas_of(["maria", *USERS])
        events += await heard(chat)
        assert said(events) == ["First.", "Second."]
        assert isinstance(events[-1], TurnDone)
        assert events == await heard(maria.turns.attach(chat.turn_id))


async def test_a_replica_that_stops_finishes_its_calls_and_its_users_move(cluster: Cluster) -> None:
    """As in an upgrade of one replica after the other."""
    stopped, goes_on = await cluster.replica_of("noor"), asyncio.Event()
    cluster.provider.script_chat(
        chat_reply(answer("First.", calls=[("scratchpad_read", {})])),
        chat_reply(answer("Second."), hold=goes_on),
    )
    async with cluster.client("noor") as noor, everybody_writing(cluster):
        await noor.agent("main").enable()
        chat = noor.agent("main").chat("Hi")
        events = await until_message(chat, "First.")
        cluster.replicas[stopped].send(signal.SIGTERM)
        async with asyncio.timeout(3):
            while await cluster.replica_of("noor") == stopped:  # noqa: ASYNC110 (until it sees the signal)
                await asyncio.sleep(0.01)
        goes_on.set()
        events += await heard(chat)
        assert said(events) == ["First.", "Second."]
        assert events == await heard(noor.turns.attach(chat.turn_id))
        assert await cluster.replicas[stopped].ended() == 0
