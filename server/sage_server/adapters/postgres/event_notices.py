"""Wakes other processes by NOTIFY."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

CHANNEL = "sage_events"
_SEND = f"SELECT count(pg_notify('{CHANNEL}', u)) FROM unnest($1::text[]) AS u"  # noqa: S608 (a constant)
_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 10.0
_LAST_WORDS = 2.0
_APART = 0.01
"""Seconds between two statements: what comes meanwhile shares the next one."""
_QUIET = 15.0
"""Seconds after which the connection is tried although there is nothing to say."""
_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
Connect: TypeAlias = Callable[[], Awaitable[asyncpg.Connection]]
_log = logging.getLogger("sage.events")


async def connect_for_notices(dsn: str) -> asyncpg.Connection:
    """A connection of its own: one of the pool cannot listen for long."""
    return await asyncpg.connect(
        dsn,
        timeout=_CONNECT_SECONDS,
        command_timeout=_STATEMENT_SECONDS,
        server_settings={"application_name": "sage-events"},
    )


class PostgresEventNotices:
    """Implements EventNotices. One connection, to listen and to send; lost, it is made again.

    A notice names a user and nothing else. It is sent outside the writer's transaction: there it would have
    all commits of the database wait for each other. Sending on the connection that listens spares the pool,
    and tells this process's own notices from the others'.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connected = False
        self._waiting: set[UUID] = set()
        self._something = asyncio.Event()

    def send(self, user_id: UUID) -> None:
        """Kept for the next statement; dropped while there is no connection."""
        if self._connected:
            self._waiting.add(user_id)
            self._something.set()

    async def run(self, heard: Callable[[UUID], None]) -> None:
        """Session after session. The first failure of a row is logged; the pause grows with each."""
        failures = 0
        while True:
            try:
                await self._session(heard)
            except _LOST as error:
                if failures == 0:
                    _log.warning("no notices of events: they are found by polling", exc_info=error)
                failures = 0 if self._connected else failures + 1
            finally:
                self._connected = False
                self._waiting.clear()
            await asyncio.sleep(min(_SHORTEST_PAUSE * 2 ** min(failures, 10), _LONGEST_PAUSE))

    async def _session(self, heard: Callable[[UUID], None]) -> None:
        """Listen and send on one connection until it fails."""
        connection = await self._connect()
        try:
            connection.add_termination_listener(lambda _: self._something.set())
            await connection.add_listener(CHANNEL, partial(_notified, heard, connection.get_server_pid()))
            self._connected = True
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_QUIET):
                        await self._something.wait()
                self._something.clear()
                users, self._waiting = self._waiting, set()
                await connection.execute(_SEND, [str(user_id) for user_id in users])
                await asyncio.sleep(_APART)
        finally:
            with contextlib.suppress(*_LOST):
                await connection.close(timeout=_LAST_WORDS)


def _notified(
    heard: Callable[[UUID], None], me: int, _connection: Any, sender: int, _channel: str, payload: object
) -> None:
    if sender != me and isinstance(payload, str):
        with contextlib.suppress(ValueError):  # somebody else's use of the channel
            heard(UUID(payload))
