"""A provider with an OpenAI-compatible HTTP interface: a real server on loopback that tests script."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ProviderRequest:
    """What the provider was sent. Names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class ProviderReply:
    """What the provider answers."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


Answering: TypeAlias = Callable[[ProviderRequest], Awaitable[ProviderReply]]
Step: TypeAlias = ProviderReply | Answering


class DroppedError(Exception):
    """Raised by a step to close the connection without an answer."""


async def drop(request: ProviderRequest) -> ProviderReply:
    """A step: the connection breaks."""
    raise DroppedError


async def hang(request: ProviderRequest) -> ProviderReply:
    """A step: no answer ever comes."""
    await asyncio.Event().wait()
    raise DroppedError


def json_reply(body: object, status: int = 200, **headers: str) -> ProviderReply:
    """An answer in JSON. Underscores in names of headers become hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ProviderReply(status, json.dumps(body).encode(), named)


def embedding_of(text: str, dimensions: int) -> npt.NDArray[np.float32]:
    """What the provider's model makes of a text: texts that share words are alike. Not of length 1."""
    found = np.zeros(dimensions)
    for word in re.findall(r"\w+", text.lower()):
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        found += np.random.default_rng(seed).normal(size=dimensions)
    return found.astype(np.float32)


def embeddings_reply(request: ProviderRequest, dimensions: int) -> ProviderReply:
    """The right answer to a request for embeddings, in the encoding that was asked for."""
    texts = request.body["input"]
    rows: list[dict[str, object]] = []
    for index, text in enumerate(texts):
        vector = embedding_of(text, dimensions)
        plain = request.body.get("encoding_format") != "base64"
        embedding = vector.tolist() if plain else base64.b64encode(vector.tobytes()).decode()
        rows.append({"object": "embedding", "index": index, "embedding": embedding})
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_reply({"object": "list", "data": rows, "model": request.body["model"], "usage": usage})


class FakeProvider:
    """Answers as the test scripts it, and properly where nothing is scripted.

    `requests` is everything that was asked, in order. Steps that nobody asked for fail the test at the end.
    """

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.requests: list[ProviderRequest] = []
        self.url = ""
        self._steps: deque[Step] = deque()
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, dimensions: int = 8) -> AsyncIterator[FakeProvider]:
        """A provider on a free port; `url` is its base URL."""
        provider = cls(dimensions)
        server = await asyncio.start_server(provider._serve, "127.0.0.1", 0)
        provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield provider
        finally:
            server.close()
            for connection in provider._connections:
                connection.cancel()
            await asyncio.gather(*provider._connections)
            await server.wait_closed()
        assert not provider._steps, f"{len(provider._steps)} steps were not asked for"

    def script(self, *steps: Step) -> None:
        """Answer the next requests with these, one each, in the order in which they arrive."""
        self._steps.extend(steps)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        gone = (DroppedError, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*gone):
            while True:
                request = await _read(reader)
                self.requests.append(request)
                _write(writer, await self._answer(request))
                await writer.drain()
        self._connections.discard(task)
        writer.close()

    async def _answer(self, request: ProviderRequest) -> ProviderReply:
        if self._steps:
            step = self._steps.popleft()
            return step if isinstance(step, ProviderReply) else await step(request)
        if request.path == "/v1/embeddings":
            return embeddings_reply(request, self.dimensions)
        return json_reply({"error": {"message": "no such path"}}, status=404)


async def _read(reader: asyncio.StreamReader) -> ProviderRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ProviderRequest(first.split(" ")[1], headers, json.loads(body) if body else None)


def _write(writer: asyncio.StreamWriter, reply: ProviderReply) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(reply.body)), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body)
