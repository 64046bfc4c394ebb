"""The client itself: what it is told, and the services that it gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from sage.v1 import agent_service_pb2, conversation_service_pb2
from sage_client._async.admin import AsyncAdmin
from sage_client._async.agent_handle import AsyncAgentHandle
from sage_client._async.agents import MAIN, AsyncAgents
from sage_client._async.conversations import AsyncConversations
from sage_client._async.memory import AsyncMemories
from sage_client._async.stubs import AsyncStubs
from sage_client._async.takeout import AsyncTakeout
from sage_client._async.transport import AsyncConnection, AsyncTransport, open_connection
from sage_client._async.turns import AsyncTurns
from sage_client._async.watch import AsyncWatch
from sage_client._wire.agent_enums import channel_to
from sage_client._wire.times import duration_to, time_to
from sage_client._wire.usage import purpose_to, usage_from
from sage_client.models.events import EventChannel
from sage_client.models.usage import UsagePurpose, UsageRecord
from sage_client.options import (
    DEFAULT_ADDRESS,
    DEFAULT_STREAM_TIMEOUT,
    DEFAULT_TIMEOUT,
    ClientOptions,
    TlsOptions,
    Token,
)
from sage_client.retry import DEFAULT_RETRY, Repeat, RetryPolicy
from sage_client.unset import UNSET, Unset


class AsyncSageClient:
    """A connection to Sage. Make one with `connect`, share it freely, and close it once.

    - `agent("main")`: an agent to talk to. `watch()`: what all agents do. `usage()`: what models were used.
    - `agents`, `turns`, `conversations`, `memory`, `admin`: the services. `takeout`: all of it in a file.
    - `stubs`, `transport`: raw methods for what is not wrapped, and how to send them.
    - `channel`: the gRPC channel below.
    """

    def __init__(
        self, connection: AsyncConnection, options: ClientOptions, stubs: AsyncStubs | None = None
    ) -> None:
        self._connection = connection
        self.channel = connection.channel
        self.options = options
        self._opened = stubs is None
        # Making them takes longer than a call: clients on one channel share them.
        self.stubs = stubs or AsyncStubs(self.channel)
        self.transport = AsyncTransport(options, connection)
        self.agents = AsyncAgents(self.transport, self.stubs.agents)
        self.turns = AsyncTurns(self.transport, self.stubs.agents)
        self.conversations = AsyncConversations(self.transport, self.stubs.conversations, self.stubs.agents)
        self.memory = AsyncMemories(self.transport, self.stubs.memory)
        self.takeout = AsyncTakeout(self.agents, self.memory, self.conversations)
        self.admin = AsyncAdmin(self.transport, self.stubs.admin)

    def agent(self, name: str = MAIN) -> AsyncAgentHandle:
        """One agent by name or id, to talk to: `await client.agent().chat("Good morning!").text()`."""
        return AsyncAgentHandle(self.transport, self.stubs.agents, self.agents, name)

    def watch(
        self,
        *,
        after_event_id: int | None = None,
        channels: Iterable[EventChannel] = (),
        agent: str = "",
        heartbeat_interval: timedelta | None = None,
        deltas: bool = False,
        heartbeats: bool = False,
    ) -> AsyncWatch:
        """What the user's agents do, in all threads and on all replicas, until you leave.

        - `after_event_id`: the `cursor` of an earlier watch, to miss nothing; 0 for all that is kept.
          OutOfRange if it is older than what the server keeps, 24 hours. Default: from now on.
        - `channels`: default: PROACTIVE, what agents do while nobody asked.
        - `agent`: only this one, by name or id.
        - `heartbeat_interval`: how long the server is quiet before it says that it is there. `heartbeats`:
          True to see that too.
        - `deltas`: True for words as models produce them.
        """
        request = agent_service_pb2.WatchEventsRequest(
            after_event_id=after_event_id,
            channels=[channel_to(channel) for channel in channels],
            agent=agent,
            heartbeat_interval=duration_to(heartbeat_interval),
            include_deltas=deltas,
        )
        return AsyncWatch(self.transport, self.stubs.agents, request, heartbeats=heartbeats)

    async def usage(
        self,
        *,
        after: datetime | None = None,
        before: datetime | None = None,
        purpose: UsagePurpose | None = None,
    ) -> tuple[UsageRecord, ...]:
        """What the user's model calls came to, for each day, model and purpose, the newest day first.

        From the day of `after` on, default 30 days ago, and before the day of `before`, default now.
        """
        request = conversation_service_pb2.GetUsageRequest(
            start_time=time_to(after), end_time=time_to(before), purpose=purpose_to(purpose)
        )
        stub = self.stubs.conversations.GetUsage
        response = await self.transport.unary(stub, request, repeat=Repeat.SAFE)
        return tuple(usage_from(record) for record in response.records)

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

        It is cheap, so a backend can make one for each request. Closing it closes nothing: the channel is
        the first client's.
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
        return AsyncSageClient(self._connection, options, self.stubs)

    async def close(self) -> None:
        """Close the channel, if this client opened it. Running calls are cancelled.

        A call afterwards raises ClientClosedError.
        """
        if self._opened:
            await self._connection.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.options.user!r} at {self._connection.address}>"

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

    Nothing is sent yet: a server that is not there shows as Unavailable on the first call, after the retries
    of `retry`. ValueError for an address that is none, such as `http://host`. The variables SAGE_CLIENT_...
    are the command line's; nothing here reads them.

    - `token`: an API key or a JWT, or a function that gives the current one; it is asked for every attempt.
    - `user`: the user that an API key acts for. Not with a JWT, which names its user itself.
    - `tls`: True for the roots that gRPC ships, TlsOptions for own files. Without TLS a token travels in
      the clear, so keep that to the loopback address.
    - `timeout`: seconds that a call may take, its retries included. `stream_timeout`: the same for export,
      for each call of an import, and for taking in a document. A turn or a watch may last longer: it goes
      on with another stream, unless one stays silent for as long.
    """
    options = ClientOptions(
        token=token, user=user, timeout=timeout, stream_timeout=stream_timeout, retry=retry
    )
    return AsyncSageClient(open_connection(address, tls=tls), options)
