"""From what went wrong to the status that a caller sees. The only place that knows both."""

from __future__ import annotations

import logging

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from sage_server.domain.errors import Reason, SageError

DOMAIN = "sage"
_Code = grpc.StatusCode
_log = logging.getLogger("sage.rpc")

STATUS_CODES = {
    Reason.INVALID_REQUEST: _Code.INVALID_ARGUMENT,
    Reason.MALFORMED_REQUEST: _Code.INVALID_ARGUMENT,
    Reason.INVALID_PAGE_TOKEN: _Code.INVALID_ARGUMENT,
    Reason.REQUEST_ID_REUSED: _Code.INVALID_ARGUMENT,
    Reason.NOT_FOUND: _Code.NOT_FOUND,
    Reason.ETAG_MISMATCH: _Code.ABORTED,
    Reason.CONVERSATION_DELETED: _Code.FAILED_PRECONDITION,
    Reason.CONVERSATION_NOT_DELETED: _Code.FAILED_PRECONDITION,
    Reason.UNAUTHENTICATED: _Code.UNAUTHENTICATED,
    Reason.TOKEN_KEYS_UNAVAILABLE: _Code.UNAVAILABLE,
    Reason.PERMISSION_DENIED: _Code.PERMISSION_DENIED,
    Reason.USER_ERASED: _Code.FAILED_PRECONDITION,
    Reason.REQUEST_TOO_LARGE: _Code.RESOURCE_EXHAUSTED,
    Reason.RATE_LIMITED: _Code.RESOURCE_EXHAUSTED,
    Reason.OVERLOADED: _Code.RESOURCE_EXHAUSTED,
    Reason.SHUTTING_DOWN: _Code.UNAVAILABLE,
    Reason.DEADLINE_EXCEEDED: _Code.DEADLINE_EXCEEDED,
    Reason.DATABASE_UNAVAILABLE: _Code.UNAVAILABLE,
    Reason.DATA_LOSS: _Code.DATA_LOSS,
    Reason.NOT_IMPLEMENTED: _Code.UNIMPLEMENTED,
    Reason.ALREADY_EXISTS: _Code.ALREADY_EXISTS,
    Reason.BLOCK_LIMIT_EXCEEDED: _Code.FAILED_PRECONDITION,
    Reason.LIMIT_REACHED: _Code.FAILED_PRECONDITION,
    Reason.MEMORY_READ_ONLY: _Code.FAILED_PRECONDITION,
    Reason.MEMORY_TOKEN_INVALID: _Code.INVALID_ARGUMENT,
    Reason.EMBEDDING_DIMENSION_MISMATCH: _Code.INVALID_ARGUMENT,
    Reason.EMBEDDING_INVALID: _Code.INVALID_ARGUMENT,
    Reason.EMBEDDING_MODEL_MISMATCH: _Code.FAILED_PRECONDITION,
    Reason.EMBEDDING_UNAVAILABLE: _Code.UNAVAILABLE,
    Reason.DOCUMENT_UNREADABLE: _Code.INVALID_ARGUMENT,
    Reason.DOCUMENT_TYPE_UNSUPPORTED: _Code.INVALID_ARGUMENT,
    Reason.DOCUMENT_EMPTY: _Code.INVALID_ARGUMENT,
    Reason.DOCUMENT_TOO_LARGE: _Code.INVALID_ARGUMENT,
    Reason.AGENT_DISABLED: _Code.FAILED_PRECONDITION,
    Reason.AGENT_PROTECTED: _Code.FAILED_PRECONDITION,
    Reason.AGENT_NOT_OVERLAY: _Code.FAILED_PRECONDITION,
    Reason.OVERLAY_NOT_EMPTY: _Code.FAILED_PRECONDITION,
    Reason.OVERLAY_CONFLICT: _Code.ABORTED,
    Reason.FEATURE_DISABLED: _Code.FAILED_PRECONDITION,
    Reason.MODEL_UNKNOWN: _Code.INVALID_ARGUMENT,
    Reason.TOOL_UNKNOWN: _Code.INVALID_ARGUMENT,
    Reason.TURN_BUSY: _Code.ABORTED,
    Reason.TURN_QUEUE_FULL: _Code.RESOURCE_EXHAUSTED,
    Reason.EVENT_CURSOR_EXPIRED: _Code.OUT_OF_RANGE,
    Reason.EVENT_CURSOR_INVALID: _Code.INVALID_ARGUMENT,
    Reason.CONTEXT_BUDGET_EXCEEDED: _Code.FAILED_PRECONDITION,
    Reason.MODEL_NOT_CONFIGURED: _Code.FAILED_PRECONDITION,
    Reason.TURN_LIMIT_EXCEEDED: _Code.FAILED_PRECONDITION,
    Reason.MODEL_OUTPUT_INVALID: _Code.FAILED_PRECONDITION,
    Reason.MODEL_OUTPUT_EMPTY: _Code.FAILED_PRECONDITION,
    Reason.MODEL_REFUSED: _Code.FAILED_PRECONDITION,
    Reason.MODEL_RATE_LIMITED: _Code.RESOURCE_EXHAUSTED,
    Reason.MODEL_TIMEOUT: _Code.UNAVAILABLE,
    Reason.MODEL_UNAVAILABLE: _Code.UNAVAILABLE,
    Reason.MODEL_REJECTED: _Code.FAILED_PRECONDITION,
    Reason.MODEL_CONTEXT_TOO_LONG: _Code.FAILED_PRECONDITION,
    Reason.INTERNAL: _Code.INTERNAL,
}


def internal(error: Exception, request_id: str) -> SageError:
    """A fault of ours: a fixed text for the caller, the whole trace for the log."""
    _log.error("a call failed unexpectedly", exc_info=error, extra={"request_id": request_id})
    return SageError(
        Reason.INTERNAL, "Something went wrong on the server.", metadata={"request_id": request_id}
    )


def status_details(error: SageError) -> bytes:
    """The google.rpc.Status of `grpc-status-details-bin`."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(
            reason=f"ERROR_REASON_{error.reason.value}", domain=DOMAIN, metadata=error.metadata
        )
    ]
    if error.violations:
        details.append(
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
                    for v in error.violations
                ]
            )
        )
    if error.retry_after is not None:
        delay = Duration()
        delay.FromTimedelta(error.retry_after)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(code=STATUS_CODES[error.reason].value[0], message=error.message)
    for detail in details:
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    serialized: bytes = status.SerializeToString()
    return serialized
