"""What the database says of itself."""

from __future__ import annotations

from sqlalchemy import column, func, select, table

from sage_server.adapters.postgres.database import Database, Statement
from sage_server.domain.errors import database_unavailable
from sage_server.ports.stores import DatabaseInfo

_INFO = Statement(
    select(
        func.current_setting("server_version").label("version"),
        select(column("version_num"))
        .select_from(table("alembic_version"))
        .scalar_subquery()
        .label("revision"),
    )
)


class PostgresProbe:
    """Implements DatabaseProbe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def check(self) -> DatabaseInfo:
        """One statement."""
        row = await self._database.fetchrow(_INFO)
        if row is None:
            raise database_unavailable()
        return DatabaseInfo(row["version"].split()[0], row["revision"])
