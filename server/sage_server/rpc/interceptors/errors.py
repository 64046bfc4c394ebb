"""Turns what was raised into the code that the outer stages see."""

from __future__ import annotations

from sage_server.rpc.call import Call
from sage_server.rpc.errors import STATUS_CODES


class Errors:
    """Maps a refusal to its status code."""

    name = "errors"

    async def enter(self, call: Call) -> None:
        """Nothing to do."""

    def leave(self, call: Call) -> None:
        """Decide the code."""
        if call.error is not None:
            call.code = STATUS_CODES[call.error.reason]
