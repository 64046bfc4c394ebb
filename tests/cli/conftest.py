"""One server with a scripted model for all tests of a file; each test has a user of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

import sage_client
from sage_client import AsyncSageClient
from support.agents import model_settings
from support.cli import Cli
from support.postgres import TestPostgres
from support.provider import FakeProvider
from support.server import RunningServer, running_server


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider.running() as running:
        yield running


@pytest.fixture(scope="module")
async def server(postgres: TestPostgres, provider: FakeProvider) -> AsyncIterator[RunningServer]:
    async with postgres.database() as dsn, running_server(dsn, **model_settings(provider)) as running:
        yield running


@pytest.fixture
def sage(server: RunningServer) -> Cli:
    """The command line of a user who was never there before."""
    return Cli(server.address, f"maria-{uuid4()}")


@pytest.fixture
async def client(server: RunningServer, sage: Cli) -> AsyncIterator[AsyncSageClient]:
    """The client of the same user."""
    async with sage_client.connect_async(server.address, user=sage.user) as connected:
        yield connected
