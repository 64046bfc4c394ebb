"""The methods of the contract, joined to the servicers that have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

from sage.v1 import (
    admin_service_pb2,
    agent_service_pb2,
    conversation_service_pb2,
    memory_service_pb2,
    schedule_service_pb2,
    task_service_pb2,
)
from sage_server.domain.identity import Role
from sage_server.rpc.call import Method

CONTRACT: tuple[FileDescriptor, ...] = (
    agent_service_pb2.DESCRIPTOR,
    memory_service_pb2.DESCRIPTOR,
    conversation_service_pb2.DESCRIPTOR,
    schedule_service_pb2.DESCRIPTOR,
    task_service_pb2.DESCRIPTOR,
    admin_service_pb2.DESCRIPTOR,
)
_ADMIN = "AdminService"
_OPERATOR_ONLY = frozenset({"RotateRootKey", "GetJobStats", "ListDeadJobs", "RetryDeadJob"})


def methods(servicers: Mapping[str, Sequence[object]]) -> list[Method]:
    """Every method of the contract. `servicers` is keyed by the name of the service; several may share one.

    Raises if a servicer has a public method that the contract does not know: it could never be called.
    """
    found = [
        _method(method, servicers.get(service.name, ()))
        for file in CONTRACT
        for service in file.services_by_name.values()
        for method in service.methods
    ]
    for service, parts in servicers.items():
        known = {_snake_case(method.name) for method in found if method.service.endswith(f".{service}")}
        public = {name for part in parts for name in vars(type(part)) if not name.startswith("_")}
        if public - known:
            raise TypeError(f"{service} has no {', '.join(sorted(public - known))}")
    return found


def _method(descriptor: MethodDescriptor, servicers: Sequence[object]) -> Method:
    service = descriptor.containing_service
    if descriptor.client_streaming:
        raise TypeError(f"{descriptor.full_name} streams from the client, which gRPC-Web cannot")
    name = _snake_case(descriptor.name)
    implementation: Any = next((getattr(part, name) for part in servicers if hasattr(part, name)), None)
    return Method(
        service=service.full_name,
        name=descriptor.name,
        request_type=message_factory.GetMessageClass(descriptor.input_type),
        required_role=_required_role(service.name, descriptor.name),
        streams=descriptor.server_streaming,
        implementation=implementation,
    )


def _required_role(service: str, method: str) -> Role:
    if service != _ADMIN:
        return Role.USER
    return Role.OPERATOR if method in _OPERATOR_ONLY else Role.ADMIN


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
