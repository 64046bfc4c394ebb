"""Fixtures: real parts only. See support/."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import sage_client
from support.postgres import TestPostgres
from support.server import RunningServer, running_server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=0, help="rounds by chance of tests that have them")
    parser.addoption(
        "--fresh", action="store_true", help="install from the package index where tests install"
    )


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[TestPostgres]:
    """One Postgres for the session."""
    async with TestPostgres.running() as running:
        yield running


@pytest.fixture
async def dsn(postgres: TestPostgres) -> AsyncIterator[str]:
    """A fresh database with the schema."""
    async with postgres.database() as address:
        yield address


@pytest.fixture
async def server(dsn: str) -> AsyncIterator[RunningServer]:
    """A server without authentication: the caller is `x-sage-user`, or `local`."""
    async with running_server(dsn) as running:
        yield running


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[sage_client.AsyncSageClient]:
    """The real client of that server, acting for `maria`."""
    async with sage_client.connect_async(server.address, user="maria") as connected:
        yield connected
