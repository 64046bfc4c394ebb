"""Every call has an id that the caller, the log and the traces share."""

from __future__ import annotations

import os
import re

from sage_server.rpc.call import Call, Interceptor

HEADER = "x-request-id"
_WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestId(Interceptor):
    """Takes the caller's id if it is one, and makes one otherwise."""

    name = "request_id"

    async def enter(self, call: Call) -> None:
        """Choose the id and tell it to the caller."""
        given = call.text(HEADER)
        call.request_id = given if given and _WELL_FORMED.fullmatch(given) else os.urandom(16).hex()
        call.context.set_trailing_metadata(((HEADER, call.request_id),))
