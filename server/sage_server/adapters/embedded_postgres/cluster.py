"""Starting, sharing and stopping the embedded Postgres."""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from sage_server.adapters.embedded_postgres.initdb import create_cluster, has_cluster
from sage_server.adapters.embedded_postgres.locks import POLL_SECONDS, FileLock, alone
from sage_server.adapters.embedded_postgres.postmaster import Postmaster, launch, read_postmaster
from sage_server.adapters.embedded_postgres.runtime import (
    EmbeddedPostgresError,
    account_for,
    find_binaries,
    make_data_dir,
    require_reachable,
)

_log = logging.getLogger("sage.postgres")

# Long enough for the recovery of a busy cluster after a power cut.
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_ASK_EVERY_SECONDS = 3.0
_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class _Layout:
    """The files of one data directory. The three locks are empty files and never removed.

    critical: held alone while somebody starts or stops.
    users:    held shared by every Sage server for as long as it uses Postgres.
    alive:    inherited by Postgres and by initdb. Free means that no process of theirs is left, not even a
              backend that outlived a killed postmaster: no process id has to be believed.
    """

    data_dir: Path

    @property
    def pgdata(self) -> Path:
        return self.data_dir / "postgres"

    @property
    def log(self) -> Path:
        return self.data_dir / "postgres.log"

    @property
    def critical(self) -> Path:
        return self.data_dir / "postgres.critical.lock"

    @property
    def users(self) -> Path:
        return self.data_dir / "postgres.users.lock"

    @property
    def alive(self) -> Path:
        return self.data_dir / "postgres.alive.lock"


class EmbeddedPostgres:
    """A Postgres on a data directory, shared by every Sage server that is started on the same one.

    It listens on a Unix socket in a private directory and lets in the user of Sage and root, nobody else.
    It survives a killed Sage, and the next start adopts it.
    """

    def __init__(self, layout: _Layout, users: FileLock, postmaster: Postmaster) -> None:
        """Use `start`."""
        self._layout = layout
        self._users: FileLock | None = users
        self._dsn = postmaster.dsn

    @property
    def dsn(self) -> str:
        """`postgresql://postgres@/sage?host=<socket directory>&port=5432`, for asyncpg as it is and for
        SQLAlchemy with the driver added to the scheme."""
        return self._dsn

    @classmethod
    async def start(cls, data_dir: Path) -> "EmbeddedPostgres":
        """Return once Postgres answers: a running one is adopted, else one is started, else one is created.

        Raises EmbeddedPostgresError; nothing of this call is then left running.
        """
        try:
            layout = _prepare(data_dir)
            async with alone(layout.critical, _START_SECONDS):
                users = FileLock(layout.users)
                try:
                    # Only a stopping server takes this lock alone, and only inside its critical section.
                    if not users.try_shared():
                        raise EmbeddedPostgresError(f"A program that is not Sage holds {layout.users}.")
                    postmaster = await _adopt_or_launch(layout)
                except BaseException:
                    users.close()
                    raise
                return cls(layout, users, postmaster)
        except OSError as error:
            raise EmbeddedPostgresError(f"Cannot run Postgres in {data_dir}: {error}") from error

    async def revive(self) -> None:
        """Start Postgres again if it is gone, as after a crash or the kernel's hunt for memory."""
        async with alone(self._layout.critical, _START_SECONDS):
            await _adopt_or_launch(self._layout)

    async def stop(self) -> None:
        """Stop using Postgres, and shut it down if no other Sage server uses it. A second call does nothing.

        The caller has closed its connections; open ones are cut off and their transactions rolled back.
        Raises EmbeddedPostgresError when another server's start or stop is stuck; Postgres then runs on.
        """
        users, self._users = self._users, None
        if users is None:
            return
        try:
            # Closed before the critical section ends: a starting server must not meet the lock taken.
            async with alone(self._layout.critical, _START_SECONDS):
                with contextlib.closing(users):
                    if users.try_exclusive():
                        await _shut_down(self._layout)
                    else:
                        _log.info("leaving Postgres running: another Sage server uses it")
        finally:
            users.close()


def _prepare(data_dir: Path) -> _Layout:
    # Resolved, so that servers that came by different links agree on one path.
    layout = _Layout(data_dir.expanduser().resolve())
    make_data_dir(layout.data_dir)
    return layout


async def _adopt_or_launch(layout: _Layout) -> Postmaster:
    """A server that answers. One that is still starting or shutting down is waited for."""
    account = account_for(layout.pgdata)
    has_cluster(layout.pgdata)
    alive = FileLock(layout.alive)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            postmaster = read_postmaster(layout.pgdata)
            if postmaster is not None and await postmaster.answers():
                _log.info("using the Postgres that already runs (pid %d)", postmaster.pid)
                return postmaster
            # A server that somebody started by hand does not hold the lock; look for its process too.
            if not (postmaster is not None and postmaster.is_visible()) and alive.try_exclusive():
                break
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"A Postgres still runs on {layout.pgdata} and does not answer. Its process id is the "
                    "first line of postmaster.pid in that directory; end it and start again."
                )
            await asyncio.sleep(POLL_SECONDS)
        require_reachable(layout.data_dir, account)
        binaries = find_binaries(layout.data_dir, account)
        if not has_cluster(layout.pgdata):
            _log.info("creating the database in %s", layout.pgdata)
            await create_cluster(layout.pgdata, binaries, account, held_fd=alive.fileno())
        return await launch(
            layout.pgdata, binaries, layout.log, account, held_fd=alive.fileno(), seconds=_START_SECONDS
        )
    finally:
        alive.close()


async def _shut_down(layout: _Layout) -> None:
    """Shut down fast, in the end at once, and wait for the last process to go. A server that no Sage launched
    is left alone."""
    alive = FileLock(layout.alive)
    try:
        postmaster = read_postmaster(layout.pgdata)
        if alive.try_exclusive() or postmaster is None:
            return
        if not postmaster.ask_to_stop():
            _log.warning("leaving Postgres running: cannot reach its process %d from here", postmaster.pid)
            return
        begun = time.monotonic()
        deadline, ask_again = begun + _STOP_SECONDS, begun + _ASK_EVERY_SECONDS
        while not alive.try_exclusive():
            if time.monotonic() > ask_again:
                # One that was restarting its processes after a crash can miss the first request, or wait for
                # a process of its own for ever.
                postmaster.ask_to_stop(at_once=time.monotonic() > begun + _PATIENCE_SECONDS)
                ask_again += _ASK_EVERY_SECONDS
            if time.monotonic() > deadline:
                _log.warning("Postgres (pid %d) is still shutting down; not waiting for it", postmaster.pid)
                return
            await asyncio.sleep(POLL_SECONDS)
        if postmaster.socket_dir != layout.pgdata:
            with contextlib.suppress(OSError):  # the next start makes do with one that is left
                postmaster.socket_dir.rmdir()
        _log.info("stopped Postgres")
    finally:
        alive.close()
