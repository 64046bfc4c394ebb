"""Bringing the schema up to date."""

from __future__ import annotations

from importlib import resources

import asyncpg

from sage_server.adapters.postgres.connecting import connecting

MINIMUM_POSTGRES = 15
MIGRATIONS = resources.files("sage_server.adapters.postgres") / "migrations"


class MigrationError(Exception):
    """The database cannot be used. The message says why, without the address or the password."""


async def migrate(dsn: str) -> None:
    """Apply every migration that is missing; several servers that start together take turns. Raises
    ConnectError or MigrationError."""
    with connecting(dsn):
        if await _revision(dsn) == newest_revision():
            return
        # Alembic and the engine below it take a fifth of a second, which most starts have no use for.
        from sage_server.adapters.postgres.upgrade import upgrade  # noqa: PLC0415

        await upgrade(dsn)


def newest_revision() -> str:
    """Of this version's schema: a migration's file begins with its revision."""
    names = (file.name for file in (MIGRATIONS / "versions").iterdir())
    return max(name.partition("_")[0] for name in names if name.endswith(".py"))


async def _revision(dsn: str) -> str | None:
    """That of the database; None if it is empty. Raises MigrationError if its Postgres is too old."""
    connection = await asyncpg.connect(dsn)
    try:
        version = connection.get_server_version().major
        if version < MINIMUM_POSTGRES:
            raise MigrationError(f"Postgres {version} is too old: {MINIMUM_POSTGRES} or newer is needed.")
        found = await connection.fetchval("SELECT version_num FROM alembic_version")
        return None if found is None else str(found)
    except asyncpg.UndefinedTableError:
        return None
    finally:
        await connection.close()
