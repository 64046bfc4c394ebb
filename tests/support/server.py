"""The real server, in this process or in a child of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sage_server.bootstrap import Application, open_application
from sage_server.settings import Settings
from support.clock import FakeClock

ROOT_KEY = "test:" + "A" * 43 + "="


@dataclass(frozen=True)
class RunningServer:
    """A server that listens."""

    address: str
    application: Application
    clock: FakeClock
    dsn: str


def test_settings(dsn: str, **changes: Any) -> Settings:
    """Settings for one test: nothing from the environment, a free port, limits out of the way."""
    values: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "metrics_listen": "off",
        "database_url": dsn,
        "root_key": ROOT_KEY,
        "max_rate_per_user": 0,
        "pool_max": 8,
        "log_level": "error",
        "drain": 2,
    }
    return Settings(**values | changes)


test_settings.__test__ = False  # type: ignore[attr-defined]


@asynccontextmanager
async def running_server(
    dsn: str, clock: FakeClock | None = None, /, **changes: Any
) -> AsyncIterator[RunningServer]:
    """Everything that `sage-server serve` starts, in this process. Two on one database are two replicas."""
    clock = clock or FakeClock()
    async with open_application(test_settings(dsn, **changes), clock) as application:
        await application.replicas.sync()
        port = await application.server.start()
        await application.server.set_serving(serving=True)
        application.workers.start()
        try:
            yield RunningServer(f"127.0.0.1:{port}", application, clock, dsn)
        finally:
            await application.stop(0.2)


class ChildServer:
    """`sage-server serve` in a process of its own, to be killed."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, lines: list[str]) -> None:
        self.process = process
        self.address = address
        self.lines = lines

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within: float = 20) -> int:
        return await asyncio.wait_for(self.process.wait(), within)


@asynccontextmanager
async def child_server(**settings: str | Path) -> AsyncIterator[ChildServer]:
    """Start a child with these settings and wait until it says that it listens."""
    defaults = {"SAGE_LISTEN": "127.0.0.1:0", "SAGE_METRICS_LISTEN": "off", "SAGE_LOG_FORMAT": "json"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SAGE_")}
    environment |= defaults | {f"SAGE_{key.upper()}": str(value) for key, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sage_server", "serve"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    lines: list[str] = []
    reader: asyncio.Task[None] | None = None
    try:
        address = await asyncio.wait_for(_listening(process, lines), 60)
        reader = asyncio.create_task(_drain(process, lines))
        yield ChildServer(process, address, lines)
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 30)
        if reader is not None:
            await reader


async def _listening(process: asyncio.subprocess.Process, lines: list[str]) -> str:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        lines.append(line)
        if line.startswith("Sage listens on "):
            return line.split()[3]
    raise AssertionError("the server did not start:\n" + "".join(lines))


async def _drain(process: asyncio.subprocess.Process, lines: list[str]) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        lines.append(line.decode())
