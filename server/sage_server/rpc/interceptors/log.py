"""One line a call, without anything that a person wrote."""

from __future__ import annotations

import logging
import time

import grpc

from sage_server.rpc.call import Call

_log = logging.getLogger("sage.rpc")
_FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNKNOWN)


class Log:
    """Writes the line when the call has ended."""

    name = "log"

    async def enter(self, call: Call) -> None:
        """Nothing to do."""

    def leave(self, call: Call) -> None:
        """Ids, sizes, times and outcome."""
        level = logging.WARNING if call.code in _FAULTS else logging.INFO
        if not _log.isEnabledFor(level):
            return
        fields: dict[str, object] = {
            "method": call.method.full_name,
            "code": call.code.name,
            "ms": round((time.perf_counter() - call.started) * 1000, 2),
            "request_id": call.request_id,
            "request_bytes": len(call.raw),
        }
        if call.caller is not None:
            fields["tenant"] = call.caller.tenant
            fields["user"] = call.caller.user
        if call.error is not None:
            fields["reason"] = call.error.reason.value
        _log.log(level, "call", extra=fields)
