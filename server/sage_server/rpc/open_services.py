"""Health and reflection, which answer everybody and therefore take little from anybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from sage_server.rpc.call import Context

_PLACES = 16
_LONGEST = 64 * 1024
_M = TypeVar("_M", bound=Message)
_Methods: TypeAlias = "dict[str, grpc.RpcMethodHandler[Any, Any]]"


class Doorway:
    """Where messages of callers without credentials are waited for, so many at once.

    gRPC collects a message of any size up to its limit for the whole server before we see a byte of it. An
    honest one is small and comes with its call. So whoever has waited longest gives way to who comes when all
    places are taken: it bounds the memory and leaves nobody outside.
    """

    def __init__(self, places: int = _PLACES) -> None:
        self._places = places
        self._waiting: dict[asyncio.Task[Any], None] = {}
        self._ousted: set[asyncio.Task[Any]] = set()

    async def next(self, context: Context, kind: type[_M]) -> _M | None:
        """The call's next message; None if it has sent all. Aborts the call if there is none to be had."""
        raw = await self._read(context)
        if raw is None:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many calls wait for their message.")
        if raw is grpc.aio.EOF:
            return None
        if len(raw) > _LONGEST:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"More than {_LONGEST} bytes.")
        try:
            return kind.FromString(raw)
        except DecodeError:
            name = kind.DESCRIPTOR.full_name
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"The request is not a {name}.")

    async def only(self, context: Context, kind: type[_M]) -> _M:
        """The message of a call that sends one."""
        found = await self.next(context, kind)
        if found is None:
            name = kind.DESCRIPTOR.full_name
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"The call ended without a {name}.")
        return found

    async def _read(self, context: Context) -> Any:
        """None if somebody else got the place."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._waiting) >= self._places:
            self._oust()
        self._waiting[task] = None
        try:
            return await context.read()
        except asyncio.CancelledError:
            if task not in self._ousted:
                raise
            return None
        finally:
            self._waiting.pop(task, None)
            self._ousted.discard(task)

    def _oust(self) -> None:
        longest = next(iter(self._waiting))
        del self._waiting[longest]
        self._ousted.add(longest)
        longest.cancel()


def health_handler(servicer: health.aio.HealthServicer, doorway: Doorway) -> grpc.GenericRpcHandler:
    """The library's Check and Watch."""

    async def check(_requests: object, context: Context) -> Message:
        request = await doorway.only(context, health_pb2.HealthCheckRequest)
        answer: Message = await servicer.Check(request, context)
        return answer

    async def watch(_requests: object, context: Context) -> None:
        request = await doorway.only(context, health_pb2.HealthCheckRequest)
        await servicer.Watch(request, context)

    serializer = health_pb2.HealthCheckResponse.SerializeToString
    handlers: _Methods = {
        "Check": grpc.stream_unary_rpc_method_handler(check, response_serializer=serializer),
        "Watch": grpc.stream_stream_rpc_method_handler(watch, response_serializer=serializer),
    }
    return grpc.method_handlers_generic_handler(health.SERVICE_NAME, handlers)


def reflection_handler(services: Sequence[str], doorway: Doorway) -> grpc.GenericRpcHandler:
    """The library's reflection of these services."""
    servicer = reflection.aio.ReflectionServicer(services)

    async def requests(context: Context) -> AsyncIterator[Message]:
        while request := await doorway.next(context, reflection_pb2.ServerReflectionRequest):
            yield request

    async def info(_requests: object, context: Context) -> AsyncIterator[Message]:
        async for answer in servicer.ServerReflectionInfo(requests(context), context):
            yield answer

    serializer = reflection_pb2.ServerReflectionResponse.SerializeToString
    handlers: _Methods = {
        "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(info, response_serializer=serializer)
    }
    return grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, handlers)
