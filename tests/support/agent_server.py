"""A small AgentService on a real socket that answers as it is told, and breaks its streams."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Never

import grpc
import grpc.aio
import protovalidate
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from sage.v1 import agent_service_pb2, conversation_service_pb2, turn_event_pb2

Context = grpc.aio.ServicerContext[Any, Any]
METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for service in (
        agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"],
        conversation_service_pb2.DESCRIPTOR.services_by_name["ConversationService"],
    )
    for method in service.methods
}


@dataclass(frozen=True)
class Break:
    """How a stream goes wrong after so many messages. Without a code it ends well, only too early."""

    after: int
    code: grpc.StatusCode | None = grpc.StatusCode.UNAVAILABLE
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    hang: bool = False
    pause: float = 0.0

    async def happen(self, context: Context) -> None:
        if self.hang:
            await asyncio.Event().wait()
        await asyncio.sleep(self.pause)
        if self.code is not None:
            await self._abort(context, self.code)

    async def _abort(self, context: Context, code: grpc.StatusCode) -> Never:
        status = status_pb2.Status(code=code.value[0], message="told to fail")
        if self.reason:
            info = error_details_pb2.ErrorInfo(domain="sage", reason=f"ERROR_REASON_{self.reason}")
            info.metadata.update(self.metadata)
            status.details.append(_packed(info))
        if self.retry_after is not None:
            delay = Duration(nanos=int(self.retry_after * 1e9))
            status.details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
        await context.abort(code, "told to fail", (("grpc-status-details-bin", status.SerializeToString()),))


@dataclass
class AgentServer(grpc.GenericRpcHandler):
    """Shows `log` to every stream that asks for it, from where it asks, and breaks one after the other.

    Other methods answer with what is scripted, or with an empty message. A request that breaks the contract
    is INVALID_ARGUMENT. `overlap` is how many events a stream that continues shows once more.
    """

    log: Sequence[turn_event_pb2.TurnEvent] = ()
    breaks: list[Break] = field(default_factory=list)
    overlap: int = 0
    answers: dict[str, deque[Message]] = field(default_factory=dict)
    fail: list[grpc.StatusCode] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    address: str = ""

    def script(self, *answers: Message) -> None:
        for answer in answers:
            method = type(answer).DESCRIPTOR.name.removesuffix("Response")
            self.answers.setdefault(method, deque()).append(answer)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        method = METHODS[handler_call_details.method]
        response = GetMessageClass(method.output_type)
        parse = GetMessageClass(method.input_type).FromString

        async def unary(request: Message, context: Context) -> Message:
            await self._enter(request, context)
            scripted = self.answers.get(method.name)
            return scripted.popleft() if scripted else response()

        async def stream(request: Message, context: Context) -> AsyncIterator[Message]:
            await self._enter(request, context)
            trouble = self.breaks.pop(0) if self.breaks else None
            try:
                for count, event in enumerate(self._wanted(request)):
                    if trouble is not None and count == trouble.after:
                        break
                    yield response(event=event)
                if trouble is not None:
                    await trouble.happen(context)
            except (asyncio.CancelledError, GeneratorExit):  # left while we waited, or between events
                self.cancelled.set()
                raise

        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, parse, response.SerializeToString)
        return grpc.unary_unary_rpc_method_handler(unary, parse, response.SerializeToString)

    async def _enter(self, request: Message, context: Context) -> None:
        self.seen.append(request)
        if self.fail:
            await context.abort(self.fail.pop(0), "told to fail")
        violations = protovalidate.collect_violations(request)
        if violations:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, violations[0].proto.message)

    def _wanted(self, request: Message) -> Sequence[turn_event_pb2.TurnEvent]:
        after = getattr(request, "after_event_id", 0)
        if not after:
            return self.log
        # Words that came before are not repeated.
        stored = [event for event in self.log if event.event_id]
        seen = sum(event.event_id <= after for event in stored)
        wanted = stored[max(0, seen - self.overlap) :]
        if isinstance(request, agent_service_pb2.WatchEventsRequest):
            start = turn_event_pb2.TurnHeartbeat(last_event_id=after)
            return [turn_event_pb2.TurnEvent(heartbeat=start), *wanted]
        return wanted


@asynccontextmanager
async def running(handler: AgentServer) -> AsyncIterator[grpc.aio.Server]:
    """The handler on a port of its own, until the block ends or somebody stops it."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    handler.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield server
    finally:
        await server.stop(None)


def _packed(detail: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed
