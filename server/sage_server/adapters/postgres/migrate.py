"""Bringing the schema up to date."""

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

from sage_server.domain.errors import database_unavailable

_LOCK = 0x5A6E0000
MINIMUM_POSTGRES = 15


class MigrationError(Exception):
    """The database cannot be used. The message says why, without the address or the password."""


async def migrate(dsn: str) -> None:
    """Apply every migration that is missing; several servers that start together take turns."""
    # asyncpg reads the address itself: SQLAlchemy's reading of it knows fewer options, such as no sslmode.
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=partial(asyncpg.connect, dsn), poolclass=NullPool
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade)
    except OSError as error:
        raise database_unavailable() from error
    except DBAPIError as error:
        cause = error.orig.__cause__ if error.orig is not None else None
        raise MigrationError(f"The database refuses ({type(cause or error).__name__}).") from error
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    version = int(connection.execute(text("SHOW server_version_num")).scalar_one()) // 10_000
    if version < MINIMUM_POSTGRES:
        raise MigrationError(f"Postgres {version} is too old: {MINIMUM_POSTGRES} or newer is needed.")
    # Held until the transaction ends, and the migrations are in the same transaction.
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    config = Config()
    with resources.as_file(resources.files("sage_server.adapters.postgres") / "migrations") as folder:
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
