"""A stranger's walk: install, serve, talk, restart, talk again, and leave, with nothing but the commands.

`make walk` takes what is installed from the package index, as a stranger's pip does; `make test` borrows it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.installed import ROOT, Installed
from support.postgres import public_folder

BOOKLET = "# Beans\n\nSow runner beans after the last frost, three to a cane.\n"
BEGIN = "import sage_client"


@dataclass(frozen=True)
class Desk:
    """Where the stranger sits: an empty folder, and a server that runs beside it."""

    installed: Installed
    folder: Path
    address: str
    welcome: str

    async def sage(self, *arguments: str) -> str:
        """What a command of `sage` prints."""
        return await self.installed.run("sage", *arguments, cwd=self.folder, SAGE_CLIENT_ADDRESS=self.address)

    async def parsed(self, *arguments: str) -> Any:
        """The same with --json."""
        return json.loads(await self.sage(*arguments, "--json"))


@asynccontextmanager
async def served(installed: Installed, folder: Path) -> AsyncIterator[Desk]:
    """`sage-server serve`, until Ctrl-C. Its port is a free one, and its data are below the folder."""
    variables = {"SAGE_LISTEN": "127.0.0.1:0", "SAGE_METRICS_LISTEN": "127.0.0.1:0"}
    process = await asyncio.create_subprocess_exec(
        *(installed.command("sage-server"), "serve"),
        cwd=folder,
        env=installed.environment | variables | {"SAGE_DATA_DIR": str(folder / "data")},
        stdout=PIPE,
        stderr=STDOUT,
    )
    try:
        welcome = await asyncio.wait_for(_welcome(process), 60)
        address = welcome.partition("Sage listens on ")[2].split()[0]
        yield Desk(installed, folder, address, welcome)
        process.send_signal(signal.SIGINT)
        rest, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
        assert b"Traceback" not in rest
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _welcome(process: Process) -> str:
    assert process.stdout is not None
    said = ""
    while line := (await process.stdout.readline()).decode():
        said += line
        if line.startswith("  stop "):
            return said
    raise AssertionError(f"the server did not start:\n{said}")


async def test_a_stranger_installs_talks_restarts_searches_follows_takes_all_along_and_leaves(
    installed: Installed,
) -> None:
    async with public_folder() as folder:
        async with served(installed, folder) as desk:
            assert "embedded Postgres" in desk.welcome
            assert "no model is configured" in desk.welcome
            assert "sage chat" in desk.welcome
            said = await desk.sage("chat", "My name is Maria and I grow beans on a balcony in Lisbon.")
            assert "No language model is configured." in said
            assert "Kept in core memory" in said
        async with served(installed, folder) as desk:
            said = await desk.sage("chat", "What do I grow?")
            assert "“My name is Maria and I grow beans on a balcony in Lisbon.”" in said
            (folder / "beans.md").write_text(BOOKLET)
            await desk.sage("docs", "add", "beans.md")
            found = await desk.parsed("memory", "search", "How many beans to a cane?")
            assert "three to a cane" in found["results"][0]["memory"]["text"]
            await follows(desk)
            counts = await desk.parsed("export", "maria.jsonl")
            assert counts["conversations"] == 1
            assert "balcony in Lisbon" in (folder / "maria.jsonl").read_text()
            await desk.sage("erase", "local", "--yes")
            assert await desk.parsed("memory", "list") == {"blocks": [], "memories": []}
            # What was taken along makes somebody whole again.
            await desk.sage("import", "maria.jsonl", "--user", "maria")
            assert "balcony in Lisbon" in await desk.sage("chat", "What do I grow?", "--user", "maria")


async def follows(desk: Desk) -> None:
    """`sage events` shows a chat that happens elsewhere, as it happens."""
    process = await asyncio.create_subprocess_exec(
        *(desk.installed.command("sage"), "events", "--after", "0", "--json"),
        cwd=desk.folder,
        env=desk.installed.environment | {"SAGE_CLIENT_ADDRESS": desk.address},
        stdout=PIPE,
    )
    assert process.stdout is not None
    try:
        last = [event["turn_id"] for event in await until_done(process, 2)][-1]
        await desk.sage("chat", "Thank you.")
        events = await until_done(process, 1)
        assert [event["event"] for event in events] == ["accepted", "typing", "message", "done"]
        assert {event["turn_id"] for event in events}.isdisjoint({last})
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_done(process: Process, turns: int) -> list[Any]:
    """The events until so many turns were done."""
    assert process.stdout is not None
    events: list[Any] = []
    async with asyncio.timeout(20):
        while sum(event["event"] == "done" for event in events) < turns:
            events.append(json.loads(await process.stdout.readline()))
    return events


async def test_the_five_lines_of_the_readme_run_as_they_stand(installed: Installed) -> None:
    """In the README they name no address."""
    readme = (ROOT / "README.md").read_text()
    shown = readme.partition(f"```python\n{BEGIN}")[2].partition("```")[0]
    assert "client.agent(" in shown
    async with public_folder() as folder, served(installed, folder) as desk:
        program = (BEGIN + shown).replace("connect(", f'connect("{desk.address}", ')
        said = await installed.run("python", "-c", program, cwd=folder)
        assert "Kept in archival memory" in said
        assert "From your memory" in said


async def test_the_client_alone_needs_neither_the_server_nor_the_command_line(installed: Installed) -> None:
    """The base install is the client and the stubs."""
    hidden = [
        "sage_server",
        "typer",
        "rich",
        "numpy",
        "faiss",
        "asyncpg",
        "sqlalchemy",
        "openai",
        "pydantic",
        "cryptography",
    ]
    program = f"import sys; sys.modules.update(dict.fromkeys({hidden})); import sage_client; print('fine')"
    assert await installed.run("python", "-c", program, cwd=installed.folder) == "fine\n"


@pytest.mark.parametrize(
    "program", sorted(Path(__file__).parent.glob("downstream_*.py")), ids=lambda p: p.stem
)
def test_a_program_that_uses_the_client_is_checked_strictly(installed: Installed, program: Path) -> None:
    """mypy sees the installed client and nothing of the clone, nor its settings."""
    finished = subprocess.run(
        (
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental"),
            *("--python-executable", installed.command("python"), str(program)),
        ),
        cwd=installed.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout.count("\n")) == (0, 1), finished.stdout
