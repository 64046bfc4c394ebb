"""Sage as a stranger has it: the built wheel in a virtual environment of its own, and an empty home."""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it. Nothing of the clone is on its path."""

    folder: Path

    def command(self, name: str) -> str:
        """A command of the environment."""
        return str(self.folder / "bin" / name)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of somebody who has set none."""
        known = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return known | {"HOME": str(self.folder), "COLUMNS": "100"}

    async def run(self, name: str, *arguments: str, cwd: Path, **variables: str) -> str:
        """What a command prints that must go well."""
        process = await asyncio.create_subprocess_exec(
            *(self.command(name), *arguments),
            cwd=cwd,
            env=self.environment | variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = (said.decode() for said in await process.communicate())
        assert process.returncode == 0, f"{name} {' '.join(arguments)}\n{out}\n{err}"
        return out


async def install(folder: Path, *, fresh: bool) -> Installed:
    """Build the wheel and install it. `fresh`: with all that it needs from the package index, as pip does
    it; otherwise what it needs is borrowed from the environment of the tests."""
    await _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist"))
    (wheel,) = (folder / "dist").glob("*.whl")
    environment = folder / "environment"
    await _run(sys.executable, "-m", "venv", str(environment))
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    pip.append("--disable-pip-version-check")
    if fresh:
        await _run(*pip, "-c", str(ROOT / "constraints.txt"), f"{wheel}[server,cli]")
    else:
        await _run(*pip, "--no-deps", "--no-index", str(wheel))
        _borrow(environment)
    return Installed(environment)


def _borrow(environment: Path) -> None:
    """Let it import from the packages here. Their own .pth files do not count, so the clone that is installed
    here for development stays out."""
    here = sysconfig.get_path("purelib")
    (there,) = environment.glob("lib/python3*/site-packages")
    (there / "borrowed.pth").write_text(f"{here}\n")


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
