# Generated from client/sage_client/_async/turns.py by scripts/sync_client.py: do not edit.
"""Turns that run, or have run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from sage.v1 import agent_service_pb2 as pb
from sage_client._sync.chat import Chat
from sage_client._sync.paging import every
from sage_client._sync.transport import Transport
from sage_client._wire.agent_enums import origin_to, turn_status_to
from sage_client._wire.progress import TurnProgress
from sage_client._wire.turns import turn_from
from sage_client._wire.values import time_range_to
from sage_client.models.page import Page
from sage_client.models.turns import Turn, TurnOrigin, TurnStatus
from sage_client.retry import Repeat

if TYPE_CHECKING:
    from sage.v1.agent_service_pb2_grpc import AgentServiceStub


class Turns:
    """`client.turns`: the turns of all agents, whoever started them."""

    def __init__(self, transport: Transport, stub: AgentServiceStub) -> None:
        self._transport = transport
        self._stub = stub

    def get(self, turn_id: str) -> Turn:
        """Read one turn."""
        request = pb.GetTurnRequest(turn_id=turn_id)
        response = self._transport.unary(self._stub.GetTurn, request, repeat=Repeat.SAFE)
        return turn_from(response.turn)

    def list(
        self,
        *,
        agent: str = "",
        conversation_id: str = "",
        statuses: Iterable[TurnStatus] = (),
        origins: Iterable[TurnOrigin] = (),
        after: datetime | None = None,
        before: datetime | None = None,
        page_size: int = 0,
    ) -> Iterator[Turn]:
        """All turns, or those that all conditions name, the newest first, fetched while you iterate.

        `after` and `before`: only turns that were accepted from `after` on and before `before`.
        """
        fetch = partial(
            self.list_page,
            agent=agent,
            conversation_id=conversation_id,
            statuses=tuple(statuses),
            origins=tuple(origins),
            after=after,
            before=before,
            page_size=page_size,
        )
        return every(fetch)

    def list_page(
        self,
        *,
        page_token: str = "",
        agent: str = "",
        conversation_id: str = "",
        statuses: Iterable[TurnStatus] = (),
        origins: Iterable[TurnOrigin] = (),
        after: datetime | None = None,
        before: datetime | None = None,
        page_size: int = 0,
    ) -> Page[Turn]:
        """One page. A token works only with the conditions and user that it came from."""
        request = pb.ListTurnsRequest(
            page_size=page_size,
            page_token=page_token,
            agent=agent,
            conversation_id=conversation_id,
            statuses=[turn_status_to(status) for status in statuses],
            origins=[origin_to(origin) for origin in origins],
            created=time_range_to(after, before),
        )
        response = self._transport.unary(self._stub.ListTurns, request, repeat=Repeat.SAFE)
        return Page(tuple(turn_from(message) for message in response.turns), response.next_page_token)

    def cancel(self, turn_id: str) -> Turn:
        """Cancel a turn that waits or runs. What it committed stays. One that has ended is given as it is."""
        request = pb.CancelTurnRequest(turn_id=turn_id)
        response = self._transport.unary(self._stub.CancelTurn, request, repeat=Repeat.SAFE)
        return turn_from(response.turn)

    def attach(self, turn_id: str, *, after_event_id: int = 0, deltas: bool = False) -> Chat:
        """The events of a turn, those that happened and those to come, after the last one that you saw.

        Works for turns of conversations and schedules too. OutOfRange if events that it needs are older
        than what the server keeps, 24 hours: read the turn and the items instead.
        """
        progress = TurnProgress(turn_id, after_event_id)
        return Chat(self._transport, self._stub, progress, deltas=deltas)
