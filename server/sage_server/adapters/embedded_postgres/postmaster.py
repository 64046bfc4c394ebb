"""The running Postgres: its settings, where it listens, how it is launched, recognised and told to stop."""

import asyncio
import contextlib
import hashlib
import os
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import asyncpg

from sage_server.adapters.embedded_postgres.initdb import DATABASE, SUPERUSER
from sage_server.adapters.embedded_postgres.locks import POLL_SECONDS
from sage_server.adapters.embedded_postgres.runtime import (
    Account,
    EmbeddedPostgresError,
    last_lines,
    spawn,
)

PORT = 5432  # only the name of the socket file; nothing listens on TCP
_SOCKET = f".s.PGSQL.{PORT}"
_LONGEST_SOCKET_PATH = 103  # bytes; macOS, and Linux allows 107
_CONNECT_SECONDS = 5.0
_TMP = Path("/tmp")  # noqa: S108 - short, and what is made in it is private and checked
_LARGEST_LOG = 16 * 1024 * 1024

# On the command line, so that a later Sage starts an old cluster with its own settings.
_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "cluster_name": "sage",
    "timezone": "UTC",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "jit": "off",  # short statements: compiling them costs more than it saves
    # A commit that was acknowledged survives a power cut.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_compression": "on",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # Nothing that a person wrote may reach the log. Errors are left out as a whole (`log` ranks above `error`
    # here), since their first line can quote a value; they reach the caller all the same.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_duration": "off",
    "log_min_duration_statement": "-1",
    "log_min_duration_sample": "-1",
    "log_transaction_sample_rate": "0",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_lock_waits": "off",
    "log_connections": "off",
    "log_disconnections": "off",
}


@dataclass(frozen=True)
class Postmaster:
    """What `postmaster.pid` says of a server that runs, or that did before it was killed."""

    pgdata: Path
    pid: int
    socket_dir: Path

    @property
    def dsn(self) -> str:
        """The address of the database `sage`."""
        host = quote(str(self.socket_dir), safe="/")
        return f"postgresql://{SUPERUSER}@/{DATABASE}?host={host}&port={PORT}"

    async def answers(self) -> bool:
        """Whether it takes connections now and serves this directory.

        Raises EmbeddedPostgresError when it runs and turns us away.
        """
        try:
            connection = await asyncpg.connect(
                host=str(self.socket_dir),
                port=PORT,
                user=SUPERUSER,
                database=DATABASE,
                ssl=False,
                timeout=_CONNECT_SECONDS,
            )
            try:
                served = await connection.fetchval("SHOW data_directory", timeout=_CONNECT_SECONDS)
            finally:
                connection.terminate()
        except (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError):
            return False
        except asyncpg.PostgresError as error:
            raise EmbeddedPostgresError(f"The Postgres on {self.pgdata} turned us away: {error}") from error
        # A copy of a live data directory still names the socket of the original.
        return _same_directory(Path(str(served)), self.pgdata)

    def is_visible(self) -> bool:
        """Whether a process with this id was started on this directory, where the system can tell (/proc).

        False for an id that was given to another process since, or that means one in another container.
        """
        try:
            arguments = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return os.fsencode(self.pgdata) in arguments

    def ask_to_stop(self, *, at_once: bool = False) -> bool:
        """Request a fast shutdown or, `at_once`, one without a last checkpoint, which the next start makes up
        for; False when the process is not there or is another one."""
        if Path("/proc/self/cmdline").exists() and not self.is_visible():
            return False
        try:
            os.kill(self.pid, signal.SIGQUIT if at_once else signal.SIGINT)
        except ProcessLookupError:
            return False
        return True


