"""MemoryService, the scratchpads: decode, one call, encode."""

from __future__ import annotations

from uuid import UUID

from sage.v1 import memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_server.domain.identity import Caller
from sage_server.domain.scratchpads import Scratchpad
from sage_server.rpc.mapping import to_timestamp
from sage_server.services.scratchpads import Scratchpads


class ScratchpadServicer:
    """Notes of threads."""

    def __init__(self, scratchpads: Scratchpads) -> None:
        self._scratchpads = scratchpads

    async def get_scratchpad(
        self, request: pb.GetScratchpadRequest, caller: Caller
    ) -> pb.GetScratchpadResponse:
        """The notes."""
        found = await self._scratchpads.get(
            caller.user_id, _conversation(request.conversation_id), request.agent
        )
        return pb.GetScratchpadResponse(scratchpad=_to_scratchpad(found))

    async def write_scratchpad(
        self, request: pb.WriteScratchpadRequest, caller: Caller
    ) -> pb.WriteScratchpadResponse:
        """Other notes."""
        written = await self._scratchpads.write(
            caller.user_id,
            _conversation(request.conversation_id),
            request.agent,
            list(request.items),
            request.etag,
        )
        return pb.WriteScratchpadResponse(scratchpad=_to_scratchpad(written))

    async def clear_scratchpad(
        self, request: pb.ClearScratchpadRequest, caller: Caller
    ) -> pb.ClearScratchpadResponse:
        """No notes."""
        deleted = await self._scratchpads.clear(
            caller.user_id, _conversation(request.conversation_id), request.agent
        )
        return pb.ClearScratchpadResponse(deleted_count=deleted)


def _conversation(conversation_id: str) -> UUID | None:
    return UUID(conversation_id) if conversation_id else None


def _to_scratchpad(scratchpad: Scratchpad) -> memory_pb2.Scratchpad:
    return memory_pb2.Scratchpad(
        conversation_id="" if scratchpad.agent_id else str(scratchpad.conversation_id),
        agent_id="" if scratchpad.agent_id is None else str(scratchpad.agent_id),
        items=scratchpad.items,
        update_time=to_timestamp(scratchpad.updated_at),
        etag=scratchpad.etag,
    )
