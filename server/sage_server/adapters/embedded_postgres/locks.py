"""Kernel locks between processes. They vanish with their holder, so a killed server never blocks the next."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sage_server.adapters.embedded_postgres.runtime import EmbeddedPostgresError

POLL_SECONDS = 0.02


class FileLock:
    """An open lock file. The lock belongs to the open file: two objects in one process exclude each other.

    A child process that inherits `fileno()` holds the lock too, until it ends, even when this one closes.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb+", buffering=0)

    def fileno(self) -> int:
        """The descriptor to hand to a child that shall hold the lock as well."""
        return self._file.fileno()

    def try_shared(self) -> bool:
        """Take the lock beside other shared holders; False when someone holds it alone."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock alone. False when another holds it; a shared lock of our own may then be lost."""
        return self._try(fcntl.LOCK_EX)

    def close(self) -> None:
        """Let go; again is harmless. A child that inherited the lock keeps it (LOCK_UN would take it)."""
        self._file.close()

    def _try(self, operation: int) -> bool:
        try:
            fcntl.flock(self._file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@asynccontextmanager
async def alone(path: Path, seconds: float) -> AsyncIterator[None]:
    """Run the block while no other process is inside one with the same path.

    Raises EmbeddedPostgresError when the others are not done after `seconds`.
    """
    lock = FileLock(path)
    try:
        deadline = time.monotonic() + seconds
        # Polling instead of a blocking flock in a thread: a cancelled start must not take the lock later.
        while not lock.try_exclusive():
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"Another Sage server has been starting or stopping Postgres for more than {seconds:.0f} "
                    f"seconds (it holds {path}). Look at that process, or end it and start again."
                )
            await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        lock.close()
