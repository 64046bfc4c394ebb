"""The schema in the database is the schema in the code."""

from __future__ import annotations

import asyncio
import sys

import asyncpg
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from sage_server.adapters.postgres.migrate import MIGRATIONS, migrate, newest_revision
from sage_server.adapters.postgres.schema import metadata
from support.postgres import TestPostgres


async def test_migrations_give_the_schema_of_the_code(dsn: str) -> None:
    def differences(connection: Connection) -> list[object]:
        # The queue's tables are pgqueuer's; test_jobs.py has the library check them.
        opts = {"target_metadata": metadata, "include_name": lambda name, *_: "pgqueuer" not in str(name)}
        context = MigrationContext.configure(connection, opts=opts)
        return list(compare_metadata(context, metadata))

    engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


async def test_servers_that_start_together_migrate_once(postgres: TestPostgres) -> None:
    name = "test_migrate_together"
    await postgres.execute(f"CREATE DATABASE {name}")
    try:
        await asyncio.gather(*(migrate(postgres.dsn(name)) for _ in range(4)))
        connection = await asyncpg.connect(postgres.dsn(name))
        assert await connection.fetchval("SELECT count(*) FROM users") == 1
        await connection.close()
    finally:
        await postgres.execute(f"DROP DATABASE {name}")


def test_the_newest_revision_is_the_head_of_alembic() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [newest_revision()]


async def test_a_schema_that_is_current_costs_no_alembic(dsn: str) -> None:
    code = (
        "import asyncio, sys; from sage_server.adapters.postgres.migrate import migrate;"
        "asyncio.run(migrate(sys.argv[1])); print('alembic' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, dsn), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.split() == [b"False"]
