"""Running migrations with Alembic."""

from __future__ import annotations

from functools import partial
from importlib import resources

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from sage_server.adapters.postgres.migrate import MIGRATIONS, MigrationError

_LOCK = 0x5A6E0000


async def upgrade(dsn: str) -> None:
    """Apply what is missing, in one transaction. Raises MigrationError."""
    # asyncpg reads the address itself: SQLAlchemy's reading of it knows fewer options, such as no sslmode.
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=partial(asyncpg.connect, dsn), poolclass=NullPool
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade)
    except DBAPIError as error:
        cause = error.orig.__cause__ if error.orig is not None else None
        raise MigrationError(f"The database refuses ({type(cause or error).__name__}).") from error
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    # Held until the transaction ends, and the migrations are in the same transaction.
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    config = Config()
    with resources.as_file(MIGRATIONS) as folder:
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
