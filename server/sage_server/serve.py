"""Running the server until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from prometheus_client import start_http_server

from sage_server.bootstrap import Application, data_dir, open_application
from sage_server.configured_model import described_model
from sage_server.settings import Settings, is_loopback

_log = logging.getLogger("sage.server")


async def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Start, say where, and serve until SIGTERM or SIGINT; then drain and clean up."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with open_application(settings) as application:
        await _run(application, stopping, announce)
    _log.info("stopped")


async def _run(application: Application, stopping: asyncio.Event, announce: Callable[[str], None]) -> None:
    settings = application.settings
    metrics = _start_metrics(application)
    await application.replicas.sync()
    port = await application.server.start()
    await application.server.set_serving(serving=True)
    application.workers.start()
    _spare_the_collector()
    try:
        announce(_welcome(application, port))
        if settings.tls_certificate is None and not is_loopback(settings.listen):
            _log.warning("credentials and content travel in the clear: no TLS, and not loopback only")
        await stopping.wait()
        _log.info("stopping: running calls may finish")
    finally:
        await application.stop(settings.drain)
        if metrics is not None:
            metrics()


def _spare_the_collector() -> None:
    """What is here now stays, so the collector need not look at it again. A call makes hundreds of objects
    and next to no cycles, so it need not look after every second call either."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _start_metrics(application: Application) -> Callable[[], None] | None:
    address = application.settings.metrics_listen
    if address == "off":
        return None
    host, _, port = address.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), application.registry)
    except (OSError, ValueError) as error:
        raise OSError(
            f"SAGE_METRICS_LISTEN: {address} cannot be listened on. Choose another, or `off`."
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _welcome(application: Application, port: int) -> str:
    settings = application.settings
    host = settings.listen.rpartition(":")[0]
    address = settings.listen if settings.listen.startswith("unix:") else f"{host}:{port}"
    database = "external" if settings.database_url is not None else "embedded Postgres"
    if settings.auth == "none":
        auth = "none: anybody on this machine is the operator, so only loopback is served"
    else:
        auth = "API keys and JWTs" if settings.jwt_configured else "API keys"
    lines = [
        f"Sage listens on {address} ({'TLS' if settings.tls_certificate else 'plaintext'} gRPC)",
        f"  database        {database}",
        f"  data            {data_dir(settings)}",
        f"  authentication  {auth}",
        f"  embedding       {application.memory.embedders.current.model}",
        f"  language model  {described_model(settings, application.language_model)}",
        f"  metrics         {settings.metrics_listen}",
    ]
    if settings.auth == "none" and settings.tls_certificate is None:
        lines += _first_words(address)
    return "\n".join([*lines, "  stop            Ctrl-C"])


def _first_words(address: str) -> list[str]:
    """How to talk to a server that asks nobody who they are."""
    where = "" if address == Settings.model_fields["listen"].default else f" --address {address}"
    lines = [f"  talk            {_beside('sage')} chat{where}"]
    if not address.startswith("unix:"):
        lines += [
            f"  or              {_beside('buf')} curl --protocol grpc --http2-prior-knowledge \\",
            '                    -d \'{"title": "Hello"}\' \\',
            f"                    http://{address}/sage.v1.ConversationService/CreateConversation",
        ]
    return lines


def _beside(name: str) -> str:
    """How to call a command that is installed beside this one, from where the server was started."""
    there = Path(sys.executable).with_name(name)
    if not there.exists() or shutil.which(name) == str(there):
        return name
    return str(there.relative_to(Path.cwd()) if there.is_relative_to(Path.cwd()) else there)
