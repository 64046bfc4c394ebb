"""One request, and an answer that is taken only so far."""

from __future__ import annotations

import contextlib
import ssl
import zlib
from collections.abc import AsyncIterator

import httpcore2
import httpx2

from sage_server import __version__
from sage_server.ports.web import WebError

_AT_ONCE = 100
_FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    OSError,
)


class Answer:
    """What a server answers. The body is read on demand."""

    def __init__(self, response: httpcore2.Response, max_bytes: int) -> None:
        self._response = response
        self._max_bytes = max_bytes

    @property
    def status(self) -> int:
        """The status code."""
        return self._response.status

    def header(self, name: bytes) -> str:
        """The first header of that name, in lower case; empty if there is none."""
        found = (value for key, value in self._response.headers if key.lower() == name)
        return next(found, b"").decode("latin-1").strip()

    async def body(self) -> bytes:
        """The body without its compression. Raises WebError as soon as there is too much of either."""
        unpack = _Unpacking(self.header(b"content-encoding").lower(), self._max_bytes)
        arrived = 0
        async with contextlib.aclosing(self._response.aiter_stream()) as pieces:
            async for piece in pieces:
                arrived += len(piece)
                if arrived > self._max_bytes:
                    raise _too_large(self._max_bytes)
                unpack.add(piece)
        return unpack.whole()


class HttpClient:
    """Asks with GET. Takes no proxy, password or cookie from anywhere, follows nothing, keeps no connection.

    Knows no limit of time: a caller has one for all that it does.
    """

    def __init__(
        self,
        max_bytes: int,
        ssl_context: ssl.SSLContext,
        backend: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=_AT_ONCE,
            max_keepalive_connections=0,
            network_backend=backend,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    @contextlib.asynccontextmanager
    async def get(self, url: httpx2.URL, accept: str) -> AsyncIterator[Answer]:
        """The answer, to be used within the block. Raises WebError, also for what breaks within it."""
        target = httpcore2.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path or b"/"
        )
        headers: dict[bytes | str, bytes | str] = {
            "Host": url.netloc.decode("ascii"),
            "User-Agent": f"sage/{__version__}",
            "Accept": accept,
            "Accept-Encoding": "gzip",
        }
        try:
            async with self._pool.stream("GET", target, headers=headers) as response:
                yield Answer(response, self._max_bytes)
        except _FAILURES:
            raise WebError("The server could not be reached, or broke off.") from None


class _Unpacking:
    """Gathers a body, unpacked if it is packed, up to a size: a small body can be packed zeros."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        if encoding not in {"", "identity", "gzip", "x-gzip"}:
            raise WebError("The answer is compressed in an unknown way.")
        self._gzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if "gzip" in encoding else None
        self._max_bytes = max_bytes
        self._body = bytearray()

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        if self._gzip is not None:
            try:
                piece = self._gzip.decompress(piece, self._max_bytes + 1 - len(self._body))
            except zlib.error:
                raise _damaged() from None
        self._body += piece
        if len(self._body) > self._max_bytes:
            raise _too_large(self._max_bytes)

    def whole(self) -> bytes:
        """All of it. Raises WebError if there should be more."""
        if self._gzip is not None and not self._gzip.eof and self._body:
            raise _damaged()
        return bytes(self._body)


def _too_large(max_bytes: int) -> WebError:
    return WebError(f"The answer is larger than {max_bytes} bytes.")


def _damaged() -> WebError:
    return WebError("The answer is damaged.")
