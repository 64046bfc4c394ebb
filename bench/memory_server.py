"""A server that takes vectors of a given length, on a database of its own in the benchmark's Postgres."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import grpc

from bench.calls import Metadata
from bench.environment import Environment, child
from sage_server.adapters.crypto import new_root_key

_SAGE = (sys.executable, "-m", "sage_server")
_SECONDS = 60.0


class MemoryCaller:
    """Calls a method of MemoryService with bytes and gets bytes."""

    def __init__(self, channel: grpc.aio.Channel, method: str) -> None:
        self._call: Any = channel.unary_unary(f"/sage.v1.MemoryService/{method}")

    async def __call__(self, request: bytes, metadata: Metadata) -> bytes:
        answer: bytes = await self._call(request, metadata=metadata, timeout=_SECONDS)
        return answer


@dataclass(frozen=True)
class MemoryServer:
    """The server, and where its rows are."""

    channel: grpc.aio.Channel
    dsn: str
    _secret: str

    def metadata(self, user: str) -> Metadata:
        """The credentials of a user."""
        return (("authorization", f"Bearer {self._secret}"), ("x-sage-user", user))


@asynccontextmanager
async def memory_server(environment: Environment, dimensions: int) -> AsyncIterator[MemoryServer]:
    """Start it; nothing of it is left afterwards."""
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(environment.second_database(f"bench_memory_{dimensions}"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sage-bench-", dir="/tmp")))
        settings = {
            "SAGE_DATABASE_URL": dsn,
            "SAGE_ROOT_KEY": new_root_key(),
            "SAGE_DATA_DIR": str(folder),
            "SAGE_LISTEN": "127.0.0.1:0",
            "SAGE_METRICS_LISTEN": "off",
            "SAGE_AUTH": "required",
            "SAGE_MAX_RATE_PER_USER": "0",
            # Vectors come with the calls: no model is measured.
            "SAGE_EMBEDDING": "hash",
            "SAGE_EMBEDDING_DIMENSIONS": str(dimensions),
        }
        secret = await _new_api_key(settings)
        log = folder / "server.log"
        address = await stack.enter_async_context(child((*_SAGE, "serve"), settings, log))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        yield MemoryServer(channel, dsn, secret)


@asynccontextmanager
async def echo(size: int) -> AsyncIterator[grpc.aio.Channel]:
    """A bare server that answers with so many bytes."""
    with tempfile.TemporaryDirectory(prefix="sage-bench-echo-", dir="/tmp") as folder:
        command = (sys.executable, "-m", "bench.echo_server", str(size))
        async with (
            child(command, {}, Path(folder) / "echo.log") as address,
            grpc.aio.insecure_channel(address) as channel,
        ):
            yield channel


async def settled(dsn: str) -> None:
    """What autovacuum and the checkpointer would do some time later, but not meanwhile."""
    connection = await asyncpg.connect(dsn, command_timeout=600)
    try:
        await connection.execute("VACUUM (ANALYZE) memories")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _new_api_key(settings: Mapping[str, str]) -> str:
    others = {key: value for key, value in os.environ.items() if not key.startswith("SAGE_")}
    process = await asyncio.create_subprocess_exec(
        *(*_SAGE, "keys", "create-api-key", "bench"),
        env=others | dict(settings),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
    if process.returncode:
        raise RuntimeError("no API key could be made")
    return output.decode().strip()
