"""A span a call, when OpenTelemetry is configured."""

from __future__ import annotations

from opentelemetry.propagate import extract
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from sage_server.rpc.call import Call, Interceptor


class Tracing(Interceptor):
    """Continues the caller's trace. Attributes are names and ids, never content."""

    name = "tracing"

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def enter(self, call: Call) -> None:
        """Start the span."""
        carrier = {key: value for key, value in call.metadata.items() if isinstance(value, str)}
        call.span = self._tracer.start_span(
            call.method.full_name,
            context=extract(carrier),
            kind=SpanKind.SERVER,
            attributes={
                "rpc.system": "grpc",
                "rpc.service": call.method.service,
                "rpc.method": call.method.name,
                "sage.request_id": call.request_id,
            },
        )

    def leave(self, call: Call) -> None:
        """End it."""
        call.span.set_attribute("rpc.grpc.status_code", call.code.value[0])
        if call.error is not None:
            call.span.set_status(StatusCode.ERROR, call.error.reason.value)
        call.span.end()
