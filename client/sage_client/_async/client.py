"""The client itself: what it is told, and the services that it gives."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self

import grpc.aio

from sage_client._async.admin import AsyncAdmin
from sage_client._async.conversations import AsyncConversations
from sage_client._async.memory import AsyncMemories
from sage_client._async.stubs import AsyncStubs
from sage_client._async.transport import AsyncTransport, open_channel
from sage_client.options import (
    DEFAULT_ADDRESS,
    DEFAULT_STREAM_TIMEOUT,
    DEFAULT_TIMEOUT,
    ClientOptions,
    TlsOptions,
    Token,
)
from sage_client.retry import DEFAULT_RETRY, RetryPolicy
from sage_client.unset import UNSET, Unset


class AsyncSageClient:
    """A connection to Sage. Make one with `connect`, share it freely, and close it once.

    - `conversations`, `memory`, `admin`: the services.
    - `stubs`, `transport`: raw methods for what is not wrapped, and how to send them.
    - `channel`: the gRPC channel below.
    """

    def __init__(
        self, channel: grpc.aio.Channel, options: ClientOptions, stubs: AsyncStubs | None = None
    ) -> None:
        self.channel = channel
        self.options = options
        # Making them takes longer than a call: clients on one channel share them.
        self.stubs = stubs or AsyncStubs(channel)
        self.transport = AsyncTransport(options)
        self.conversations = AsyncConversations(self.transport, self.stubs.conversations)
        self.memory = AsyncMemories(self.transport, self.stubs.memory)
        self.admin = AsyncAdmin(self.transport, self.stubs.admin)

    def with_options(
        self,
        *,
        token: Token | Unset | None = UNSET,
        user: str | Unset | None = UNSET,
        timeout: float | Unset = UNSET,
        stream_timeout: float | Unset = UNSET,
        retry: RetryPolicy | Unset = UNSET,
    ) -> AsyncSageClient:
        """A client on the same channel that differs in what is given: `client.with_options(user="maria")`.

        It is cheap, so a backend can make one for each request. Closing either closes the channel of both.
        """
        options = self.options
        if not isinstance(token, Unset):
            options = replace(options, token=token)
        if not isinstance(user, Unset):
            options = replace(options, user=user)
        if not isinstance(timeout, Unset):
            options = replace(options, timeout=timeout)
        if not isinstance(stream_timeout, Unset):
            options = replace(options, stream_timeout=stream_timeout)
        if not isinstance(retry, Unset):
            options = replace(options, retry=retry)
        return AsyncSageClient(self.channel, options, self.stubs)

    async def close(self) -> None:
        """Close the channel. Running calls are cancelled."""
        await self.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def connect(
    address: str = DEFAULT_ADDRESS,
    *,
    token: Token | None = None,
    user: str | None = None,
    tls: TlsOptions | bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    stream_timeout: float = DEFAULT_STREAM_TIMEOUT,
    retry: RetryPolicy = DEFAULT_RETRY,
) -> AsyncSageClient:
    """A client for the server at an address, `host:port` or `unix:/path`.

    Nothing is sent yet: a server that is not there shows as Unavailable on the first call.

    - `token`: an API key or a JWT, or a function that gives the current one; it is asked for every attempt.
    - `user`: the user that an API key acts for. Not with a JWT, which names its user itself.
    - `tls`: True for the roots that gRPC ships, TlsOptions for own files. Without TLS a token travels in
      the clear, so keep that to the loopback address.
    - `timeout`: seconds that a call may take, its retries included. `stream_timeout`: the same for export,
      for each call of an import, and for taking in a document.
    """
    options = ClientOptions(
        token=token, user=user, timeout=timeout, stream_timeout=stream_timeout, retry=retry
    )
    return AsyncSageClient(open_channel(address, tls=tls), options)
