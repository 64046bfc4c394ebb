"""One turn, as it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sage.v1 import agent_service_pb2 as pb
from sage_client._async.event_stream import AsyncEventStream
from sage_client._async.transport import AsyncMessages, AsyncTransport
from sage_client._wire.progress import EventResponse, TurnProgress
from sage_client._wire.turns import turn_from
from sage_client.models.turns import Turn
from sage_client.retry import Repeat

if TYPE_CHECKING:
    from sage.v1.agent_service_pb2_grpc import AgentServiceAsyncStub


class AsyncChat(AsyncEventStream):
    """The events of one turn: TurnAccepted first; TurnDone, TurnFailed or TurnCancelled last.

        async for event in client.agent().chat("What did I promise Anna?"):
            if isinstance(event, TurnMessage):
                print(event.text)

    Nothing is sent before you iterate. Once the turn is accepted it runs to its end, even if you leave; use
    `async with`, or `close`, to leave early. If the connection breaks, the client attaches to the turn again
    by itself: no event is lost and none comes twice, only words of deltas may be missing.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        stub: AgentServiceAsyncStub,
        progress: TurnProgress,
        *,
        deltas: bool,
        begin: Callable[[float], AsyncMessages[EventResponse]] | None = None,
    ) -> None:
        super().__init__(transport, progress)
        self._stub = stub
        self._progress = progress
        self._deltas = deltas
        self._begin = begin

    @property
    def turn_id(self) -> str:
        """The turn. Empty before the first event."""
        return self._progress.turn_id

    @property
    def last_event_id(self) -> int:
        """The last event that was seen: `client.turns.attach` can go on after it, in another process too."""
        return self._progress.last_event_id

    async def text(self) -> str:
        """Wait for the end: all that the agent said, with blank lines between its messages.

        Raises TurnFailedError or TurnCancelledError, with the messages so far, if the turn ended so.
        """
        async for _ in self:
            pass
        return self._progress.text()

    async def cancel(self) -> Turn:
        """Cancel the turn. What it committed stays. One that has ended is given as it is."""
        if not self.turn_id:
            raise RuntimeError("the turn is known after its first event")
        request = pb.CancelTurnRequest(turn_id=self.turn_id)
        response = await self._transport.unary(self._stub.CancelTurn, request, repeat=Repeat.SAFE)
        return turn_from(response.turn)

    def _open(self, timeout: float) -> AsyncMessages[EventResponse]:
        if self._begin is not None and not self.turn_id:
            return self._begin(timeout)
        request = pb.AttachTurnRequest(
            turn_id=self.turn_id, after_event_id=self.last_event_id, include_deltas=self._deltas
        )
        return self._transport.stream_once(self._stub.AttachTurn, request, timeout)
