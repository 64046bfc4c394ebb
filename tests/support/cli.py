"""The command line: in this process for most tests, and in one of its own as a person runs it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from typer.testing import CliRunner

from sage_client.cli.app import app


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """What it printed, as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Cli:
    """`sage` with an address and a user, for an output of some width that is no terminal."""

    address: str
    user: str
    width: int = 80
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def _own(self) -> dict[str, str]:
        known = {"SAGE_CLIENT_ADDRESS": self.address, "SAGE_CLIENT_USER": self.user}
        return known | {"COLUMNS": str(self.width)} | self.environment

    async def __call__(self, *arguments: str, typed: str = "") -> Result:
        """A command, to its end."""
        return await asyncio.to_thread(self._run, arguments, typed)

    async def ok(self, *arguments: str, typed: str = "") -> str:
        """What a command prints that must go well."""
        result = await self(*arguments, typed=typed)
        assert result.code == 0, result
        return result.out

    async def parsed(self, *arguments: str, typed: str = "") -> Any:
        """What a command prints with --json, as one document."""
        return json.loads(await self.ok(*arguments, "--json", typed=typed))

    async def start(
        self, *arguments: str, terminal: int | None = None, out: int | None = None
    ) -> asyncio.subprocess.Process:
        """A command in a process of its own, as it runs, on a terminal or into a pipe if there is one."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SAGE_")}
        python = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "error"}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sage_client.cli", *arguments),
            env=inherited | python | self._own,
            stdin=terminal or asyncio.subprocess.PIPE,
            stdout=terminal or out or asyncio.subprocess.PIPE,
            stderr=terminal or asyncio.subprocess.PIPE,
        )

    def _run(self, arguments: tuple[str, ...], typed: str) -> Result:
        result = CliRunner().invoke(app, list(arguments), input=typed, env=self._own, prog_name="sage")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Result(result.exit_code, result.stdout, result.stderr)


async def ended(process: asyncio.subprocess.Process) -> Result:
    """How a process ends."""
    out, err = await process.communicate()
    assert process.returncode is not None
    return Result(process.returncode, (out or b"").decode(), err.decode())
