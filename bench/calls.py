"""Calls with as little client as possible: the same few lines for a Sage server and for a bare one."""

from __future__ import annotations

from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message

from bench.runner import Work

Metadata: TypeAlias = tuple[tuple[str, str], ...]
_SERVICE = "/sage.v1.ConversationService/"
_SECONDS = 30.0


class Caller:
    """Calls a method with bytes and gets bytes."""

    def __init__(self, channel: grpc.aio.Channel, method: str) -> None:
        self._call: Any = channel.unary_unary(_SERVICE + method)

    async def __call__(self, request: bytes, metadata: Metadata) -> bytes:
        answer: bytes = await self._call(request, metadata=metadata, timeout=_SECONDS)
        return answer

    def repeating(self, request: Message, metadata: Metadata) -> Work:
        """The same call again and again."""
        raw = request.SerializeToString()

        async def work(_worker: int) -> object:
            return await self(raw, metadata)

        return work