def _same_directory(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def read_postmaster(pgdata: Path) -> Postmaster | None:
    """The server named in `postmaster.pid`; None when there is no file or it is not yet complete."""
    try:
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 5 or not lines[0].strip().isdigit() or not lines[4]:
        return None
    return Postmaster(pgdata=pgdata, pid=int(lines[0]), socket_dir=Path(lines[4]))


async def launch(
    pgdata: Path, binaries: Path, log_file: Path, account: Account, *, held_fd: int, seconds: float
) -> Postmaster:
    """Start Postgres, which inherits `held_fd`, and wait until it answers.

    The caller has made sure, by the lock behind `held_fd`, that no other server lives on the directory.
    Raises EmbeddedPostgresError with the end of its log when it ends instead or is silent for `seconds`.
    """
    socket_dir = _socket_dir(pgdata, account)
    _disown(pgdata, socket_dir)
    with _open_log(log_file) as log:
        written_before = os.fstat(log).st_size
        command = [str(binaries / "postgres"), "-D", str(pgdata), *_settings(socket_dir)]
        process = spawn(command, account, stdin=subprocess.DEVNULL, stdout=log, held_fd=held_fd)
    # Someone has to reap it: a dead child of ours would look alive to the next Postgres.
    threading.Thread(target=process.wait, name="sage-postgres-reaper", daemon=True).start()
    try:
        return await _wait_until_ready(process, pgdata, seconds)
    except EmbeddedPostgresError as error:
        process.send_signal(signal.SIGINT)
        tail = _tail(log_file, written_before)
        raise EmbeddedPostgresError(f"{error} The end of {log_file}:\n{tail}") from None
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)
        raise


async def _wait_until_ready(process: "subprocess.Popen[bytes]", pgdata: Path, seconds: float) -> Postmaster:
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        postmaster = read_postmaster(pgdata)
        if postmaster is not None and postmaster.pid == process.pid and await postmaster.answers():
            return postmaster
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(f"Postgres did not answer within {seconds:.0f} s.")
        await asyncio.sleep(POLL_SECONDS)
    raise EmbeddedPostgresError(f"Postgres did not start (exit status {process.returncode}).")


def _settings(socket_dir: Path) -> list[str]:
    settings = {**_SETTINGS, "unix_socket_directories": str(socket_dir)}
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _socket_dir(pgdata: Path, account: Account) -> Path:
    """The cluster's own directory, which is private; a short private one elsewhere when that does not fit."""
    if _fits(pgdata):
        return pgdata
    name = "sage-" + hashlib.sha256(os.fsencode(pgdata)).hexdigest()[:16]
    for parent in _short_directories():
        if parent.is_absolute() and os.access(parent, os.W_OK | os.X_OK) and _fits(parent / name):
            return _private_directory(parent / name, account)
    raise EmbeddedPostgresError(
        f"The path {pgdata} does not fit a socket, and there is no place for one in the runtime directory or "
        "in /tmp. Choose a shorter SAGE_DATA_DIR."
    )


def _fits(directory: Path) -> bool:
    # Postgres and its clients read the directory as a list: no comma, and no quote to begin a quoted name.
    listable = not set(str(directory)) & set(',"')
    return listable and len(os.fsencode(directory / _SOCKET)) <= _LONGEST_SOCKET_PATH


def _short_directories() -> list[Path]:
    if os.geteuid() == 0:  # root's own runtime directory would be closed to the account of Postgres
        return [Path("/run"), _TMP]
    return [Path(os.environ.get("XDG_RUNTIME_DIR", "")), Path(tempfile.gettempdir()), _TMP]


def _private_directory(path: Path, account: Account) -> Path:
    try:
        path.mkdir(mode=0o700)
        account.take(path)
    except FileExistsError:
        pass  # ours from before a crash, or a stranger's in /tmp: look
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or found.st_mode & 0o077:
        raise EmbeddedPostgresError(
            f"{path} must be a private directory of user {account.name}. Remove it and start again."
        )
    return path


def _disown(pgdata: Path, socket_dir: Path) -> None:
    """Make the files of a killed server harmless.

    Postgres believes a left-over `postmaster.pid` whenever its process id is in use again, which in a
    container is the rule. It does not believe the id of its own parent, and goes on to its second check, the
    shared memory named in the same file, which protects a server that somebody started by hand.
    """
    (socket_dir / f"{_SOCKET}.lock").unlink(missing_ok=True)
    pid_file = pgdata / "postmaster.pid"
    try:
        fd = os.open(pid_file, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    with os.fdopen(fd, "r+") as file:
        _, _, rest = file.read().partition("\n")
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n{rest}")
    if not rest:  # cut off by a power failure: Postgres would refuse to start
        pid_file.unlink()


@contextlib.contextmanager
def _open_log(path: Path) -> Iterator[int]:
    """The private log, open for appending. Postgres gets it open and needs no rights on its directory."""
    if path.exists() and path.stat().st_size > _LARGEST_LOG:
        path.replace(path.with_name(path.name + ".1"))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _tail(log_file: Path, offset: int) -> str:
    with log_file.open("rb") as file:
        file.seek(offset)
        return last_lines(file.read())
