"""Every call's way in and out: through the interceptors, to the method, and back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import cast

import grpc

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.identity import Caller
from sage_server.rpc.call import Call, Context, Interceptor, Method, StreamMethod, UnaryMethod
from sage_server.rpc.deadlines import DeadlineWatch
from sage_server.rpc.errors import internal, status_details
from sage_server.rpc.interceptors import ORDER
from sage_server.rpc.interceptors.request_id import HEADER as REQUEST_ID


@dataclass(frozen=True)
class Deadlines:
    """The longest that a call may take, in seconds, whatever the caller asks for."""

    unary: float
    stream: float


class Pipeline:
    """Makes gRPC handlers of methods. The interceptors are composed once, not at every call."""

    def __init__(self, interceptors: Sequence[Interceptor], deadlines: Deadlines) -> None:
        names = [interceptor.name for interceptor in interceptors]
        if names != [name for name in ORDER if name in names]:
            raise ValueError(f"interceptors out of order: {names}")
        self._enter = [(n, i.enter) for n, i in enumerate(interceptors) if _overrides(i, "enter")]
        self._leave_from = [
            [i.leave for i in reversed(interceptors[:reached]) if _overrides(i, "leave")]
            for reached in range(len(interceptors) + 1)
        ]
        self._deadlines = deadlines
        self._watch = DeadlineWatch()

    def handler(self, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
        """A handler that begins before the request is there: a stage waits for it, as bytes.

        To gRPC every method streams its requests: of the others it takes the message itself.
        """
        if method.streams:
            # gRPC looks for an async generator function, so this cannot simply return one.
            async def stream(_requests: object, context: Context) -> AsyncIterator[bytes]:
                async with contextlib.aclosing(self._stream(method, context)) as messages:
                    async for message in messages:
                        yield message

            return grpc.stream_stream_rpc_method_handler(stream)

        async def unary(_requests: object, context: Context) -> bytes:
            return await self._unary(method, context)

        return grpc.stream_unary_rpc_method_handler(unary)

    async def _unary(self, method: Method, context: Context) -> bytes:
        call = Call(method, context, _metadata(context))
        reached = 0
        response = b""
        try:
            self._watch.add(call, self._deadlines.unary)
            for position, enter in self._enter:
                reached = position
                await enter(call)
            reached = -1
            implementation = cast("UnaryMethod", _implemented(method))
            answer = await implementation(call.request, _caller(call))
            response = answer.SerializeToString()
        except asyncio.CancelledError:
            if not self._watch.expired(call):
                call.code = grpc.StatusCode.CANCELLED
                raise
            call.error = _overdue(self._deadlines.unary)
        except Exception as error:  # noqa: BLE001
            call.error = error if isinstance(error, SageError) else internal(error, call.request_id)
        finally:
            self._watch.remove(call)
            for leave in self._leave_from[reached]:
                leave(call)
        if call.error is not None:
            await _abort(call, call.error)
        return response

    async def _stream(self, method: Method, context: Context) -> AsyncGenerator[bytes]:
        call = Call(method, context, _metadata(context))
        reached = 0
        closed = False
        try:
            self._watch.add(call, self._deadlines.stream)
            for position, enter in self._enter:
                reached = position
                await enter(call)
            reached = -1
            implementation = cast("StreamMethod", _implemented(method))
            async for message in implementation(call.request, _caller(call)):
                yield message.SerializeToString()
        except (asyncio.CancelledError, GeneratorExit) as end:
            if not self._watch.expired(call):
                call.code = grpc.StatusCode.CANCELLED
                raise
            call.error = _overdue(self._deadlines.stream)
            closed = isinstance(end, GeneratorExit)
        except Exception as error:  # noqa: BLE001
            call.error = error if isinstance(error, SageError) else internal(error, call.request_id)
        finally:
            self._watch.remove(call)
            for leave in self._leave_from[reached]:
                leave(call)
        if call.error is not None:
            # Nobody is left to take the exception of a generator that was closed; the status is sent.
            with contextlib.suppress(*((grpc.aio.AbortError,) if closed else ())):
                await _abort(call, call.error)


def _overdue(limit: float) -> SageError:
    return SageError(
        Reason.DEADLINE_EXCEEDED, "The call took too long.", metadata={"limit_seconds": f"{limit:g}"}
    )


def _metadata(context: Context) -> dict[str, str | bytes]:
    return dict(context.invocation_metadata() or ())


def _caller(call: Call) -> Caller:
    assert call.caller is not None
    return call.caller


def _implemented(method: Method) -> object:
    if method.implementation is None:
        raise SageError(
            Reason.NOT_IMPLEMENTED,
            f"This server does not have {method.name} yet.",
            metadata={"method": method.full_name},
        )
    return method.implementation


async def _abort(call: Call, error: SageError) -> None:
    await call.context.abort(
        call.code,
        error.message,
        (("grpc-status-details-bin", status_details(error)), (REQUEST_ID, call.request_id)),
    )


def _overrides(interceptor: Interceptor, hook: str) -> bool:
    return getattr(type(interceptor), hook) is not getattr(Interceptor, hook)
