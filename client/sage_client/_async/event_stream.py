"""Streams of events that go on where they broke off."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self

from sage_client._async.transport import AsyncMessages, AsyncTransport
from sage_client._wire.progress import EventResponse, Progress
from sage_client.errors import SageError
from sage_client.models.events import TurnEvent
from sage_client.retry import Attempts


class AsyncEventStream(ABC):
    """Events, each once and in order, over as many streams as it takes.

    A stream that breaks off, or lasts longer than the client's `stream_timeout`, is followed by another one
    that continues it; the client's RetryPolicy counts only the attempts that get no further. What it cannot
    mend is raised, and iterating once more tries to continue. `close` may be called while somebody else
    iterates, who then comes to the end.
    """

    def __init__(self, transport: AsyncTransport, progress: Progress) -> None:
        self._transport = transport
        self._seen = progress
        self._attempts: Attempts | None = None
        self._stream: AsyncMessages[EventResponse] | None = None
        self._open_streams: set[AsyncMessages[EventResponse]] = set()
        self._closed = False

    @abstractmethod
    def _open(self, timeout: float) -> AsyncMessages[EventResponse]:
        """A stream of what was not seen yet."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TurnEvent:
        while not self._seen.ended and not self._closed:
            try:
                event = await self._next()
            except SageError as error:
                if not self._closed:
                    await self._wait_after(error)
            else:
                if event is not None:
                    return event
        await self._finish()
        raise StopAsyncIteration

    async def close(self) -> None:
        """Stop listening. The turns go on."""
        self._closed = True
        for stream in tuple(self._open_streams):
            stream.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _next(self) -> TurnEvent | None:
        # Taken out while it is read: a stream that raised, or whose reader was cancelled, gives nothing more.
        stream, self._stream = self._stream, None
        if stream is None:
            self._attempts = self._attempts or self._transport.resumptions(begun=self._seen.begun)
            stream = self._open(self._attempts.remaining())
            self._open_streams.add(stream)
        if self._closed:  # also by somebody who came before the stream was open
            stream.cancel()
        response = None
        try:
            response = await anext(stream, None)
        finally:
            if response is None:
                self._end(stream)
        if self._closed:
            return None  # not taken: whoever goes on after the last event that was seen gets it
        if response is None:
            self._seen.take_end()
            return None
        self._stream, self._attempts = stream, None
        return self._seen.take(response.event)

    def _end(self, stream: AsyncMessages[EventResponse]) -> None:
        self._open_streams.discard(stream)
        stream.cancel()

    async def _wait_after(self, error: SageError) -> None:
        self._attempts = self._attempts or self._transport.resumptions(begun=self._seen.begun)
        wait = self._attempts.wait_after(error)
        if wait is None:
            self._attempts = None
            raise error
        await asyncio.sleep(wait)

    async def _finish(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if self._seen.ended:
            # Only the status follows. If nobody waits for it, the server sees the call cancelled.
            with suppress(SageError):
                await anext(stream, None)
        self._end(stream)
