"""Every example runs as a reader would run it, and prints what its first lines say."""

from __future__ import annotations

import ast
import asyncio
import doctest
import os
import sys
import textwrap
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.postgres import TestPostgres
from support.server import RunningServer, running_server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
async def server(postgres: TestPostgres) -> AsyncIterator[RunningServer]:
    """The examples have users of their own."""
    async with postgres.database() as dsn, running_server(dsn) as running:
        yield running


def promised(example: Path) -> str:
    """What it says that it prints: the indented end of its docstring."""
    said = ast.get_docstring(ast.parse(example.read_text())) or ""
    _, found, output = said.partition("prints:\n\n")
    assert found, "it does not say what it prints"
    return textwrap.dedent(output).strip() + "\n"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
async def test_an_example_prints_what_it_says(example: Path, server: RunningServer) -> None:
    path = os.pathsep.join(str(ROOT / part) for part in ("client", "generated"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", example, server.address),
        env={**os.environ, "PYTHONPATH": path},
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = (said.decode() for said in await process.communicate())
    assert (process.returncode, err) == (0, "")
    # Blank lines between messages are for reading.
    printed = "".join(f"{line}\n" for line in out.splitlines() if line)
    expected = promised(example)
    assert doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS), f"{printed}\n{expected}"


def test_the_examples_are_listed() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    assert EXAMPLES
    for example in EXAMPLES:
        assert f"[{example.name}]({example.name})" in listed
