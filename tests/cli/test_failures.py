"""What goes wrong is one line and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sage_client.cli.group import globals_first
from support.cli import Cli, ended
from support.server import RunningServer

NOWHERE = "0193e2a4-7b1c-7c3a-9e58-0123456789ab"


@pytest.fixture
def nobody() -> Iterator[Cli]:
    """An address where nobody listens, and nobody will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Cli(f"127.0.0.1:{taken.getsockname()[1]}", "maria")


@pytest.mark.parametrize("command", [("memory", "list"), ("chat", "Hello"), ("events",), ("export", "-")])
async def test_without_a_server_the_address_is_named_and_how_to_start_one(
    nobody: Cli, command: tuple[str, ...]
) -> None:
    told = await nobody(*command)
    assert (told.code, told.out) == (3, "")
    (line,) = told.err.splitlines()
    assert nobody.address in line
    assert "make run" in line
    assert "--address" in line


async def test_without_a_server_scripts_get_json(nobody: Cli) -> None:
    told = await nobody("memory", "list", "--json")
    assert (told.code, told.out) == (3, "")
    error = json.loads(told.err)["error"]
    assert (error["code"], error["reason"], error["address"]) == ("UNAVAILABLE", None, nobody.address)


async def test_in_a_process_of_its_own_there_is_no_traceback(nobody: Cli) -> None:
    told = await ended(await nobody.start("agents", "list"))
    assert told.code == 3
    assert len(told.err.splitlines()) == 1


async def test_a_server_without_tls_is_told_from_none(sage: Cli) -> None:
    told = await sage("--tls", "usage")
    assert (told.code, told.out) == (3, "")
    assert f"{sage.address} speaks no TLS" in " ".join(told.err.split())


async def test_a_refusal_has_its_reason_and_request_id_in_one_line(sage: Cli) -> None:
    told = await sage("conversations", "show", NOWHERE)
    assert (told.code, told.out) == (1, "")
    (line,) = told.err.splitlines()
    assert line.startswith("sage: There is no such conversation. (NOT_FOUND, request ")
    parsed = await sage("--json", "conversations", "show", NOWHERE)
    error = json.loads(parsed.err)["error"]
    assert error["reason"] == "NOT_FOUND"
    assert error["request_id"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("conversations", "show", "no-uuid"), "sage conversations list"),
        (("agents", "create", "Not A Name"), "name"),
        (("agents", "create", "scout", "--time-zone", "Mars/Base"), "time_zone"),
        (("docs", "rm", "nothing", "--yes"), "sage docs list"),
        (("memory", "show", "nosuch"), "nosuch"),
        (("memory", "history", "nosuch"), "nosuch"),
        (("memory", "edit", "nosuch", "x"), "nosuch"),
        (("memory", "delete", "nosuch", "--yes"), "nosuch"),
    ],
)
async def test_what_breaks_the_contract_is_refused_in_words_of_the_command_line(
    sage: Cli, command: tuple[str, ...], said: str
) -> None:
    told = await sage(*command)
    assert told.code == 1
    assert said in told.err
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [
        ("nonsense",),
        ("memory", "add"),
        ("memory", "list", "--limit", "x"),
        ("memory", "list", "--source", "dreams"),
        ("memory", "history", NOWHERE),
        ("memory", "edit", "persona"),
        ("memory", "search", " "),
        ("docs", "add", "no-such-file.md"),
        ("docs", "add", "."),
        ("docs", "rm", NOWHERE),
        ("agents", "update", "main"),
        ("erase", "maria"),
        ("events", "--after", "-1"),
        ("import", "no-such-file.jsonl"),
        ("--token", " with spaces ", "agents", "list"),
        ("--address", "http://127.0.0.1:50051", "usage"),
        ("--address", "", "usage"),
    ],
)
async def test_wrong_usage_exits_with_2_and_does_nothing(sage: Cli, command: tuple[str, ...]) -> None:
    await sage.ok("memory", "add", "I am", "--block", "persona")
    told = await sage(*command)
    assert (told.code, told.out) == (2, "")
    assert told.err


async def test_bytes_that_are_no_text_are_wrong_usage(sage: Cli) -> None:
    told = await sage("memory", "add", os.fsdecode(b"\xff"))
    assert told.code == 2
    assert "UTF-8" in told.err


async def test_a_file_that_cannot_be_written_is_named(sage: Cli, tmp_path: Path) -> None:
    told = await sage("export", str(tmp_path / "no" / "such" / "folder.jsonl"))
    assert told.code == 1
    assert str(tmp_path) in told.err
    assert len(told.err.splitlines()) == 1


async def test_two_titles_for_two_files_are_wrong_usage(sage: Cli, tmp_path: Path) -> None:
    files = [tmp_path / "a.md", tmp_path / "b.md"]
    for file in files:
        file.write_text("text")
    told = await sage("docs", "add", *map(str, files), "--title", "Both")
    assert told.code == 2
    assert await sage.parsed("docs", "list") == []


def test_global_options_may_stand_anywhere_but_after_two_hyphens() -> None:
    given = ["memory", "add", "--json", "--tag", "a", "--user", "maria", "--address=x:1", "--", "--json"]
    assert globals_first(given) == [
        *("--json", "--user", "maria", "--address=x:1", "memory", "add", "--tag", "a", "--", "--json")
    ]


async def test_the_user_option_wins_over_the_environment(sage: Cli, server: RunningServer) -> None:
    await sage.ok("memory", "add", "Beans")
    assert (await sage.parsed("memory", "list", "--user", "somebody-else"))["memories"] == []
    assert (
        len(
            (
                await Cli("127.0.0.1:1", "x").parsed(
                    "memory", "list", "--user", sage.user, "--address", server.address
                )
            )["memories"]
        )
        == 1
    )


def test_without_the_extra_the_entry_point_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from sage_client.cli import main; main()"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert told.stderr == "sage: the command line needs more packages: pip install 'sage-memory[cli]'\n"


def test_the_client_itself_needs_neither_typer_nor_rich() -> None:
    code = "import sys; sys.modules['typer'] = sys.modules['rich'] = None; import sage_client"
    subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )


async def test_of_several_files_the_wrong_one_is_named_and_the_others_are_taken_in(
    sage: Cli, tmp_path: Path
) -> None:
    content = {"good.md": b"Beans", "empty.md": b"", "latin1.txt": b"caf\xe9", "fine.md": b"Peas"}
    for name, text in content.items():
        (tmp_path / name).write_bytes(text)
    told = await sage("docs", "add", *(str(tmp_path / name) for name in content))
    assert told.code == 1
    assert "empty.md: it is empty" in told.err
    assert "latin1.txt: it is not text in UTF-8" in told.err
    assert {one["title"] for one in await sage.parsed("docs", "list")} == {"good.md", "fine.md"}


@pytest.mark.parametrize("message", ["", "  "])
async def test_an_empty_message_is_wrong_usage_and_not_a_talk(sage: Cli, message: str) -> None:
    told = await sage("chat", message)
    assert (told.code, told.out) == (2, "")
    assert "the message is empty" in told.err


@pytest.mark.parametrize("command", [("memory", "list"), ("memory", "list", "--json"), ("export", "-")])
async def test_when_nobody_reads_on_it_leaves_silently_as_other_tools_do(
    sage: Cli, command: tuple[str, ...]
) -> None:
    await sage.ok("memory", "add", "Beans")
    ours, theirs = os.pipe()
    process = await sage.start(*command, out=theirs)
    os.close(theirs)
    os.close(ours)
    told = await ended(process)
    assert (told.code, told.err) == (141, "")
