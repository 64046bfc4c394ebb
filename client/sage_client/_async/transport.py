"""The one place that sends calls: credentials, deadlines, retries and errors are decided here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import grpc.aio

from sage_client._wire.failures import error_from
from sage_client.options import ClientOptions, TlsOptions, channel_credentials, channel_options
from sage_client.retry import Attempts, Repeat

Request = TypeVar("Request")
Response = TypeVar("Response")


def open_channel(address: str, *, tls: TlsOptions | bool) -> grpc.aio.Channel:
    """A channel that connects when it is first used."""
    credentials = channel_credentials(tls=tls)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=channel_options(tls=tls))
    return grpc.aio.secure_channel(address, credentials, options=channel_options(tls=tls))


class AsyncTransport:
    """Sends calls of any stub with the client's credentials, deadline and retries.

    Every failure that gRPC reports is raised as a SageError.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._options = options

    async def unary(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        repeat: Repeat,
    ) -> Response:
        """The answer. All attempts send the same request and end by the client's `timeout`."""
        attempts = Attempts(self._options.retry, repeat, self._options.timeout)
        while True:
            try:
                return await method(request, timeout=attempts.remaining(), metadata=self._options.metadata())
            except grpc.RpcError as raised:
                error = error_from(raised)
                wait = attempts.wait_after(error)
                if wait is None:
                    raise error from raised
            await asyncio.sleep(wait)

    async def stream(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        *,
        repeat: Repeat,
    ) -> AsyncIterator[Response]:
        """The messages of the answer. Stopping early cancels the call.

        Nothing is tried again after the first message: the caller would see it twice.
        """
        attempts = Attempts(self._options.retry, repeat, self._options.stream_timeout)
        while True:
            call = method(request, timeout=attempts.remaining(), metadata=self._options.metadata())
            started = False
            try:
                async for message in call:
                    started = True
                    yield message
                return
            except grpc.RpcError as raised:
                error = error_from(raised)
                wait = attempts.wait_after(error)
                if started or wait is None:
                    raise error from raised
            finally:
                call.cancel()
            await asyncio.sleep(wait)
