"""Every call's way in and out: through the interceptors, to the method, and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import grpc

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.identity import Caller
from sage_server.rpc.call import Call, Context, Interceptor, Method, StreamMethod, UnaryMethod
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
        self._interceptors = tuple(interceptors)
        self._deadlines = deadlines

    def handler(self, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
        """A handler that takes the request as bytes: parsing belongs to validation."""
        if method.streams:
            # gRPC looks for an async generator function, so this cannot simply return one.
            async def stream(raw: bytes, context: Context) -> AsyncIterator[bytes]:
                async with aclosing(self._stream(method, raw, context)) as messages:
                    async for message in messages:
                        yield message

            return grpc.unary_stream_rpc_method_handler(stream)

        async def unary(raw: bytes, context: Context) -> bytes:
            return await self._unary(method, raw, context)

        return grpc.unary_unary_rpc_method_handler(unary)

    async def _unary(self, method: Method, raw: bytes, context: Context) -> bytes:
        call = Call(method, context, raw, _metadata(context))
        entered = 0
        response = b""
        try:
            async with asyncio.timeout(_seconds(context, self._deadlines.unary)):
                for interceptor in self._interceptors:
                    await interceptor.enter(call)
                    entered += 1
                implementation = cast("UnaryMethod", _implemented(method))
                answer = await implementation(call.request, _caller(call))
                response = answer.SerializeToString()
        except asyncio.CancelledError:
            call.code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:  # noqa: BLE001
            call.error = self._refusal(error, call)
        finally:
            self._leave(call, entered)
        if call.error is not None:
            await _abort(call, call.error)
        return response

    async def _stream(self, method: Method, raw: bytes, context: Context) -> AsyncGenerator[bytes]:
        call = Call(method, context, raw, _metadata(context))
        entered = 0
        try:
            async with asyncio.timeout(_seconds(context, self._deadlines.stream)):
                for interceptor in self._interceptors:
                    await interceptor.enter(call)
                    entered += 1
                implementation = cast("StreamMethod", _implemented(method))
                async for message in implementation(call.request, _caller(call)):
                    yield message.SerializeToString()
        except (asyncio.CancelledError, GeneratorExit):
            call.code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:  # noqa: BLE001
            call.error = self._refusal(error, call)
        finally:
            self._leave(call, entered)
        if call.error is not None:
            await _abort(call, call.error)

    def _refusal(self, error: Exception, call: Call) -> SageError:
        if isinstance(error, SageError):
            return error
        if isinstance(error, TimeoutError):
            limit = self._deadlines.stream if call.method.streams else self._deadlines.unary
            return SageError(
                Reason.DEADLINE_EXCEEDED,
                "The call took too long.",
                metadata={"limit_seconds": f"{limit:g}"},
            )
        return internal(error, call.request_id)

    def _leave(self, call: Call, entered: int) -> None:
        # Stages from the error mapping outwards see every call, also one that a later stage refused.
        for interceptor in reversed(self._interceptors[:entered]):
            interceptor.leave(call)


def _metadata(context: Context) -> dict[str, str | bytes]:
    return dict(context.invocation_metadata() or ())


def _seconds(context: Context, limit: float) -> float:
    """The caller's deadline, but not longer than the limit."""
    left = context.time_remaining()
    return limit if left is None else min(left, limit)


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
