"""Making the cluster on the first start, and refusing one that this Postgres cannot read."""

import os
import pwd
import shutil
import tempfile
from pathlib import Path

from sage_server.adapters.embedded_postgres.runtime import (
    MAJOR_VERSION,
    Account,
    EmbeddedPostgresError,
    run,
)

SUPERUSER = "postgres"
DATABASE = "sage"
_UNFINISHED = "postgres.new-"

# Only a process whose user the kernel vouches for may connect. `trust` would lean on the directory's mode
# alone, and a password would have to be kept somewhere.
_HBA = f"local all {SUPERUSER} peer map=sage\n"


def has_cluster(pgdata: Path) -> bool:
    """Whether there is a cluster to start.

    Raises EmbeddedPostgresError for a cluster of another major version and for a directory of other things.
    """
    try:
        version = (pgdata / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        if pgdata.exists() and any(pgdata.iterdir()):
            raise EmbeddedPostgresError(
                f"{pgdata} is not empty and is no Postgres cluster. Move it away, or choose another "
                "SAGE_DATA_DIR."
            ) from None
        return False
    if version != MAJOR_VERSION:
        raise EmbeddedPostgresError(
            f"{pgdata} was made by Postgres {version}, and this Sage brings Postgres {MAJOR_VERSION}. Dump "
            "it with the Sage that made it and restore the dump here, or upgrade it with pg_upgrade."
        )
    return True


async def create_cluster(pgdata: Path, binaries: Path, account: Account, *, held_fd: int) -> None:
    """Create the cluster with its empty database. `pgdata` appears whole or not at all.

    The caller excludes others; `held_fd` is the lock that our children keep if we are killed meanwhile.
    """
    unfinished = _empty_directory(pgdata.parent, account)
    options = (
        f"--username={SUPERUSER}",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--data-checksums",
        "--auth-local=peer",
        "--auth-host=reject",
    )
    await run([str(binaries / "initdb"), "-D", str(unfinished), *options], account, held_fd=held_fd)
    _overwrite(unfinished / "pg_hba.conf", _HBA)
    _overwrite(unfinished / "pg_ident.conf", _user_map())
    single_user = [str(binaries / "postgres"), "--single", "-D", str(unfinished)]
    await run(
        [*single_user, "-c", "exit_on_error=on", "template1"],
        account,
        stdin=f"CREATE DATABASE {DATABASE}\n",
        held_fd=held_fd,
    )
    _put_in_place(unfinished, pgdata)


def _empty_directory(parent: Path, account: Account) -> Path:
    for leftover in parent.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover)
    directory = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=parent))
    account.take(directory)
    return directory


def _user_map() -> str:
    # Root may become any user anyway. The account that Postgres runs as for root is not in the map: it may be
    # `nobody`, which other programs share.
    names = {pwd.getpwuid(uid).pw_name for uid in (0, os.geteuid())}
    return "".join(f'sage "{name}" {SUPERUSER}\n' for name in sorted(names))


def _overwrite(path: Path, text: str) -> None:
    """Replace the text of a file and keep its owner. We may be root in a directory of another user: a link is
    not followed."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)


def _put_in_place(finished: Path, pgdata: Path) -> None:
    finished.rename(pgdata)
    fd = os.open(pgdata.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
