# Generated from client/sage_client/_async/watch.py by scripts/sync_client.py: do not edit.
"""What all of a user's agents do, as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage.v1 import agent_service_pb2 as pb
from sage_client._sync.event_stream import EventStream
from sage_client._sync.transport import Messages, Transport
from sage_client._wire.progress import EventResponse, WatchProgress

if TYPE_CHECKING:
    from sage.v1.agent_service_pb2_grpc import AgentServiceStub


class Watch(EventStream):
    """The events of a user's agents, without end. Use `with`, or `close`, to leave.

    If the connection breaks, it goes on by itself: no event is lost and none comes twice, only words of
    deltas may be missing.
    """

    def __init__(
        self,
        transport: Transport,
        stub: AgentServiceStub,
        request: pb.WatchEventsRequest,
        *,
        heartbeats: bool,
    ) -> None:
        after = request.after_event_id if request.HasField("after_event_id") else None
        progress = WatchProgress(after, heartbeats=heartbeats)
        super().__init__(transport, progress)
        self._stub = stub
        self._request = request
        self._progress = progress

    @property
    def cursor(self) -> int | None:
        """Where to go on: keep it after each event that you are done with, and give it as `after_event_id`.

        None until the server has said where the watch starts.
        """
        return self._progress.cursor

    def _open(self, timeout: float) -> Messages[EventResponse]:
        request = pb.WatchEventsRequest()
        request.CopyFrom(self._request)
        if self.cursor is not None:
            request.after_event_id = self.cursor
        return self._transport.stream_once(self._stub.WatchEvents, request, timeout)
