"""The request as a message, checked against the constraints of the contract."""

from __future__ import annotations

from google.protobuf.message import DecodeError
from protovalidate import Validator, Violation

from sage_server.domain.errors import FieldViolation, Reason, SageError
from sage_server.rpc.call import Call, Interceptor


class Validation(Interceptor):
    """Parses and validates. Parsing is ours and not gRPC's, which would answer INTERNAL."""

    name = "validation"

    def __init__(self) -> None:
        self._validator = Validator()

    async def enter(self, call: Call) -> None:
        """INVALID_ARGUMENT with every field that is wrong, or a request."""
        try:
            request = call.method.request_type.FromString(call.raw)
        except DecodeError:
            name = call.method.request_type.DESCRIPTOR.full_name
            raise SageError(
                Reason.MALFORMED_REQUEST, f"The request is not a {name}.", metadata={"type": name}
            ) from None
        found = self._validator.collect_violations(request)
        if found:
            violations = [FieldViolation(_path(v), v.proto.message) for v in found]
            raise SageError(
                Reason.INVALID_REQUEST,
                "; ".join(_said(v) for v in violations[:5]),
                metadata={"fields": ",".join(dict.fromkeys(v.field for v in violations[:20]))},
                violations=violations,
            )
        call.request = request


def _said(violation: FieldViolation) -> str:
    """A rule about the whole request names no field."""
    return f"{violation.field}: {violation.description}" if violation.field else violation.description


def _path(violation: Violation) -> str:
    """Example: `items[3].text`. A map's key is somebody's text and stays out."""
    parts = []
    for element in violation.proto.field.elements if violation.proto.field else ():
        subscript = element.subscript
        if subscript is None:
            parts.append(element.field_name)
        elif subscript.field == "index":
            parts.append(f"{element.field_name}[{subscript.value}]")
        else:
            parts.append(f"{element.field_name}[…]")
    return ".".join(parts)
