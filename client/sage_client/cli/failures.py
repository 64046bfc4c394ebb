"""What went wrong, as one line and an exit code: 1 refused or failed, 2 usage, 3 nobody there, 130 Ctrl-C."""

from __future__ import annotations

from sage_client.cli.output import Output
from sage_client.errors import SageError, Unavailable
from sage_client.models.events import TurnFailed

FAILED = 1
USAGE = 2
NOT_THERE = 3
INTERRUPTED = 130

# What the contract says of a field, in the words of the commands.
_PLAINER = {
    "content: must be at least 1 bytes": "it is empty",
    "conversation_id: must be a valid UUID": "that is no id: `sage conversations list` shows them",
    "document_id: must be a valid UUID": "that is no id: `sage docs list` shows them",
}


def show(output: Output, error: SageError, address: str) -> int:
    """Tell about a failed call. The exit code."""
    # Sage gives a reason to every failure of its own.
    absent = isinstance(error, Unavailable) and error.reason is None
    if output.json:
        failure = {
            "code": error.code.name,
            "reason": error.reason,
            "message": error.message,
            "request_id": error.request_id,
            "address": address,
        }
        output.problem_json({"error": dict(failure)})
    elif absent:
        output.problem(_absence(error, address))
    else:
        output.problem(line(error))
    return NOT_THERE if absent else FAILED


def _absence(error: SageError, address: str) -> str:
    if "WRONG_VERSION_NUMBER" in error.message:
        return f"what listens at {address} speaks no TLS. Leave out --tls, --tls-ca and SAGE_CLIENT_TLS."
    if "CERTIFICATE_VERIFY_FAILED" in error.message:
        return (
            f"the certificate of what listens at {address} is not trusted. Give its authority with --tls-ca."
        )
    return (
        f"no Sage server answers at {address}. Start one with `make run` or `sage-server serve`, "
        "or say where it is with --address or SAGE_CLIENT_ADDRESS."
    )


def show_turn(output: Output, event: TurnFailed) -> None:
    """Tell about a turn that failed."""
    again = " Sending the message again can help." if event.retryable else ""
    output.problem(f"the turn failed: {event.message}{again} ({event.reason}, turn {event.turn_id})")


def line(error: SageError) -> str:
    """A failed call in one line."""
    text = _plainer(error)
    for violation in error.field_violations:
        if violation.description not in error.message:
            text += f"; {violation.field}: {violation.description}"
    text = " ".join([text, *getattr(error, "__notes__", [])])
    known = (error.reason or error.code.name, f"request {error.request_id}" if error.request_id else "")
    return f"{text} ({', '.join(filter(None, known))})"


def _plainer(error: SageError) -> str:
    if error.metadata.get("cause") == "encoding":
        return "it is not text in UTF-8"
    return _PLAINER.get(error.message, error.message)
