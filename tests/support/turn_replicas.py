"""Two servers on one database whose turns a scripted model runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

import sage_client
from sage_client import (
    AsyncChat,
    AsyncSageClient,
    RetryPolicy,
    TurnAccepted,
    TurnCancelled,
    TurnDone,
    TurnEvent,
    TurnMessage,
)
from support.agents import model_settings, only
from support.provider import FakeProvider
from support.server import ROOT_KEY, ChildServer, child_server, running_server

_STUCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
LEASE = 3
"""What ends elsewhere is noticed after a third of it."""


@dataclass(frozen=True)
class Replicas:
    """Two servers on one database, and clients of `maria`, whose main agent is enabled."""

    dsn: str
    provider: FakeProvider
    here: AsyncSageClient
    there: AsyncSageClient

    def at(self, number: int) -> AsyncSageClient:
        return (self.here, self.there)[number % 2]


@asynccontextmanager
async def two_replicas(dsn: str, **changes: Any) -> AsyncIterator[Replicas]:
    """Both in this process."""
    async with FakeProvider.running() as provider:
        settings = model_settings(provider, **{"turn_lease": LEASE} | changes)
        async with (
            running_server(dsn, **settings) as first,
            running_server(dsn, **settings) as second,
            sage_client.connect_async(first.address, user="maria") as here,
            sage_client.connect_async(second.address, user="maria") as there,
        ):
            await here.agent("main").enable()
            yield Replicas(dsn, provider, here, there)


@asynccontextmanager
async def child(replicas: Replicas, **changes: Any) -> AsyncIterator[tuple[ChildServer, AsyncSageClient]]:
    """A third replica, in a process of its own."""
    where = {"database_url": replicas.dsn, "root_key": ROOT_KEY, "turn_lease": LEASE}
    async with (
        child_server(**model_settings(replicas.provider, **where | changes)) as server,
        sage_client.connect_async(server.address, user="maria", retry=RetryPolicy(max_attempts=1)) as client,
    ):
        yield server, client


async def begun(chat: AsyncChat) -> TurnAccepted:
    """The turn is accepted; the rest of its events is for later."""
    accepted = await anext(chat)
    assert isinstance(accepted, TurnAccepted)
    return accepted


def cancelled(events: Sequence[TurnEvent]) -> TurnCancelled:
    """The last event of a turn that was cancelled."""
    (last,) = only(events, TurnCancelled)
    assert events[-1] is last
    return last


def done(events: Sequence[TurnEvent]) -> TurnDone:
    """The last event of a turn that is complete."""
    (last,) = only(events, TurnDone)
    assert events[-1] is last
    return last


def said(events: Sequence[TurnEvent]) -> list[str]:
    """What the agent said."""
    return [message.text for message in only(events, TurnMessage)]


async def stuck(database: asyncpg.Connection, count: int) -> None:
    """Wait until so many statements in the database wait for a lock."""
    async with asyncio.timeout(20):
        while await database.fetchval(_STUCK) < count:  # noqa: ASYNC110 (the database does it)
            await asyncio.sleep(0.01)
