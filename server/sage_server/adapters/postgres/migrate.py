"""Bringing the schema up to date."""

from __future__ import annotations

from importlib import resources

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

_LOCK = 0x5A6E0000
MINIMUM_POSTGRES = 15


class UnsupportedPostgresError(Exception):
    """The server is too old."""


async def migrate(dsn: str) -> None:
    """Apply every migration that is missing; several servers that start together take turns."""
    engine = create_async_engine(_sqlalchemy_url(dsn), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    version = int(connection.execute(text("SHOW server_version_num")).scalar_one()) // 10_000
    if version < MINIMUM_POSTGRES:
        raise UnsupportedPostgresError(
            f"Postgres {version} is too old: {MINIMUM_POSTGRES} or newer is needed."
        )
    # Held until the transaction ends, and the migrations are in the same transaction.
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    config = Config()
    with resources.as_file(resources.files("sage_server.adapters.postgres") / "migrations") as folder:
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _sqlalchemy_url(dsn: str) -> str:
    scheme, _, rest = dsn.partition("://")
    if scheme not in ("postgres", "postgresql"):
        raise ValueError("a database URL starts with postgresql://")
    return f"postgresql+asyncpg://{rest}"
