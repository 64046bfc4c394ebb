"""The bytes of the request."""

from __future__ import annotations

import grpc

from sage_server.domain.errors import Reason, SageError
from sage_server.rpc.call import Call, Interceptor


class Message(Interceptor):
    """Waits for them. gRPC would do so before our code runs, and leave a call that ends without a message
    unanswered until its caller gives up."""

    name = "message"

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def enter(self, call: Call) -> None:
        """INVALID_ARGUMENT if the caller has sent all and it was not a message, RESOURCE_EXHAUSTED if it is
        too large."""
        raw: object = await call.context.read()
        if raw is grpc.aio.EOF:
            raise _missing(call)
        assert isinstance(raw, bytes)
        if len(raw) > self._max_bytes:
            raise _too_large(self._max_bytes)
        call.raw = raw


def _missing(call: Call) -> SageError:
    name = call.method.request_type.DESCRIPTOR.full_name
    return SageError(Reason.MALFORMED_REQUEST, f"The call ended without a {name}.", metadata={"type": name})


def _too_large(limit: int) -> SageError:
    return SageError(
        Reason.REQUEST_TOO_LARGE,
        f"The request is larger than {limit} bytes.",
        metadata={"limit_bytes": str(limit)},
    )
