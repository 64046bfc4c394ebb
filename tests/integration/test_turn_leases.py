"""Whoever does not hold a turn any more stores nothing of it, and what goes wrong ends a turn properly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import asyncpg
import pytest

import sage_client
from sage_client import AsyncSageClient, TurnFailed, TurnMessage, TurnStatus
from support.agents import Call, answer, heard, model_settings, only
from support.memory import texts
from support.provider import FakeProvider, ProviderRequest, chat_reply
from support.server import RunningServer, running_server
from support.turn_replicas import stuck

EFFECTS: list[tuple[Call, ...]] = [
    (),
    (("memory_append", {"label": "human", "text": "Twice?"}),),
    (("archival_insert", {"text": "Twice?"}),),
]


class Stand:
    """Servers that do not renew leases while a test looks. Each runs one turn at most, so that none takes its
    own one over."""

    def __init__(self, dsn: str, provider: FakeProvider, stack: AsyncExitStack) -> None:
        self.dsn = dsn
        self.provider = provider
        self._stack = stack
        self.calls: list[asyncio.Event] = []
        """Calls of the model, each of which waits for its event."""

    async def server(self) -> tuple[RunningServer, AsyncSageClient]:
        settings = model_settings(self.provider, turn_lease=600, max_turns=1)
        server = await self._stack.enter_async_context(running_server(self.dsn, **settings))
        client = sage_client.connect_async(server.address, user="maria")
        return server, await self._stack.enter_async_context(client)

    def answer_with(self, *texts: str) -> None:
        """One text a call, whichever step it is for."""

        async def wait(request: ProviderRequest) -> Any:
            number = len(self.calls)
            self.calls.append(asyncio.Event())
            await self.calls[number].wait()
            return await chat_reply(texts[number])(request)

        self.provider.chat = lambda _: wait

    async def asked(self, times: int) -> None:
        async with asyncio.timeout(20):
            while len(self.calls) < times:  # noqa: ASYNC110 (a list has no event)
                await asyncio.sleep(0.01)

    async def execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            assert await connection.execute(sql) != "UPDATE 0"
        finally:
            await connection.close()

    async def lease_runs_out(self) -> None:
        await self.execute("UPDATE turns SET lease_until = now() WHERE lease_until IS NOT NULL")


@pytest.fixture
async def stand(dsn: str) -> AsyncIterator[Stand]:
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(FakeProvider.running())
        yield Stand(dsn, provider, stack)


async def left(server: RunningServer) -> None:
    """Wait until the server gives a turn up."""
    async with asyncio.timeout(20):
        while not server.application.turns.workers.left:  # noqa: ASYNC110 (a counter has no event)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("calls", EFFECTS, ids=["words", "block", "memory"])
async def test_a_lease_that_ran_out_stores_nothing_though_nobody_has_taken_the_turn(
    stand: Stand, calls: tuple[Call, ...]
) -> None:
    server, client = await stand.server()
    await client.agent("main").enable()
    stand.answer_with(answer("Too late.", calls=calls), answer("In time."))
    async with client.agent("main").chat("Hi") as chat:
        accepted = await anext(chat)
        await stand.asked(1)
        await stand.lease_runs_out()
        stand.calls[0].set()
        await left(server)
        assert (await client.turns.get(accepted.turn_id)).step == 0
        await stand.asked(2)
        stand.calls[1].set()
        events = await heard(chat)
    assert [message.text for message in only(events, TurnMessage)] == ["In time."]
    assert [item.text async for item in client.agent("main").items()] == ["Hi", "In time."]
    assert (await client.memory.blocks.get("human")).value == ""
    assert "Twice?" not in await texts(client)


@pytest.mark.parametrize("calls", EFFECTS, ids=["words", "block", "memory"])
async def test_whoever_was_overtaken_stores_nothing_though_the_turn_still_runs(
    stand: Stand, calls: tuple[Call, ...]
) -> None:
    first, client = await stand.server()
    await client.agent("main").enable()
    stand.answer_with(answer("Too late.", calls=calls), answer("In time."))
    async with client.agent("main").chat("Hi") as chat:
        accepted = await anext(chat)
        await stand.asked(1)
        await stand.server()
        await stand.lease_runs_out()
        await stand.asked(2)
        stand.calls[0].set()
        await left(first)
        assert (await client.turns.get(accepted.turn_id)).step == 0
        stand.calls[1].set()
        events = await heard(chat)
    assert [message.text for message in only(events, TurnMessage)] == ["In time."]
    assert [item.text async for item in client.agent("main").items()] == ["Hi", "In time."]
    assert (await client.memory.blocks.get("human")).value == ""
    assert "Twice?" not in await texts(client)


async def test_of_two_who_take_the_next_turn_at_once_one_gets_it(stand: Stand) -> None:
    """Both wait for the first that waits, and whoever comes too late must not take the one after it."""
    servers = [await stand.server() for _ in range(2)]
    agent = servers[0][1].agent("main")
    await agent.enable()
    stand.answer_with(*[answer("Here.")] * 3)
    async with agent.chat("One") as one, agent.chat("Two") as two, agent.chat("Three") as three:
        ids = [UUID((await anext(chat)).turn_id) for chat in (one, two, three)]
        await stand.asked(1)
        connection = await asyncpg.connect(stand.dsn)
        async with connection.transaction():
            row = await connection.fetchrow("SELECT * FROM turns WHERE id = $1 FOR UPDATE", ids[1])
            assert row is not None
            await stand.execute("UPDATE turns SET status = 5 WHERE status = 2")
            takers = [
                asyncio.create_task(
                    server.application.turns.store.take_next(
                        row["user_id"], row["conversation_id"], server.clock.now()
                    )
                )
                for server, _ in servers
            ]
            await stuck(connection, 2)
        taken = [lease.turn.id for lease in await asyncio.gather(*takers) if lease is not None]
        running = await connection.fetch("SELECT id FROM turns WHERE status = 2")
        await connection.close()
    assert [row["id"] for row in running] == [ids[1]]
    assert taken in ([], [ids[1]])  # one of the servers may have been faster


async def test_a_turn_that_the_server_breaks_in_ends_with_what_it_has_stored(stand: Stand) -> None:
    """The second step finds a table gone."""
    _, client = await stand.server()
    await client.agent("main").enable()
    stand.answer_with(answer("One.", calls=[("archival_search", {"query": "One"})]))
    async with client.agent("main").chat("Hi") as chat:
        accepted = await anext(chat)
        await stand.asked(1)
        await stand.execute("ALTER TABLE scratchpads RENAME TO elsewhere")
        stand.calls[0].set()
        events = await heard(chat)
    (failed,) = only(events, TurnFailed)
    assert (failed.reason, failed.step_count, failed.message_count) == ("INTERNAL", 1, 1)
    turn = await client.turns.get(accepted.turn_id)
    assert (turn.status, turn.error_reason) == (TurnStatus.FAILED, "INTERNAL")
    assert (turn.step, turn.message_count, turn.usage.model_calls) == (1, 1, 1)
    assert turn.last_event_id == failed.event_id
