"""How far the events of a stream were seen, so that another stream can go on from there."""

from __future__ import annotations

from typing import Protocol

from sage.v1 import turn_event_pb2 as pb
from sage_client._wire.events import event_from
from sage_client.errors import TurnCancelledError, TurnFailedError, cut_short
from sage_client.models.events import TurnCancelled, TurnDone, TurnEvent, TurnFailed, TurnMessage


class EventResponse(Protocol):
    """A message of any stream that shows turns."""

    @property
    def event(self) -> pb.TurnEvent:
        """The event that it carries."""


class Progress(Protocol):
    """What was seen of a stream of events, over all the attempts at it."""

    @property
    def begun(self) -> bool:
        """True if there is something to go on with."""

    @property
    def ended(self) -> bool:
        """True if no event follows."""

    def take(self, message: pb.TurnEvent) -> TurnEvent | None:
        """The event; None if it was seen before, if its kind is not known, or if it is not to be shown."""

    def take_end(self) -> None:
        """The stream ended well. Raises Internal if it should have gone on."""


class TurnProgress:
    """What was seen of one turn."""

    def __init__(self, turn_id: str = "", after_event_id: int = 0) -> None:
        self.turn_id = turn_id
        self.last_event_id = after_event_id
        self.ended = False
        self._begun_after = after_event_id
        self._messages: list[str] = []
        self._last: TurnDone | TurnFailed | TurnCancelled | None = None

    @property
    def begun(self) -> bool:
        """Whether the turn is known."""
        return bool(self.turn_id)

    def take(self, message: pb.TurnEvent) -> TurnEvent | None:
        """The event; None if it was seen before, if its kind is not known, and for heartbeats."""
        self.turn_id = message.turn_id or self.turn_id
        if message.event_id:
            if message.event_id <= self.last_event_id:
                return None
            self.last_event_id = message.event_id
        if message.WhichOneof("event") == "heartbeat":
            return None
        event = event_from(message)
        if isinstance(event, TurnMessage):
            self._messages.append(event.text)
        elif isinstance(event, TurnDone | TurnFailed | TurnCancelled):
            self._last, self.ended = event, True
        return event

    def take_end(self) -> None:
        """The stream ended well. Raises Internal unless it began after the last event of the turn."""
        if not 0 < self._begun_after == self.last_event_id:
            raise cut_short("turn")
        self.ended = True

    def text(self) -> str:
        """All messages, with blank lines between them. Raises if the turn did not end well."""
        messages = tuple(self._messages)
        if isinstance(self._last, TurnFailed):
            raise TurnFailedError(self._last, messages)
        if isinstance(self._last, TurnCancelled):
            raise TurnCancelledError(self._last, messages)
        if not self.ended:
            raise cut_short("turn")
        return "\n\n".join(messages)


class WatchProgress:
    """What was seen of all turns. The cursor is None until the stream has said where it starts."""

    ended = False

    def __init__(self, after_event_id: int | None, *, heartbeats: bool) -> None:
        self.cursor = after_event_id
        self._heartbeats = heartbeats

    @property
    def begun(self) -> bool:
        """Whether the place in the stream is known."""
        return self.cursor is not None

    def take(self, message: pb.TurnEvent) -> TurnEvent | None:
        """The event; None if it was seen before, if its kind is not known, or for a hidden heartbeat."""
        if message.WhichOneof("event") == "heartbeat":
            self.cursor = max(self.cursor or 0, message.heartbeat.last_event_id)
            return event_from(message) if self._heartbeats else None
        if message.event_id:
            if self.cursor is not None and message.event_id <= self.cursor:
                return None
            self.cursor = message.event_id
        return event_from(message)

    def take_end(self) -> None:
        """Raises Internal: a watch has no end."""
        raise cut_short("watch")
