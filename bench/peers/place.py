"""What contenders run on: one embedded Postgres with a database for each, and a Sage server as a stranger
would run it, in a process of its own with authentication and encryption."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.environment import child
from bench.peers.peer import Place
from bench.peers.workload import DIMENSIONS, Embedder
from sage_server.adapters.crypto import new_root_key
from sage_server.adapters.embedded_postgres import EmbeddedPostgres

_SAGE = (sys.executable, "-m", "sage_server")
_SECONDS = 60.0


@dataclass(frozen=True)
class Ground:
    """Hands out places. Nothing of it is left afterwards."""

    folder: Path
    dsn: str
    embedder: Embedder
    address: str
    api_key: str

    async def place(self, name: str) -> Place:
        """A folder and a database for one contender."""
        folder = self.folder / name
        folder.mkdir()
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()
        dsn = urlunsplit(urlsplit(self.dsn)._replace(path=f"/{name}"))
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute("CREATE EXTENSION vector")
        finally:
            await connection.close()
        return Place(folder, dsn, self.embedder, self.address, self.api_key)


@asynccontextmanager
async def open_ground(embedder: Embedder, *, sage: bool) -> AsyncIterator[Ground]:
    """Start Postgres, and the server if Sage takes part."""
    async with AsyncExitStack() as stack:
        folder = _folder()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        postgres = await EmbeddedPostgres.start(folder / "data")
        stack.push_async_callback(postgres.stop)
        address = api_key = ""
        if sage:
            settings = _settings(postgres.dsn, folder)
            api_key = await _new_api_key(settings)
            log = folder / "server.log"
            address = await stack.enter_async_context(child((*_SAGE, "serve"), settings, log))
        yield Ground(folder, postgres.dsn, embedder, address, api_key)


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="sage-peers-", dir="/tmp"))
    folder.chmod(0o755)  # the account that runs Postgres must get through
    return folder


def _settings(dsn: str, folder: Path) -> dict[str, str]:
    return {
        "SAGE_DATABASE_URL": dsn,
        "SAGE_ROOT_KEY": new_root_key(),
        "SAGE_DATA_DIR": str(folder / "data"),
        "SAGE_LISTEN": "127.0.0.1:0",
        "SAGE_METRICS_LISTEN": "off",
        "SAGE_AUTH": "required",
        "SAGE_MAX_RATE_PER_USER": "0",
        # Vectors of the stub's length. The stub's vectors are given with every call, as to everybody.
        "SAGE_EMBEDDING": "hash",
        "SAGE_EMBEDDING_DIMENSIONS": str(DIMENSIONS),
    }


async def _new_api_key(settings: Mapping[str, str]) -> str:
    others = {key: value for key, value in os.environ.items() if not key.startswith("SAGE_")}
    process = await asyncio.create_subprocess_exec(
        *(*_SAGE, "keys", "create-api-key", "bench-peers"),
        env=others | dict(settings),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
    if process.returncode:
        raise RuntimeError("no API key could be made")
    return output.decode().strip()
