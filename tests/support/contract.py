"""The contract as its descriptors tell it, and raw calls of its methods: no stub decides what is sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from protovalidate import Validator, Violation

from sage_server.rpc.registry import CONTRACT

METHODS: tuple[MethodDescriptor, ...] = tuple(
    method for file in CONTRACT for service in file.services_by_name.values() for method in service.methods
)
BY_NAME = {method.name: method for method in METHODS}
Metadata = tuple[tuple[str, str], ...]
_VALIDATOR = Validator()


@dataclass(frozen=True)
class Answer:
    """All that a call was answered with."""

    code: grpc.StatusCode
    message: str = ""
    reason: str = ""
    domain: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    violations: tuple[tuple[str, str], ...] = ()
    responses: tuple[bytes, ...] = ()

    @property
    def problem(self) -> str:
        """Why credentials were refused."""
        return dict(self.metadata).get("problem", "")

    @property
    def text(self) -> str:
        """Everything in it that is for people."""
        return " ".join((self.message, *map(str, self.metadata), *map(str, self.violations)))


async def call(
    channel: grpc.aio.Channel,
    method: MethodDescriptor,
    request: bytes | Message = b"",
    metadata: Metadata = (),
    *,
    timeout: float = 30,  # noqa: ASYNC109
) -> Answer:
    """Call a method with these bytes, whatever they are."""
    raw = request if isinstance(request, bytes) else request.SerializeToString()
    path = f"/{method.containing_service.full_name}/{method.name}"
    responses: list[bytes] = []
    try:
        if method.server_streaming:
            streams: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)
            answered = streams(raw, metadata=metadata, timeout=timeout)
            responses.extend([response async for response in answered])
        else:
            responses.append(await unary(channel, path)(raw, metadata=metadata, timeout=timeout))
    except grpc.aio.AioRpcError as error:
        return _refused(error)
    return Answer(grpc.StatusCode.OK, responses=tuple(responses))


async def call_without_message(
    channel: grpc.aio.Channel, method: MethodDescriptor, metadata: Metadata = (), *, end: bool = True
) -> Answer:
    """Call a method and send no message; without `end` one could still come."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    opened: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(path)
    silent = opened(metadata=metadata, timeout=30)
    try:
        if end:
            await silent.done_writing()
        responses = [response async for response in silent]
    except grpc.aio.AioRpcError as error:
        return _refused(error)
    return Answer(grpc.StatusCode.OK, responses=tuple(responses))


def unary(channel: grpc.aio.Channel, path: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    """Any method, known or not."""
    return channel.unary_unary(path)


def request_of(method: MethodDescriptor) -> Any:
    """An empty request of the method's type."""
    return message_factory.GetMessageClass(method.input_type)()


def response_of(method: MethodDescriptor, answer: Answer) -> Any:
    """The only response of a call that went well."""
    assert answer.code is grpc.StatusCode.OK, answer
    return message_factory.GetMessageClass(method.output_type).FromString(answer.responses[0])


def valid_request(method: MethodDescriptor) -> Any:
    """The smallest request that breaks no constraint of the contract."""
    request = request_of(method)
    for _ in range(10):
        violations = _VALIDATOR.collect_violations(request)
        if not violations:
            return request
        for violation in violations:
            _repair(request, violation)
    raise AssertionError(f"{method.full_name}: teach valid_request about {violations[0].proto}")


@dataclass(frozen=True)
class FieldPath:
    """A field of a request, possibly inside a message or a list of messages in it."""

    steps: tuple[FieldDescriptor, ...]

    @property
    def field(self) -> FieldDescriptor:
        return self.steps[-1]

    @property
    def name(self) -> str:
        return ".".join(step.name for step in self.steps)

    def owner(self, request: Any) -> Any:
        """The message that has the field; made on the way if it is not there."""
        for step in self.steps[:-1]:
            inner = getattr(request, step.name)
            if step.is_repeated:
                request = inner[0] if inner else inner.add()
            else:
                inner.SetInParent()
                request = inner
        return request


def fields(message: Descriptor, before: tuple[FieldDescriptor, ...] = ()) -> Iterator[FieldPath]:
    """Every field of a message of the contract and of the messages in it; a map is one field."""
    for field in message.fields:
        path = (*before, field)
        inner = field.message_type
        if inner is None or is_map(field) or not inner.full_name.startswith("sage."):
            yield FieldPath(path)
        elif inner not in {step.message_type for step in before}:
            yield from fields(inner, path)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def is_text(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_STRING


def names_something(field: FieldDescriptor) -> bool:
    """Whether the field holds ids of things that are somebody's. A request id is the caller's own."""
    return is_text(field) and field.name != "request_id" and bool(re.search(r"(^|_)ids?$", field.name))


def tag(number: int, wire_type: int) -> bytes:
    """The key of a field on the wire."""
    return varint(number << 3 | wire_type)


def varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def delimited(number: int, content: bytes) -> bytes:
    """A field with a length, such as a string, with any content."""
    return tag(number, 2) + varint(len(content)) + content


def _refused(error: grpc.aio.AioRpcError) -> Answer:
    pairs = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata())
    details = dict(pairs or ()).get("grpc-status-details-bin", b"")
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for packed in status_pb2.Status.FromString(cast("bytes", details)).details:
        packed.Unpack(info)
        packed.Unpack(bad)
    return Answer(
        code=error.code(),
        message=error.details() or "",
        reason=info.reason,
        domain=info.domain,
        metadata=tuple(sorted(info.metadata.items())),
        violations=tuple((v.field, v.description) for v in bad.field_violations),
    )


def _repair(request: Any, violation: Violation) -> None:
    """Make one constraint hold."""
    found = violation.proto
    elements = list(found.field.elements) if found.field else []
    named = found.rule_id.rpartition(".")[2]
    owner = request
    for index, element in enumerate(elements):
        field = owner.DESCRIPTOR.fields_by_name.get(element.field_name)
        inside = index + 1 < len(elements) or element.subscript is not None
        if field is None:
            _fill(owner, owner.DESCRIPTOR.oneofs_by_name[element.field_name].fields[0], found.message)
            return
        if not inside or field.message_type is None:
            _fill(owner, field, found.message)
            return
        inner = getattr(owner, element.field_name)
        owner = inner if element.subscript is None else inner[element.subscript.value]
    # A rule about a whole message is named after the field that it wants.
    _fill(owner, owner.DESCRIPTOR.fields_by_name[named], found.message)


def _fill(owner: Any, field: FieldDescriptor, wanted: str) -> None:
    value: Any = 1
    if field.message_type is not None:
        value = getattr(owner, field.name)
        if field.is_repeated:
            value.add()
        elif field.message_type.name == "FieldMask":
            _name_a_field(owner, value)
        else:
            value.SetInParent()
        return
    if is_text(field):
        shortest = re.search(r"at least (\d+) characters", wanted)
        value = "x" * int(shortest[1]) if shortest else "x"
        if "UUID" in wanted or names_something(field):
            value = str(uuid4())
    elif field.type == FieldDescriptor.TYPE_BYTES:
        value = b"x"
    if field.is_repeated:
        del getattr(owner, field.name)[:]
        getattr(owner, field.name).append(value)
    else:
        setattr(owner, field.name, value)


def _name_a_field(owner: Any, mask: Any) -> None:
    """The first field that may be in the mask; which ones may is a rule, so it is tried out."""
    for field in owner.DESCRIPTOR.fields:
        mask.paths[:] = [field.name]
        violations = _VALIDATOR.collect_violations(owner)
        if not any(
            v.proto.field and v.proto.field.elements[0].field_name == "update_mask" for v in violations
        ):
            return
