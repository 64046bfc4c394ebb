"""From what gRPC raises to the client's own errors."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError as CallCancelled
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from sage_client._wire.enums import REASON_PREFIX
from sage_client.errors import Failure, FieldViolation, SageError, error_for

__all__ = ["CallCancelled", "cancelled_by_reader", "cancelled_elsewhere", "error_from", "failure_from"]

_DOMAIN = "sage"
_DETAILS = "grpc-status-details-bin"
_REQUEST_ID = "x-request-id"
_FAR_TOO_LARGE = "SERVER: Received message larger than max"
"""What gRPC says of a request of which the server has read no more than the length."""


def error_from(raised: grpc.RpcError, address: str) -> SageError:
    """The error with all that the answer carries. Also for answers that did not come from Sage."""
    return error_for(_named(_failure(raised), address))


def _named(failure: Failure, address: str) -> Failure:
    """With the address, where nobody of Sage answered: what gRPC says of it names none that a user knows."""
    if failure.code is not grpc.StatusCode.UNAVAILABLE or failure.reason is not None:
        return failure
    return replace(failure, message=f"No Sage server answers at {address}: {failure.message}")


def _failure(raised: grpc.RpcError) -> Failure:
    trailing = _trailing(raised)
    details = trailing.get(_DETAILS)
    request_id = trailing.get(_REQUEST_ID)
    return failure_from(
        raised.code(),
        raised.details() or "",
        details if isinstance(details, bytes) else b"",
        request_id if isinstance(request_id, str) else None,
    )


def cancelled_by_reader() -> bool:
    """Whether it is the running task that is being cancelled: gRPC raises the same for a call that somebody
    else has cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def cancelled_elsewhere() -> SageError:
    """For a call that was cancelled while somebody read it."""
    return error_for(failure_from(grpc.StatusCode.CANCELLED, "The call was cancelled.", b"", None))


def failure_from(code: grpc.StatusCode, message: str, details: bytes, request_id: str | None) -> Failure:
    """Read a `google.rpc.Status`. Details that are missing, unknown or broken are left out."""
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for packed in _status(details).details:
        for wanted in (info, bad_request, retry):
            packed.Unpack(wanted)
    reason = info.reason.removeprefix(REASON_PREFIX) if info.domain == _DOMAIN else None
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and message.startswith(_FAR_TOO_LARGE):
        reason = "REQUEST_TOO_LARGE"
    return Failure(
        code=code,
        message=message,
        reason=reason,
        metadata=dict(info.metadata) if info.domain == _DOMAIN else {},
        field_violations=tuple(
            FieldViolation(violation.field, violation.description)
            for violation in bad_request.field_violations
        ),
        retry_after=retry.retry_delay.ToTimedelta().total_seconds()
        if retry.HasField("retry_delay")
        else None,
        request_id=request_id,
    )


def _status(details: bytes) -> status_pb2.Status:
    try:
        return status_pb2.Status.FromString(details)
    except DecodeError:
        # A proxy on the way may have written anything. The status code still holds.
        return status_pb2.Status()


def _trailing(raised: grpc.RpcError) -> dict[str, str | bytes]:
    # The stubs know neither that both clients' metadata are pairs, nor that there may be none.
    pairs = cast("Iterable[tuple[str, str | bytes]] | None", raised.trailing_metadata())
    return dict(pairs or ())
