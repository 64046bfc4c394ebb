"""A web site on loopback: a real server that sends, byte for byte, what a test puts up."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class SiteRequest:
    """What the site was asked for. Names of headers are in lower case."""

    target: str
    headers: Mapping[str, str]


Sending: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


def page(
    body: bytes | str, content_type: str | None = "text/html; charset=utf-8", status: int = 200, **more: str
) -> bytes:
    """An answer with its length. Underscores in names of headers become hyphens."""
    content = body.encode() if isinstance(body, str) else body
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    if content_type is not None:
        headers["Content-Type"] = content_type
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def moved(location: str, status: int = 302) -> bytes:
    """An answer that sends elsewhere."""
    return page("elsewhere", status=status, Location=location)


async def hang(writer: asyncio.StreamWriter) -> None:
    """No answer ever comes."""
    await asyncio.Event().wait()


async def trickle(writer: asyncio.StreamWriter) -> None:
    """An answer that never stops coming, a byte at a time."""
    writer.write(b"HTTP/1.1 200 x\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def flood(writer: asyncio.StreamWriter) -> None:
    """An answer that never stops coming, as fast as it is taken."""
    writer.write(b"HTTP/1.1 200 x\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


class Site:
    """Answers each path, without its query, with what `pages` holds. A connection serves one request."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Sending] = {}
        self.requests: list[SiteRequest] = []
        self.asked = asyncio.Event()
        self.host = ""
        self.port = 0
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The address of the site, without a path."""
        return f"http://{self.host}:{self.port}"

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[Site]:
        """A site that runs until the block ends."""
        site = cls()
        server = await asyncio.start_server(site._serve, host, port, ssl=tls)
        site.host, site.port = host, server.sockets[0].getsockname()[1]
        try:
            yield site
        finally:
            server.close()
            for connection in site._connections:
                connection.cancel()
            await asyncio.gather(*site._connections)
            await server.wait_closed()

    async def left(self) -> None:
        """Wait until nobody is connected."""
        await asyncio.gather(*self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            named = (line.split(": ", 1) for line in head[1:] if line)
            request = SiteRequest(head[0].split(" ")[1], {name.lower(): value for name, value in named})
            self.requests.append(request)
            self.asked.set()
            await self._send(request.target.partition("?")[0], reader, writer)
        self._connections.discard(task)
        writer.close()

    async def _send(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = self.pages.get(path, page("not here", status=404))
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
            return
        sending, gone = asyncio.ensure_future(answer(writer)), asyncio.ensure_future(reader.read())
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            gone.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
