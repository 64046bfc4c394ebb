"""Three replicas of Sage on one Postgres behind Envoy, to try on one machine what a cluster does.

Run through make: `make cluster`. The servers take their settings from the environment as always; SAGE_LISTEN
and SAGE_METRICS_LISTEN are the first one's, and the others have the ports after it. Without SAGE_DATABASE_URL
they share the embedded Postgres of one data directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process

from proxy import ProxySettings, command, load_settings

REPLICAS = 3
STARTED = "Sage listens on "


class StartError(Exception):
    """A replica did not start; the message is what it said."""


class Cluster:
    """The processes, started one after the other and stopped in the other direction."""

    def __init__(self) -> None:
        self._processes: dict[str, Process] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self.proxy_ended = asyncio.Event()

    async def start(self, settings: ProxySettings) -> None:
        """All of them, until Envoy runs."""
        addresses = zip(_listen(), _metrics_listen(), strict=True)
        for number, (listen, metrics) in enumerate(addresses, 1):
            await self._start_replica(f"replica {number}", listen, metrics)
        proxy = await asyncio.create_subprocess_exec(*command(settings), start_new_session=True)
        self._processes["Envoy"] = proxy
        self._watch("Envoy", proxy)

    async def stop(self) -> None:
        """Envoy first, so that nobody calls; then the replicas, the first of them last. It waits."""
        for process in reversed(self._processes.values()):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
        await asyncio.gather(*self._watching)

    async def _start_replica(self, name: str, listen: str, metrics_listen: str) -> None:
        environment = os.environ | {"SAGE_LISTEN": listen, "SAGE_METRICS_LISTEN": metrics_listen}
        # In a session of its own: Ctrl-C is for this process, which stops them in order.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sage_server", "serve"),
            env=environment,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        self._processes[name] = process
        assert process.stdout is not None
        said: list[str] = []
        while line := (await process.stdout.readline()).decode():
            said.append(line)
            if line.startswith(STARTED):
                print(f"  {name}  {line.split()[3]}, process {process.pid}", flush=True)
                self._watch(name, process)
                return
        raise StartError(f"{name} did not start:\n{''.join(said)}")

    def _watch(self, name: str, process: Process) -> None:
        self._watching.add(asyncio.create_task(self._follow(name, process)))

    async def _follow(self, name: str, process: Process) -> None:
        """Show the log lines of a process, and say when it ends."""
        while process.stdout is not None and (line := await process.stdout.readline()):
            if not line.startswith(b" "):  # the rest of what it says at its start
                print(f"  {name}  {line.decode()}", end="", flush=True)
        code = await process.wait()
        print(f"  {name}  ended with {code}", flush=True)
        if name == "Envoy":
            self.proxy_ended.set()


def _listen() -> list[str]:
    return _from(os.environ.get("SAGE_LISTEN") or "127.0.0.1:50051")


def _metrics_listen() -> list[str]:
    first = os.environ.get("SAGE_METRICS_LISTEN") or "127.0.0.1:9464"
    return [first] * REPLICAS if first == "off" else _from(first)


def _from(first: str) -> list[str]:
    host, _, port = first.rpartition(":")
    if not host or not port.isdecimal() or port == "0":
        sys.exit(f"{first}: a cluster needs an address and the first of its ports")
    return [f"{host}:{int(port) + number}" for number in range(REPLICAS)]


async def run() -> int:
    """Run the cluster until SIGINT or SIGTERM, or until Envoy ends."""
    settings = load_settings().model_copy(update={"servers": ",".join(_listen())})
    command(settings)  # fail before anything is started
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    cluster = Cluster()
    print(f"Starting {REPLICAS} replicas and Envoy", flush=True)
    waits = [asyncio.create_task(cluster.proxy_ended.wait()), asyncio.create_task(stopping.wait())]
    starting = asyncio.create_task(cluster.start(settings))
    try:
        await asyncio.wait({starting, waits[1]}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            print(f"Envoy listens on {settings.listen} for gRPC and gRPC-Web. Ctrl-C stops.", flush=True)
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return 0 if stopping.is_set() else 1
    except StartError as error:
        print(error, end="", flush=True)
        return 1
    finally:
        starting.cancel()
        print("Stopping", flush=True)
        await cluster.stop()
        for wait in waits:
            wait.cancel()


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
