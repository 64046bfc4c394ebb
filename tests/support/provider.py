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


@dataclass(frozen=True)
class StreamedReply:
    """What the provider answers bit by bit. Each part is sent before the next is asked for."""

    parts: AsyncIterator[bytes]
    content_type: str = "text/event-stream"


Answering: TypeAlias = Callable[[ProviderRequest], Awaitable[ProviderReply | StreamedReply]]
Step: TypeAlias = ProviderReply | Answering

CHAT_PATH = "/v1/chat/completions"


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


def error_reply(
    status: int, message: str = "no", *, code: object = None, param: str | None = None, **headers: str
) -> ProviderReply:
    """An error in OpenAI's form."""
    error = {"message": message, "type": "error", "param": param, "code": code}
    return json_reply({"error": error}, status, **headers)


def chat_reply(
    content: str | Mapping[str, object],
    *,
    usage: tuple[int, int] | None = (7, 5),
    finish: str = "stop",
    delay: float = 0,
    pause: float = 0,
    piece: int = 8,
    hold: asyncio.Event | None = None,
    breaks_after: int | None = None,
) -> Answering:
    """A step: a model says this, a mapping as JSON, in the form that was asked for.

    `usage` is tokens of prompt and answer; None gives no count. The answer begins after `delay` seconds. A
    stream comes in pieces of `piece` characters, `pause` seconds apart; after the first it waits for `hold`,
    and after `breaks_after` of them it breaks.
    """
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    counts = usage and {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}

    async def parts(request: ProviderRequest) -> AsyncIterator[bytes]:
        yield event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        pieces = [text[start : start + piece] for start in range(0, len(text), piece)]
        for number, said in enumerate(pieces[:breaks_after]):
            if number == 1 and hold is not None:
                await hold.wait()
            await asyncio.sleep(pause if number else 0)
            yield event({"choices": [{"index": 0, "delta": {"content": said}}]})
        if breaks_after is not None:
            raise DroppedError
        yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if counts and (request.body.get("stream_options") or {}).get("include_usage"):
            yield event({"choices": [], "usage": counts})
        yield event("[DONE]")

    async def answer(request: ProviderRequest) -> ProviderReply | StreamedReply:
        await asyncio.sleep(delay)
        if request.body.get("stream"):
            return StreamedReply(parts(request))
        if hold is not None:
            await hold.wait()
        if breaks_after is not None:
            raise DroppedError
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return json_reply({"choices": [choice], "usage": counts or None})

    return answer


def event(data: object) -> bytes:
    """A server-sent event: a text as it is, anything else as JSON."""
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"


def streamed(*parts: bytes) -> Answering:
    """A step: a stream of exactly these parts."""

    async def each() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def answer(request: ProviderRequest) -> StreamedReply:
        return StreamedReply(each())

    return answer


class FakeProvider:
    """Answers as the test scripts it. Where nothing is scripted, a request for embeddings gets the right
    answer, and a request for chat fails the test at the end.

    `requests` is everything that was asked, in order; `asked` is set by the first. Steps that nobody asked
    for fail the test, too. `chat` gives the step for requests for chat beyond the script, any number of them.
    `left` is set when a client goes away in the middle of an answer. `accepted` counts connections.
    """

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.requests: list[ProviderRequest] = []
        self.url = ""
        self.chat: Callable[[ProviderRequest], Step] | None = None
        self.asked, self.left = asyncio.Event(), asyncio.Event()
        self.accepted = 0
        self._steps: deque[Step] = deque()
        self._chat_steps: deque[Step] = deque()
        self._unexpected = 0
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
        steps = len(provider._steps) + len(provider._chat_steps)
        assert not steps, f"{steps} steps were not asked for"
        assert not provider._unexpected, f"unexpected call: {provider._unexpected} requests for chat"

    def script(self, *steps: Step) -> None:
        """Answer the next requests, other than for chat, with these, one each, in the order of arrival."""
        self._steps.extend(steps)

    def script_chat(self, *steps: Step) -> None:
        """Answer the next requests for chat with these, one each, in the order of arrival."""
        self._chat_steps.extend(steps)

    @property
    def chats(self) -> list[ProviderRequest]:
        """The requests for chat."""
        return [request for request in self.requests if request.path == CHAT_PATH]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.accepted += 1
        gone = (DroppedError, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*gone):
            ahead = b""
            while True:
                request = await _read(reader, ahead)
                self.requests.append(request)
                self.asked.set()
                ahead = await self._respond(request, reader, writer)
        self._connections.discard(task)
        writer.close()

    async def _respond(
        self, request: ProviderRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Answer, unless the client goes away. What was read of its next request meanwhile."""
        answering = asyncio.create_task(self._send(request, writer))
        reading = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({answering, reading}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not reading.result():
                self.left.set()
                raise DroppedError
            await answering
            return reading.result() if reading.done() else b""
        except ConnectionError:
            self.left.set()
            raise
        finally:
            answering.cancel()
            reading.cancel()
            await asyncio.wait({answering, reading})

    async def _send(self, request: ProviderRequest, writer: asyncio.StreamWriter) -> None:
        step = self._step(request)
        reply = step if isinstance(step, ProviderReply) else await step(request)
        if isinstance(reply, ProviderReply):
            _write(writer, reply)
            await writer.drain()
            return
        head = f"HTTP/1.1 200 Scripted\r\ncontent-type: {reply.content_type}\r\ntransfer-encoding: chunked"
        writer.write(head.encode() + b"\r\n\r\n")
        async for part in reply.parts:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _step(self, request: ProviderRequest) -> Step:
        if request.path == CHAT_PATH:
            if self._chat_steps:
                return self._chat_steps.popleft()
            if self.chat is not None:
                return self.chat(request)
            self._unexpected += 1
            return error_reply(500, "unexpected call", x_should_retry="false")
        if self._steps:
            return self._steps.popleft()
        if request.path == "/v1/embeddings":
            return embeddings_reply(request, self.dimensions)
        return json_reply({"error": {"message": "no such path"}}, status=404)


async def _read(reader: asyncio.StreamReader, ahead: bytes) -> ProviderRequest:
    head = (ahead + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ProviderRequest(first.split(" ")[1], headers, json.loads(body) if body else None)


def _write(writer: asyncio.StreamWriter, reply: ProviderReply) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(reply.body)), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body)
