"""One call on its way through the interceptors."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import grpc
from google.protobuf.message import Message

from sage_server.domain.errors import SageError
from sage_server.domain.identity import Caller, Role

UnaryMethod: TypeAlias = Callable[[Any, Caller], Awaitable[Message]]
StreamMethod: TypeAlias = Callable[[Any, Caller], AsyncIterator[Message]]
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True)
class Method:
    """A method of the contract and what serves it."""

    service: str
    """Example: `sage.v1.ConversationService`."""
    name: str
    request_type: type[Message]
    required_role: Role
    streams: bool
    implementation: UnaryMethod | StreamMethod | None

    @cached_property
    def full_name(self) -> str:
        """As gRPC names it, without the leading slash."""
        return f"{self.service}/{self.name}"

    @cached_property
    def admin(self) -> bool:
        """Whether the method acts for an administrator and not for a user."""
        return self.required_role >= Role.ADMIN


@dataclass(slots=True)
class Call:
    """What is known of a call so far. Interceptors fill it in, in their order."""

    method: Method
    context: Context
    metadata: dict[str, str | bytes]
    raw: bytes = b""
    started: float = field(default_factory=time.perf_counter)
    request_id: str = ""
    caller: Caller | None = None
    request: Message | None = None
    error: SageError | None = None
    code: grpc.StatusCode = grpc.StatusCode.OK
    span: Any = None

    def text(self, key: str) -> str | None:
        """A metadata value, if it was sent and is text."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None


class Interceptor:
    """A stage that every call passes. A stage that leaves a hook out costs nothing there."""

    name: ClassVar[str]
    """As the order is asserted by."""

    async def enter(self, call: Call) -> None:
        """On the way in. Refuses the call by raising a SageError."""

    def leave(self, call: Call) -> None:
        """On the way out, in the reverse order, for every call that got as far as this stage. `call.code` is
        final for the stages outside the error mapping."""
