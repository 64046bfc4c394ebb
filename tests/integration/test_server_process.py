"""`sage-server` as a process: restarts, kills, signals, commands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

import sage_client
from sage_client import AsyncSageClient, NewItem
from support.postgres import public_folder
from support.server import ROOT_KEY, child_server

LOST = "SAGE_DATABASE_URL: the database none at 127.0.0.1:1 cannot be opened: the connection is refused"


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    async with public_folder() as made:
        yield made


def command(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SAGE_")}
    environment |= {"SAGE_DATA_DIR": str(folder)} | settings
    return subprocess.run(
        (sys.executable, "-m", "sage_server", *arguments),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_a_second_run_finds_the_data_again(folder: Path) -> None:
    async with child_server(data_dir=folder) as server:
        async with sage_client.connect_async(server.address) as client:
            thread = await client.conversations.create("kept")
        server.send(signal.SIGTERM)
        assert await server.ended() == 0
    assert (folder / "root.key").stat().st_mode & 0o777 == 0o600
    async with child_server(data_dir=folder) as server:
        async with sage_client.connect_async(server.address) as client:
            assert (await client.conversations.get(thread.id)).title == "kept"
            assert (await client.admin.server_info()).database == "embedded"


async def test_what_was_acknowledged_survives_kill_9(folder: Path) -> None:
    acknowledged: list[int] = []

    async def write(client: AsyncSageClient, thread_id: str) -> None:
        while True:
            appended = await client.conversations.append(thread_id, [NewItem.user("text")] * 3)
            acknowledged.extend(item.seq for item in appended)

    async with child_server(data_dir=folder) as server:
        async with sage_client.connect_async(
            server.address, retry=sage_client.RetryPolicy(max_attempts=1)
        ) as client:
            thread = await client.conversations.create("kept")
            writers = [asyncio.create_task(write(client, thread.id)) for _ in range(4)]
            await asyncio.sleep(0.5)
            server.send(signal.SIGKILL)
            results = await asyncio.gather(*writers, return_exceptions=True)
            assert all(isinstance(result, sage_client.SageError) for result in results)
        await server.ended()
    assert acknowledged
    async with child_server(data_dir=folder) as server, sage_client.connect_async(server.address) as client:
        stored = [item.seq async for item in client.conversations.items(thread.id, page_size=200)]
        assert set(acknowledged) <= set(stored)
        assert stored == list(range(1, len(stored) + 1))
        assert (await client.conversations.get(thread.id)).message_count == len(stored)


async def test_two_servers_share_one_data_directory(folder: Path) -> None:
    async with child_server(data_dir=folder) as first, child_server(data_dir=folder) as second:
        async with (
            sage_client.connect_async(first.address) as here,
            sage_client.connect_async(second.address) as there,
        ):
            thread = await here.conversations.create("shared")
            assert (await there.conversations.get(thread.id)).title == "shared"
            first.send(signal.SIGTERM)
            assert await first.ended() == 0
            assert (await there.conversations.get(thread.id)).title == "shared"


async def test_sigterm_lets_running_calls_finish_and_takes_no_new_ones(folder: Path) -> None:
    """A lock on the thread keeps the call running until the server has been told to stop."""
    async with child_server(data_dir=folder) as server:
        async with sage_client.connect_async(
            server.address, retry=sage_client.RetryPolicy(max_attempts=1)
        ) as client:
            thread = await client.conversations.create("drain")
            database = await asyncpg.connect(f"postgresql://postgres@/sage?host={folder / 'postgres'}")
            async with database.transaction():
                await database.execute("SELECT 1 FROM conversations FOR UPDATE")
                running = asyncio.create_task(client.conversations.append(thread.id, [NewItem.user("x")]))
                await asyncio.sleep(0.3)
                server.send(signal.SIGTERM)
                await asyncio.sleep(0.3)
                with pytest.raises(sage_client.Unavailable) as refused:
                    await client.conversations.get(thread.id)
                assert refused.value.reason == "SHUTTING_DOWN"
                assert not running.done()
            assert [item.seq for item in await running] == [1]
            await database.close()
        assert await server.ended() == 0


async def test_a_database_that_crashes_is_an_outage_and_comes_back_by_itself(folder: Path) -> None:
    async with child_server(data_dir=folder) as server, sage_client.connect_async(server.address) as client:
        thread = await client.conversations.create("kept")
        postmaster = int((folder / "postgres" / "postmaster.pid").read_text().splitlines()[0])
        once = client.with_options(retry=sage_client.RetryPolicy(max_attempts=1), timeout=5)
        os.kill(postmaster, signal.SIGQUIT)
        refused = None
        while refused is None:
            try:
                await once.conversations.get(thread.id)
            except sage_client.Unavailable as error:
                refused = error
        assert refused.reason == "DATABASE_UNAVAILABLE"
        assert refused.retry_after is not None
        assert (await client.conversations.get(thread.id)).title == "kept"
        await client.conversations.append(thread.id, [NewItem.user("after")])


async def test_keys_commands_work_beside_a_running_server(folder: Path) -> None:
    created = await asyncio.to_thread(command, folder, "keys", "create-api-key", "ops", "--role", "operator")
    secret = created.stdout.strip()
    assert secret.startswith("sage_sk_"), created.stderr
    async with (
        child_server(data_dir=folder, auth="required") as server,
        sage_client.connect_async(server.address, token=secret, user="märia 100%") as client,
    ):
        thread = await client.conversations.create("kept")
        assert (await client.admin.get_user("märia 100%")).key_version == 1
        rotated = await asyncio.to_thread(command, folder, "keys", "rotate-user", "märia 100%")
        assert rotated.returncode == 0, rotated.stderr
        user = await client.admin.get_user("märia 100%")
        assert (user.key_version, user.key_rotation_pending) == (2, False)
        before = (folder / "root.key").read_text().splitlines()
        rotated = await asyncio.to_thread(command, folder, "keys", "rotate-root")
        assert rotated.returncode == 0, rotated.stderr
        assert (folder / "root.key").read_text().splitlines()[: len(before)] == before
        ada = client.with_options(user="ada")
        await ada.conversations.create("after the rotation")
        assert (await client.conversations.get(thread.id)).title == "kept"
        listed = await asyncio.to_thread(command, folder, "keys", "list-api-keys")
        key_id, *_ = listed.stdout.split()
        assert "operator" in listed.stdout
        assert secret not in listed.stdout
        revoked = await asyncio.to_thread(command, folder, "keys", "revoke-api-key", key_id)
        assert revoked.returncode == 0, revoked.stderr
        with pytest.raises(sage_client.Unauthenticated):
            await client.conversations.get(thread.id)
    async with child_server(data_dir=folder) as server, sage_client.connect_async(server.address) as client:
        assert (await client.admin.server_info()).root_key_id != before[0].split()[0]


async def test_the_doctor_says_what_is_wrong(folder: Path) -> None:
    new = await asyncio.to_thread(command, folder, "doctor")
    assert new.returncode == 0, new.stdout
    assert new.stdout.count("none yet") == 2
    assert list(folder.iterdir()) == []
    async with child_server(data_dir=folder):
        well = await asyncio.to_thread(command, folder, "doctor")
        assert well.returncode == 0, well.stdout
        assert "1 running" in well.stdout
    (folder / "root.key").chmod(0o644)
    ill = await asyncio.to_thread(
        command,
        folder,
        "doctor",
        SAGE_JWT_KEY_FILE="/nowhere/key.pem",
        SAGE_AUTH="required",
        SAGE_JWT_ISSUER="i",
        SAGE_JWT_AUDIENCE="a",
    )
    assert ill.returncode == 1
    assert "chmod 600" in ill.stdout
    assert "SAGE_JWT_KEY_FILE" in ill.stdout
    lost = await asyncio.to_thread(
        command,
        folder,
        "doctor",
        SAGE_DATABASE_URL="postgresql://nobody:canary@127.0.0.1:1/none",
        SAGE_ROOT_KEY=ROOT_KEY,
    )
    assert lost.returncode == 1
    assert LOST in lost.stdout
    assert "canary" not in lost.stdout + lost.stderr


async def test_a_start_without_its_database_says_which_and_why(folder: Path) -> None:
    lost = await asyncio.to_thread(
        command, folder, "serve", SAGE_DATABASE_URL="postgresql://nobody:canary@127.0.0.1:1/none"
    )
    assert lost.returncode == 1
    assert lost.stderr == f"sage-server: {LOST}\n"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"SAGE_TLS_CERTIFICATE": __file__, "SAGE_TLS_KEY": __file__},
            "SAGE_TLS_CERTIFICATE and SAGE_TLS_KEY",
        ),
        ({"SAGE_LISTEN": "0.0.0.0:50051"}, "without authentication the server serves loopback only"),
        ({"SAGE_POOL_MAX": "many"}, "SAGE_POOL_MAX"),
        ({"SAGE_LISTNE": "x"}, "SAGE_LISTNE: there is no such setting"),
        ({"SAGE_JWT_ISSUER": "x"}, "SAGE_AUTH: must be `required`"),
        ({"SAGE_ROOT_KEY": "short"}, "SAGE_ROOT_KEY"),
        ({"SAGE_DATABASE_URL": "mysql://x"}, "SAGE_DATABASE_URL"),
    ],
)
async def test_a_wrong_setting_is_named(folder: Path, settings: dict[str, str], expected: str) -> None:
    refused = await asyncio.to_thread(command, folder, "serve", **settings)
    assert refused.returncode in (1, 2)
    assert expected in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_files_that_are_missing_are_named_before_anything_starts(folder: Path) -> None:
    missing = {"SAGE_LLM_GGUF": "/nowhere/a.gguf", "SAGE_TLS_CERTIFICATE": "/nowhere/a", "SAGE_TLS_KEY": "/b"}
    refused = await asyncio.to_thread(
        command, folder, "serve", SAGE_EMBEDDING="onnx", SAGE_EMBEDDING_PATH="/nowhere", **missing
    )
    assert refused.returncode == 1
    assert [line for line in refused.stderr.splitlines() if "cannot be read" in line] == [
        "sage-server: SAGE_TLS_CERTIFICATE: there is no such file, or it cannot be read",
        "SAGE_TLS_KEY: there is no such file, or it cannot be read",
        "SAGE_LLM_GGUF: there is no such file, or it cannot be read",
        "SAGE_EMBEDDING_PATH: there is no such folder, or it cannot be read",
    ]
    assert list(folder.iterdir()) == []


async def test_a_lost_root_key_is_noticed_at_the_start(folder: Path) -> None:
    async with child_server(data_dir=folder):
        pass
    (folder / "root.key").unlink()
    refused = await asyncio.to_thread(command, folder, "serve")
    assert refused.returncode == 1
    assert "is not among the root keys of this server" in refused.stderr


async def test_log_lines_are_json_with_ids_and_outcome(folder: Path) -> None:
    async with child_server(data_dir=folder) as server:
        async with sage_client.connect_async(server.address) as client:
            thread = await client.conversations.create("unseen")
            with pytest.raises(sage_client.NotFound) as refused:
                await client.with_options(user="ada").conversations.get(thread.id)
        server.send(signal.SIGTERM)
        await server.ended()
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    (failed,) = [line for line in lines if line.get("code") == "NOT_FOUND"]
    assert failed["request_id"] == refused.value.request_id
    assert failed["reason"] == "NOT_FOUND"
    assert failed["method"] == "sage.v1.ConversationService/GetConversation"
