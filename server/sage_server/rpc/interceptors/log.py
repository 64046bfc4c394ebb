"""One line a call, without anything that a person wrote."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import grpc

from sage_server.rpc.call import Call, Interceptor

_FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNKNOWN)

_SHOWN = {
    "debug": ("info", "warning"),
    "info": ("info", "warning"),
    "warning": ("warning",),
    "error": (),
}
"""Which lines a setting of the level lets through."""


class Log(Interceptor):
    """Writes the line when the call has ended: ids, sizes, times and outcome.

    The line is made here and not by `logging`, whose records cost as much as the rest of the way in and out.
    Nothing in it needs quoting: names of the contract, numbers, and ids of a checked form.
    """

    name = "log"

    def __init__(self, write: Callable[[str], None], form: str, level: str) -> None:
        self._write = write
        self._levels = _SHOWN[level]
        self._line = _json_line if form == "json" else _text_line
        self._second = 0
        self._time = ""

    def leave(self, call: Call) -> None:
        """Write it."""
        if _level(call) not in self._levels:
            return
        now = time.time()
        if int(now) != self._second:
            self._second = int(now)
            self._time = datetime.fromtimestamp(self._second, UTC).isoformat().removesuffix("+00:00")
        self._write(self._line(call, self._time, int(now % 1 * 1000)))


def _level(call: Call) -> str:
    return "warning" if call.code in _FAULTS else "info"


def _json_line(call: Call, second: str, millis: int) -> str:
    line = (
        f'{{"time": "{second}.{millis:03}+00:00", "level": "{_level(call)}", "logger": "sage.rpc", '
        f'"event": "call", "method": "{call.method.full_name}", "code": "{call.code.name}", '
        f'"ms": {(time.perf_counter() - call.started) * 1000:.2f}, "request_id": "{call.request_id}", '
        f'"request_bytes": {len(call.raw)}'
    )
    if call.caller is not None:
        line += f', "tenant": "{call.caller.tenant}"'
        if call.caller.user is not None:
            line += f', "user": "{call.caller.user}"'
    if call.error is not None:
        line += f', "reason": "{call.error.reason.value}"'
    return line + "}"


def _text_line(call: Call, second: str, _millis: int) -> str:
    caller = "" if call.caller is None or call.caller.user is None else f" user={call.caller.user}"
    reason = "" if call.error is None else f" reason={call.error.reason.value}"
    return (
        f"{second[11:]}Z {_level(call):7} {call.method.full_name} {call.code.name}"
        f" {(time.perf_counter() - call.started) * 1000:.1f} ms{reason}{caller} request_id={call.request_id}"
    )
