"""Every call has an id that the caller, the log and the traces share."""

from __future__ import annotations

import re

from sage_server.domain.ids import new_id
from sage_server.ports.clock import Clock
from sage_server.rpc.call import Call

HEADER = "x-request-id"
_WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestId:
    """Takes the caller's id if it is one, and makes one otherwise."""

    name = "request_id"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def enter(self, call: Call) -> None:
        """Choose the id and tell it to the caller."""
        given = call.text(HEADER)
        call.request_id = given if given and _WELL_FORMED.fullmatch(given) else str(new_id(self._clock.now()))
        call.context.set_trailing_metadata(((HEADER, call.request_id),))

    def leave(self, call: Call) -> None:
        """Nothing to do."""
