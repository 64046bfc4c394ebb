"""A database a test, copied from a migrated template in one embedded Postgres."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg

from sage_server.adapters.embedded_postgres import EmbeddedPostgres
from sage_server.adapters.postgres.migrate import migrate

TEMPLATE = "sage_template"
_MEMORY = Path("/dev/shm")
_ENOUGH = 2 * 1024**3


@asynccontextmanager
async def public_folder(parent: Path = Path("/tmp")) -> AsyncIterator[Path]:
    """A temporary folder that the user who runs Postgres can reach, also when the tests run as root."""
    folder = Path(tempfile.mkdtemp(prefix="sage-test-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class TestPostgres:
    """A running Postgres with a template of the schema."""

    __test__ = False
    server: EmbeddedPostgres
    folder: Path

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[TestPostgres]:
        """Start one for a test session, in memory where there is enough: what tests write need not survive
        the machine, and a database for each of them is hundreds of files to flush."""
        memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH
        async with public_folder(_MEMORY if memory else Path("/tmp")) as folder:
            server = await EmbeddedPostgres.start(folder)
            try:
                postgres = cls(server, folder)
                await postgres.execute(f"CREATE DATABASE {TEMPLATE}")
                await migrate(postgres.dsn(TEMPLATE))
                yield postgres
            finally:
                await server.stop()

    def dsn(self, database: str) -> str:
        """The address of a database."""
        return self.server.dsn.replace("/sage?", f"/{database}?")

    async def execute(self, sql: str) -> None:
        """A statement outside any transaction."""
        connection = await asyncpg.connect(self.server.dsn)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """A fresh database with the schema; gone afterwards."""
        name = f"test_{uuid4().hex}"
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        try:
            yield self.dsn(name)
        finally:
            await self.execute(f"DROP DATABASE {name} WITH (FORCE)")
