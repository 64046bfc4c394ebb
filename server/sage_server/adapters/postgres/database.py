"""Connections: one pool, statements compiled once, and errors that callers understand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import asyncpg
from sqlalchemy import Select
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.sql import ClauseElement

from sage_server.adapters.postgres.connecting import connecting
from sage_server.domain.errors import database_unavailable, overloaded

Record: TypeAlias = asyncpg.Record
_DIALECT = asyncpg_dialect()  # type: ignore[no-untyped-call]

Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy
T = TypeVar("T")

_CONNECTION_ERRORS = (
    OSError,  # TimeoutError of a statement among them
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InsufficientResourcesError,
    asyncpg.QueryCanceledError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby: the primary is elsewhere now
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # it has read that the server ends it, and not yet that it has ended
)


class Statement:
    """A Core statement, compiled once to the SQL that asyncpg takes.

    Core writes and checks the SQL; running it through Core's own execution would cost two to three
    times as much as asyncpg's.
    """

    def __init__(self, core: ClauseElement) -> None:
        compiled = core.compile(dialect=_DIALECT)
        self.sql = str(compiled)
        self._names: Sequence[str] = compiled.positiontup or ()  # type: ignore[attr-defined]
        self._constants = {name: value for name, value in compiled.params.items() if value is not None}
        # Every statement of ours that writes inside a SELECT does so in a CTE.
        self.repeatable = isinstance(core, Select) and not compiled.ctes  # type: ignore[attr-defined]

    def arguments(self, values: dict[str, Any]) -> list[Any]:
        """The values in the order of the SQL's parameters."""
        constants = self._constants
        return [values[name] if name in values else constants[name] for name in self._names]


@dataclass(frozen=True)
class PoolOptions:
    """Size and patience of the connection pool."""

    min_size: int
    max_size: int
    acquire_timeout: float
    statement_timeout: float


class Transaction:
    """Statements that commit together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def fetch(self, statement: Statement, **values: Any) -> list[Record]:
        """All rows."""
        return await self._connection.fetch(statement.sql, *statement.arguments(values))

    async def fetchrow(self, statement: Statement, **values: Any) -> Record | None:
        """The first row."""
        return await self._connection.fetchrow(statement.sql, *statement.arguments(values))

    async def execute(self, statement: Statement, **values: Any) -> int:
        """How many rows the statement changed."""
        status = await self._connection.execute(statement.sql, *statement.arguments(values))
        return int(status.rpartition(" ")[2])


class Database:
    """The pool. A statement on its own is its own transaction."""

    def __init__(self, pool: asyncpg.Pool, options: PoolOptions) -> None:
        self._pool = pool
        self._options = options
        self._at_hand: list[Connection] = []
        self._queued = 0

    @classmethod
    async def open(cls, dsn: str, options: PoolOptions) -> Database:
        """Connect, or raise ConnectError."""
        with connecting(dsn):
            pool = await asyncpg.create_pool(
                dsn,
                min_size=options.min_size,
                max_size=options.max_size,
                timeout=options.acquire_timeout,
                command_timeout=options.statement_timeout,
                # No session state is ever set, so there is none to reset: saves a round trip a use.
                reset=_keep,
                # The arrays of a bulk write pass through memory of this size, or else through a file.
                server_settings={"application_name": "sage", "work_mem": "32MB"},
            )
        return cls(pool, options)

    async def close(self) -> None:
        """Close every connection; those in use have ten seconds."""
        while self._at_hand:
            await self._pool.release(self._at_hand.pop())
        try:
            await asyncio.wait_for(self._pool.close(), 10)
        except TimeoutError:
            self._pool.terminate()

    async def fetch(self, statement: Statement, **values: Any) -> list[Record]:
        """All rows."""
        sql, arguments = statement.sql, statement.arguments(values)
        return await self._run(lambda c: c.fetch(sql, *arguments), repeatable=statement.repeatable)

    async def fetchrow(self, statement: Statement, **values: Any) -> Record | None:
        """The first row."""
        sql, arguments = statement.sql, statement.arguments(values)
        return await self._run(lambda c: c.fetchrow(sql, *arguments), repeatable=statement.repeatable)

    async def execute(self, statement: Statement, **values: Any) -> int:
        """How many rows the statement changed."""
        return await self._run(lambda c: Transaction(c).execute(statement, **values), repeatable=False)

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run several statements that commit together, or not at all.

        `work` may run more than once: a deadlock undoes everything, and it starts again.
        """

        async def run(connection: Connection) -> T:
            async with connection.transaction():
                return await work(Transaction(connection))

        return await self._run(run, repeatable=False)

    async def _run(self, operation: Callable[[Connection], Awaitable[T]], *, repeatable: bool) -> T:
        """Run what is one transaction, again if it had no effect: after a deadlock, and a read also when
        its connection was lost, as after a restart of the database."""
        for last in (False, False, False, True):
            connection = await self._acquire()
            healthy = False
            try:
                result = await operation(connection)
                healthy = True
                return result
            except asyncpg.DeadlockDetectedError as error:
                if last:
                    raise database_unavailable() from error
            except _CONNECTION_ERRORS as error:
                failure = _translated(error)
                if last or not (repeatable and failure is not error and not _is_open(connection)):
                    raise failure from error
            finally:
                if healthy and not self._queued:
                    self._at_hand.append(connection)
                else:
                    await self._pool.release(connection, timeout=self._options.acquire_timeout)
        raise AssertionError("unreachable")

    async def _acquire(self) -> Connection:
        """The connection that was used last, or one of the pool.

        The pool makes two tasks to lend a connection and take it back, which costs as much as a small
        statement. So those that nobody waits for stay here.
        """
        while self._at_hand:
            connection = self._at_hand.pop()
            if _is_open(connection):
                return connection
            await self._pool.release(connection)
        self._queued += 1
        try:
            return await self._pool.acquire(timeout=self._options.acquire_timeout)
        except TimeoutError as error:
            raise overloaded("No database connection was free in time.") from error
        except _CONNECTION_ERRORS as error:
            raise _translated(error) from error
        finally:
            self._queued -= 1


def _is_open(connection: Connection) -> bool:
    """Whether the connection can be used. The pool takes one that broke back by itself, and what is left here
    then complains about every question."""
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False


def _translated(error: Exception) -> Exception:
    """What a failure of the connection, and not of the statement, means to a caller."""
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return error  # a value that does not fit its parameter: a bug, not an outage
    return database_unavailable()


async def _keep(_connection: object) -> None:
    """Nothing to reset."""
