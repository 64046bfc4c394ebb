"""What benchmarks run against: a fresh Postgres and a server as a stranger would run it, all in a
temporary folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

import asyncpg
import grpc

from bench.calls import Metadata
from sage_server.adapters.clock import SystemClock
from sage_server.adapters.crypto import CachedKeyRing, EnvironmentRootKeys, KeyWrapping, new_root_key
from sage_server.adapters.embedded_postgres import EmbeddedPostgres
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.migrate import migrate
from sage_server.adapters.postgres.users import PostgresKeyStore, PostgresUserStore

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_ROOT = Path(__file__).parent.parent
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_TENANT = "default"


@dataclass(frozen=True)
class Options:
    """How long and how large."""

    seconds: float
    """For each contender of a benchmark, in all its rounds."""
    rounds: int
    list_size: int


@dataclass(frozen=True)
class Environment:
    """A server and the database below it."""

    options: Options
    channel: grpc.aio.Channel
    dsn: str
    keys: CachedKeyRing
    model_url: str
    """Of a language model that answers at once."""
    _users: PostgresUserStore
    _secret: str

    def metadata(self, user: str) -> Metadata:
        """The credentials of a user."""
        return (("authorization", f"Bearer {self._secret}"), ("x-sage-user", user))

    async def user_id(self, user: str) -> UUID:
        """The user, made if it is new."""
        return await self._users.resolve(_TENANT, user)

    @asynccontextmanager
    async def second_database(self, name: str) -> AsyncIterator[str]:
        """Another database with the same tables in the same Postgres, for those who do without a server."""
        await self.execute(f"CREATE DATABASE {name}")
        dsn = self.dsn.replace("/sage?", f"/{name}?")
        await migrate(dsn)
        try:
            yield dsn
        finally:
            await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """To the server's database, past the server."""
        connection = await asyncpg.connect(self.dsn, command_timeout=600)
        try:
            yield connection
        finally:
            await connection.close()

    async def execute(self, sql: str) -> None:
        """A statement outside any transaction."""
        async with self.connection() as connection:
            await connection.execute(sql)


@asynccontextmanager
async def open_environment(options: Options) -> AsyncIterator[Environment]:
    """Start everything; nothing of it is left afterwards."""
    async with AsyncExitStack() as stack:
        folder = _folder()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        postgres = await EmbeddedPostgres.start(folder / "data")
        stack.push_async_callback(postgres.stop)
        model = (sys.executable, "-m", "bench.model_server")
        model_address = await stack.enter_async_context(child(model, {}, folder / "model.log"))
        model_url = f"http://{model_address}/v1"
        root_key = new_root_key()
        settings = {
            "SAGE_DATABASE_URL": postgres.dsn,
            "SAGE_ROOT_KEY": root_key,
            "SAGE_DATA_DIR": str(folder / "data"),
            "SAGE_LISTEN": "127.0.0.1:0",
            "SAGE_METRICS_LISTEN": "off",
            "SAGE_AUTH": "required",
            "SAGE_MAX_RATE_PER_USER": "0",
            "SAGE_LLM_BASE_URL": model_url,
            "SAGE_LLM_CONCURRENCY": "256",
        }
        # Calls are logged as they are by default, to a file: that is part of what a user waits for.
        log = folder / "server.log"
        sage = (sys.executable, "-m", "sage_server")
        secret = (await _output((*sage, "keys", "create-api-key", "bench"), settings)).strip()
        address = await stack.enter_async_context(child((*sage, "serve"), settings, log))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        database = await Database.open(postgres.dsn, PoolOptions(0, 4, 30, 600))
        stack.push_async_callback(database.close)
        wrapping, clock = KeyWrapping(EnvironmentRootKeys(root_key)), SystemClock()
        keys = CachedKeyRing(PostgresKeyStore(database, clock), wrapping, 1000)
        users = PostgresUserStore(database, clock, wrapping.new_key)
        yield Environment(options, channel, postgres.dsn, keys, model_url, users, secret)


@asynccontextmanager
async def child(command: Sequence[str], settings: Mapping[str, str], log: Path) -> AsyncIterator[str]:
    """A server in a process of its own; answers with the address that it says it listens on."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=_ROOT, env=_environ(settings), stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        yield await asyncio.wait_for(_address(process, log), _START_SECONDS)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="sage-bench-", dir="/tmp"))
    folder.chmod(0o755)  # the account that runs Postgres must get through
    return folder


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


async def _address(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if " listens on " in line:
            return line.split()[3]
    raise RuntimeError(f"a server of the benchmark did not start:\n{_end_of(log)}")


async def _output(command: Sequence[str], settings: Mapping[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=_ROOT, env=_environ(settings), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), _START_SECONDS)
    if process.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed")
    return output.decode()


def _environ(settings: Mapping[str, str]) -> dict[str, str]:
    """Nothing that is set for another server."""
    return {key: value for key, value in os.environ.items() if not key.startswith("SAGE_")} | dict(settings)
