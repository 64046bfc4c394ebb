"""What can go wrong, as data. `rpc/errors.py` alone knows which status each becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class Reason(Enum):
    """The names of `sage.v1.ErrorReason` that the server can raise, without their prefix."""

    INVALID_REQUEST = "INVALID_REQUEST"
    MALFORMED_REQUEST = "MALFORMED_REQUEST"
    INVALID_PAGE_TOKEN = "INVALID_PAGE_TOKEN"  # noqa: S105
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    NOT_FOUND = "NOT_FOUND"
    ETAG_MISMATCH = "ETAG_MISMATCH"
    CONVERSATION_DELETED = "CONVERSATION_DELETED"
    CONVERSATION_NOT_DELETED = "CONVERSATION_NOT_DELETED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    TOKEN_KEYS_UNAVAILABLE = "TOKEN_KEYS_UNAVAILABLE"  # noqa: S105
    PERMISSION_DENIED = "PERMISSION_DENIED"
    USER_ERASED = "USER_ERASED"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    RATE_LIMITED = "RATE_LIMITED"
    OVERLOADED = "OVERLOADED"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    DATABASE_UNAVAILABLE = "DATABASE_UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    BLOCK_LIMIT_EXCEEDED = "BLOCK_LIMIT_EXCEEDED"
    LIMIT_REACHED = "LIMIT_REACHED"
    MEMORY_READ_ONLY = "MEMORY_READ_ONLY"
    MEMORY_TOKEN_INVALID = "MEMORY_TOKEN_INVALID"  # noqa: S105
    EMBEDDING_DIMENSION_MISMATCH = "EMBEDDING_DIMENSION_MISMATCH"
    EMBEDDING_INVALID = "EMBEDDING_INVALID"
    EMBEDDING_MODEL_MISMATCH = "EMBEDDING_MODEL_MISMATCH"
    EMBEDDING_UNAVAILABLE = "EMBEDDING_UNAVAILABLE"
    DOCUMENT_UNREADABLE = "DOCUMENT_UNREADABLE"
    DOCUMENT_TYPE_UNSUPPORTED = "DOCUMENT_TYPE_UNSUPPORTED"
    DOCUMENT_EMPTY = "DOCUMENT_EMPTY"
    DOCUMENT_TOO_LARGE = "DOCUMENT_TOO_LARGE"
    AGENT_DISABLED = "AGENT_DISABLED"
    AGENT_PROTECTED = "AGENT_PROTECTED"
    AGENT_NOT_OVERLAY = "AGENT_NOT_OVERLAY"
    OVERLAY_NOT_EMPTY = "OVERLAY_NOT_EMPTY"
    OVERLAY_CONFLICT = "OVERLAY_CONFLICT"
    FEATURE_DISABLED = "FEATURE_DISABLED"
    MODEL_UNKNOWN = "MODEL_UNKNOWN"
    TOOL_UNKNOWN = "TOOL_UNKNOWN"
    TURN_BUSY = "TURN_BUSY"
    TURN_QUEUE_FULL = "TURN_QUEUE_FULL"
    EVENT_CURSOR_EXPIRED = "EVENT_CURSOR_EXPIRED"
    EVENT_CURSOR_INVALID = "EVENT_CURSOR_INVALID"
    CONTEXT_BUDGET_EXCEEDED = "CONTEXT_BUDGET_EXCEEDED"
    MODEL_NOT_CONFIGURED = "MODEL_NOT_CONFIGURED"
    TURN_LIMIT_EXCEEDED = "TURN_LIMIT_EXCEEDED"
    MODEL_OUTPUT_INVALID = "MODEL_OUTPUT_INVALID"
    MODEL_OUTPUT_EMPTY = "MODEL_OUTPUT_EMPTY"
    MODEL_REFUSED = "MODEL_REFUSED"
    MODEL_RATE_LIMITED = "MODEL_RATE_LIMITED"
    MODEL_TIMEOUT = "MODEL_TIMEOUT"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    MODEL_REJECTED = "MODEL_REJECTED"
    MODEL_CONTEXT_TOO_LONG = "MODEL_CONTEXT_TOO_LONG"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True)
class FieldViolation:
    """One field of a request and what is wrong with it. Never the field's value."""

    field: str
    description: str


class SageError(Exception):
    """A refusal that a caller may see.

    The message and the metadata go to the caller and to the log, so neither may hold anything that a
    person wrote.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[FieldViolation] = (),
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after


def not_found(resource: str) -> SageError:
    """What is missing and what is somebody else's look the same."""
    return SageError(Reason.NOT_FOUND, f"There is no such {resource}.", metadata={"resource": resource})


def invalid(field: str, description: str) -> SageError:
    """One field that a rule beyond the contract's constraints refuses."""
    return SageError(
        Reason.INVALID_REQUEST,
        f"{field}: {description}",
        metadata={"fields": field},
        violations=[FieldViolation(field, description)],
    )


def at_index(error: SageError, index: int) -> SageError:
    """The same error, about one request of a batch."""
    violations = [
        FieldViolation(f"requests[{index}].{one.field}", one.description) for one in error.violations
    ]
    fields = {"fields": ",".join(one.field for one in violations)} if violations else {}
    message = "; ".join(f"{one.field}: {one.description}" for one in violations) or error.message
    return SageError(
        error.reason,
        message,
        metadata=error.metadata | fields | {"index": str(index)},
        violations=violations,
        retry_after=error.retry_after,
    )


def etag_mismatch(resource: str) -> SageError:
    """Somebody changed the resource since the caller read it."""
    return SageError(
        Reason.ETAG_MISMATCH,
        f"The {resource} has changed since it was read. Read it again.",
        metadata={"resource": resource},
    )


def data_loss(table: str, column: str) -> SageError:
    """A cell that does not open. The row is named in the log, not to the caller."""
    return SageError(
        Reason.DATA_LOSS,
        "A stored value cannot be decrypted. Other values are not affected.",
        metadata={"table": table, "column": column},
    )


def user_erased() -> SageError:
    """The user's key is gone; their name is free again when their rows are gone too."""
    return SageError(
        Reason.USER_ERASED,
        "This user was erased. A new request starts afresh.",
        retry_after=timedelta(seconds=1),
    )


def database_unavailable() -> SageError:
    """The database does not answer; what was asked may not have happened."""
    return SageError(
        Reason.DATABASE_UNAVAILABLE, "The database cannot be reached.", retry_after=timedelta(seconds=1)
    )


def overloaded(message: str) -> SageError:
    """Refused early, before any work."""
    return SageError(Reason.OVERLOADED, message, retry_after=timedelta(seconds=1))
