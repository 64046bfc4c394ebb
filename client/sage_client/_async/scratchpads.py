"""Short notes of a thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sage.v1 import memory_service_pb2 as pb
from sage_client._async.transport import AsyncTransport
from sage_client._wire.blocks import scratchpad_from
from sage_client._wire.values import texts_to
from sage_client.models.scratchpads import Scratchpad
from sage_client.retry import Repeat

if TYPE_CHECKING:
    from sage.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub


class AsyncScratchpads:
    """`client.memory.scratchpads`: short notes of an agent for one thread.

    The thread is a conversation or, without one, an agent's own: by default that of `main`.
    """

    def __init__(self, transport: AsyncTransport, stub: MemoryServiceAsyncStub) -> None:
        self._transport = transport
        self._stub = stub

    async def get(self, conversation_id: str = "", *, agent: str = "") -> Scratchpad:
        """Read the scratchpad. One that was never written is empty."""
        request = pb.GetScratchpadRequest(conversation_id=conversation_id, agent=agent)
        response = await self._transport.unary(self._stub.GetScratchpad, request, repeat=Repeat.SAFE)
        return scratchpad_from(response.scratchpad)

    async def write(
        self, items: Iterable[str], conversation_id: str = "", *, agent: str = "", etag: str = ""
    ) -> Scratchpad:
        """Replace the whole scratchpad. Aborted if `etag` is old."""
        request = pb.WriteScratchpadRequest(
            conversation_id=conversation_id, agent=agent, items=texts_to(items), etag=etag
        )
        # Writing the same notes again is safe, but a repeat with an etag would find them changed by itself.
        repeat = Repeat.IF_REFUSED if etag else Repeat.SAFE
        response = await self._transport.unary(self._stub.WriteScratchpad, request, repeat=repeat)
        return scratchpad_from(response.scratchpad)

    async def clear(self, conversation_id: str = "", *, agent: str = "") -> int:
        """Empty the scratchpad. How many notes the attempt that was answered deleted."""
        request = pb.ClearScratchpadRequest(conversation_id=conversation_id, agent=agent)
        response = await self._transport.unary(self._stub.ClearScratchpad, request, repeat=Repeat.SAFE)
        return response.deleted_count
