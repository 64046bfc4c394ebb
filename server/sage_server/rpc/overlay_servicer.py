"""AgentService, what agents wrote on top of the user's memory: decode, one call, encode."""

from __future__ import annotations

from uuid import UUID

from sage.v1 import agent_pb2
from sage.v1 import agent_service_pb2 as pb
from sage_server.domain.blocks import Block
from sage_server.domain.identity import Caller
from sage_server.domain.overlays import ConflictPolicy, OverlayChange
from sage_server.domain.paging import page_size
from sage_server.rpc.block_mapping import to_block
from sage_server.rpc.mapping import once, to_timestamp
from sage_server.rpc.memory_mapping import to_memory
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.rpc.page_tokens import PageTokens, decode_time, encode_time
from sage_server.services.overlays import Overlays


class OverlayServicer:
    """Overlays of agents."""

    def __init__(self, overlays: Overlays, pages: PageTokens, tokens: MemoryTokens) -> None:
        self._overlays = overlays
        self._pages = pages
        self._tokens = tokens

    async def list_overlay_changes(
        self, request: pb.ListOverlayChangesRequest, caller: Caller
    ) -> pb.ListOverlayChangesResponse:
        """A page of changes."""
        page = await self._overlays.changes(
            caller.user_id,
            request.agent,
            conflicting_only=request.conflicting_only,
            size=page_size(request.page_size),
            after=await self._pages.read(caller.user_id, request, decode_time),
        )
        return pb.ListOverlayChangesResponse(
            changes=[_to_change(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_time(page.next)),
        )

    async def merge_overlay(self, request: pb.MergeOverlayRequest, caller: Caller) -> pb.MergeOverlayResponse:
        """Changes that become the user's."""
        merged = await self._overlays.merge(
            caller.user_id,
            request.agent,
            [UUID(change_id) for change_id in request.change_ids],
            ConflictPolicy(request.on_conflict) if request.on_conflict else ConflictPolicy.SKIP,
            once(request),
        )
        return pb.MergeOverlayResponse(
            merged_count=merged.count,
            skipped_change_ids=[str(change_id) for change_id in merged.skipped],
            skipped_count=len(merged.skipped),
            memory_token=await self._tokens.write(caller.user_id, merged.revision),
        )


def _to_change(change: OverlayChange) -> agent_pb2.OverlayChange:
    message = agent_pb2.OverlayChange(
        id=str(change.id),
        kind=agent_pb2.OverlayChangeKind.ValueType(change.kind),
        conflicting=change.conflicting,
        turn_id="" if change.turn_id is None else str(change.turn_id),
        create_time=to_timestamp(change.made_at),
    )
    if isinstance(change.resource, Block):
        message.block.CopyFrom(to_block(change.resource))
    else:
        message.memory.CopyFrom(to_memory(change.resource))
    return message
