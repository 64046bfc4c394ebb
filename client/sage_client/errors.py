"""What a failed call raises: one class for each status, and everything that the server said about it."""
# ruff: noqa: N818 -- the classes carry the names of the gRPC statuses, as `except sage_client.NotFound` reads best

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc

from sage_client.models.events import TurnCancelled, TurnFailed


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A field of the request that breaks a constraint of the contract."""

    field: str
    description: str


@dataclass(frozen=True, slots=True)
class Failure:
    """All that is known of a failed call. Only code and message are always there."""

    code: grpc.StatusCode
    message: str
    reason: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    field_violations: tuple[FieldViolation, ...] = ()
    retry_after: float | None = None
    request_id: str | None = None


class SageError(Exception):
    """A call failed. Catch a subclass to tell the statuses apart, and read `reason` to tell why.

    - `code`: the gRPC status.
    - `message`: for people; it may change between versions.
    - `reason`: a name of `sage.v1.ErrorReason` without its prefix, such as `ETAG_MISMATCH`. The names are
      part of the contract. None if the answer did not come from Sage, for example because nobody listens
      at the address.
    - `metadata`: what goes with the reason, such as `{"resource": "conversation"}`.
    - `field_violations`: the fields of the request that break the contract.
    - `retry_after`: seconds after which the server says that another try makes sense.
    - `request_id`: names the call in the server's log.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.code = failure.code
        self.message = failure.message
        self.reason = failure.reason
        self.metadata = failure.metadata
        self.field_violations = failure.field_violations
        self.retry_after = failure.retry_after
        self.request_id = failure.request_id

    def __str__(self) -> str:
        text = f"{self.code.name}: {self.message}"
        for violation in self.field_violations:
            if violation.description not in self.message:
                text += f"; {violation.field}: {violation.description}"
        known = {"reason": self.reason, "request_id": self.request_id}
        extra = ", ".join(f"{name}={value}" for name, value in known.items() if value)
        return f"{text} ({extra})" if extra else text


class Cancelled(SageError):
    """The call was cancelled, on either side."""


class Unknown(SageError):
    """The server failed in a way that it did not name."""


class InvalidArgument(SageError):
    """The request breaks the contract; see `field_violations`."""


class DeadlineExceeded(SageError):
    """The call took longer than its timeout. It may have been carried out all the same."""


class NotFound(SageError):
    """There is no such thing, or it is somebody else's."""


class AlreadyExists(SageError):
    """There is such a thing already."""


class PermissionDenied(SageError):
    """The credentials are valid but do not allow this."""


class ResourceExhausted(SageError):
    """A limit was reached. With `retry_after` it will pass; without, the request never fits."""


class FailedPrecondition(SageError):
    """The resource is not in a state that allows this."""


class Aborted(SageError):
    """The resource has changed since its etag was read. Read it again."""


class OutOfRange(SageError):
    """The call asks for something past the end, or for events that are no longer kept."""


class Unimplemented(SageError):
    """This version of the server does not have the method."""


class Internal(SageError):
    """A fault of the server; its log has the details under `request_id`."""


class Unavailable(SageError):
    """The server, or its database, cannot be reached now. The call may have been carried out."""


class DataLoss(SageError):
    """A stored value cannot be decrypted."""


class Unauthenticated(SageError):
    """No credentials, or none that are valid now."""


class TurnFailedError(SageError):
    """The call went well, but the turn failed: it was accepted, and what it committed stays.

    - `reason`, `message`, `retry_after`: as for a call that failed. `code` is OK.
    - `retryable`: True if sending the message again can help.
    - `event`: the turn's last event.
    - `messages`: what the agent said before.
    """

    def __init__(self, event: TurnFailed, messages: tuple[str, ...]) -> None:
        delay = event.retry_delay
        super().__init__(
            Failure(
                grpc.StatusCode.OK,
                event.message,
                reason=event.reason,
                retry_after=None if delay is None else delay.total_seconds(),
            )
        )
        self.args = (event, messages)
        self.event = event
        self.messages = messages
        self.retryable = event.retryable

    def __str__(self) -> str:
        return f"{self.message} (reason={self.reason}, turn_id={self.event.turn_id})"


class TurnCancelledError(SageError):
    """The call went well, but the turn was cancelled: it was accepted, and what it committed stays.

    - `event`: the turn's last event, with the cause. `code` is OK, and there is no `reason`.
    - `messages`: what the agent said before.
    """

    def __init__(self, event: TurnCancelled, messages: tuple[str, ...]) -> None:
        super().__init__(Failure(grpc.StatusCode.OK, "The turn was cancelled."))
        self.args = (event, messages)
        self.event = event
        self.messages = messages

    def __str__(self) -> str:
        return f"{self.message} (cause={self.event.cause}, turn_id={self.event.turn_id})"


class ClientClosedError(SageError):
    """The client was closed before the call, so nothing was sent. `code` is CANCELLED."""

    def __init__(self) -> None:
        super().__init__(Failure(grpc.StatusCode.CANCELLED, "The client is closed."))
        # What it is made from again where it is copied.
        self.args = ()

    def __str__(self) -> str:
        return self.message


_BY_CODE: dict[grpc.StatusCode, type[SageError]] = {
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNKNOWN: Unknown,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRange,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DATA_LOSS: DataLoss,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
}


def error_for(failure: Failure) -> SageError:
    """The error of the class that belongs to the failure's status."""
    return _BY_CODE.get(failure.code, SageError)(failure)


def cut_short(what: str) -> SageError:
    """The error for a stream that ended well, as far as gRPC knows, but without its last event."""
    return Internal(Failure(grpc.StatusCode.INTERNAL, f"The {what} ended before it was complete."))
