# Generated from client/sage_client/_async/transport.py by scripts/sync_client.py: do not edit.
"""The one place that sends calls: credentials, deadlines, retries and errors are decided here."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, Self, TypeVar

import grpc

from sage_client._wire.failures import CallCancelled, cancelled_by_reader, cancelled_elsewhere, error_from
from sage_client.errors import ClientClosedError, SageError
from sage_client.options import (
    ClientOptions,
    TlsOptions,
    channel_credentials,
    channel_options,
    checked_address,
)
from sage_client.retry import Attempts, Repeat

Request = TypeVar("Request")
Response = TypeVar("Response")
Message_co = TypeVar("Message_co", covariant=True)


class Connection:
    """A channel, which all clients on it share, and whether it is closed."""

    def __init__(self, address: str, channel: grpc.Channel) -> None:
        self.address = address
        self.channel = channel
        self._closed = False

    def close(self) -> None:
        """Close the channel. Running calls are cancelled, and later ones fail."""
        self._closed = True
        self.channel.close()

    def ensure_open(self) -> None:
        """Raise ClientClosedError if it is closed: the channels of gRPC each raise something else."""
        if self._closed:
            raise ClientClosedError

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if not self._closed:
            warn(f"unclosed client for {self.address}", ResourceWarning, source=self)


def open_connection(address: str, *, tls: TlsOptions | bool) -> Connection:
    """A connection that is made when it is first used."""
    checked_address(address)
    credentials, options = channel_credentials(tls=tls), channel_options(tls=tls)
    if credentials is None:
        return Connection(address, grpc.insecure_channel(address, options=options))
    return Connection(address, grpc.secure_channel(address, credentials, options=options))


class _Call(Protocol[Message_co]):
    def __iter__(self) -> Iterator[Message_co]: ...

    def cancel(self) -> object: ...


class Messages(Generic[Message_co]):
    """The messages of one streaming call, for one reader. Whoever has it may cancel it meanwhile: the reader
    then sees Cancelled."""

    def __init__(self, call: _Call[Message_co], address: str) -> None:
        self._call = call
        self._address = address
        self._messages = iter(call)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message_co:
        try:
            return next(self._messages)
        except grpc.RpcError as raised:
            raise error_from(raised, self._address) from raised
        except CallCancelled:
            if cancelled_by_reader():
                raise
            raise cancelled_elsewhere() from None

    def cancel(self) -> None:
        """End the call. One that has ended is left as it is."""
        self._call.cancel()


class Transport:
    """Sends calls of any stub with the client's credentials, deadline and retries.

    Every failure that gRPC reports is raised as a SageError.
    """

    def __init__(self, options: ClientOptions, connection: Connection) -> None:
        self._options = options
        self._connection = connection

    def unary(
        self,
        method: grpc.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        repeat: Repeat,
    ) -> Response:
        """The answer. All attempts send the same request and end by the client's `timeout`."""
        attempts = Attempts(self._options.retry, repeat, self._options.timeout)
        while True:
            self._connection.ensure_open()
            try:
                return method(request, timeout=attempts.remaining(), metadata=self._options.metadata())
            except grpc.RpcError as raised:
                error = error_from(raised, self._connection.address)
                wait = attempts.wait_after(error)
                if wait is None:
                    raise error from raised
            time.sleep(wait)

    def stream(
        self,
        method: grpc.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        *,
        repeat: Repeat,
    ) -> Iterator[Response]:
        """The messages of the answer. Stopping early cancels the call.

        Nothing is tried again after the first message: the caller would see it twice.
        """
        attempts = Attempts(self._options.retry, repeat, self._options.stream_timeout)
        while True:
            started = False
            messages = self.stream_once(method, request, attempts.remaining())
            try:
                for message in messages:
                    started = True
                    yield message
                return
            except SageError as error:
                wait = attempts.wait_after(error)
                if started or wait is None:
                    raise
            finally:
                messages.cancel()
            time.sleep(wait)

    def stream_once(
        self, method: grpc.UnaryStreamMultiCallable[Request, Response], request: Request, timeout: float
    ) -> Messages[Response]:
        """The messages of one attempt. Who does not read them to the end cancels them."""
        self._connection.ensure_open()
        call = method(request, timeout=timeout, metadata=self._options.metadata())
        return Messages(call, self._connection.address)

    def resumptions(self, *, begun: bool) -> Attempts:
        """The attempts at a stream that goes on where it broke off, until one of them gets further. One that
        had begun is worth more patience than one that may have nobody to answer it."""
        return Attempts(self._options.retry, Repeat.RESUMED, self._options.stream_timeout, begun=begun)
