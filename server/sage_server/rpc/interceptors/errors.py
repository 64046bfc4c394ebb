"""Turns what was raised into the code that the outer stages see."""

from __future__ import annotations

from sage_server.rpc.call import Call, Interceptor
from sage_server.rpc.errors import STATUS_CODES


class Errors(Interceptor):
    """Maps a refusal to its status code."""

    name = "errors"

    def leave(self, call: Call) -> None:
        """Decide the code."""
        if call.error is not None:
            call.code = STATUS_CODES[call.error.reason]
