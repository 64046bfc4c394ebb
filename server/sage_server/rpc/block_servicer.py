"""MemoryService, the blocks: decode, one call, encode."""

from __future__ import annotations

from sage.v1 import memory_service_pb2 as pb
from sage_server.domain.identity import Caller
from sage_server.domain.paging import page_size
from sage_server.rpc.block_mapping import (
    decode_block,
    encode_block,
    from_block_change,
    from_char_limit,
    to_block,
    to_revision,
)
from sage_server.rpc.mapping import once
from sage_server.rpc.page_tokens import PageTokens, decode_seq, encode_seq
from sage_server.services.blocks import Blocks


class BlockServicer:
    """Core memory."""

    def __init__(self, blocks: Blocks, pages: PageTokens) -> None:
        self._blocks = blocks
        self._pages = pages

    async def create_block(self, request: pb.CreateBlockRequest, caller: Caller) -> pb.CreateBlockResponse:
        """A new block."""
        created = await self._blocks.create(
            caller.user_id,
            label=request.label,
            agent=request.agent,
            description=request.description,
            value=request.value,
            char_limit=from_char_limit(request.char_limit),
            read_only=request.read_only,
            once=once(request),
        )
        return pb.CreateBlockResponse(block=to_block(created))

    async def get_block(self, request: pb.GetBlockRequest, caller: Caller) -> pb.GetBlockResponse:
        """One block."""
        found = await self._blocks.get(caller.user_id, request.label, request.agent)
        return pb.GetBlockResponse(block=to_block(found))

    async def list_blocks(self, request: pb.ListBlocksRequest, caller: Caller) -> pb.ListBlocksResponse:
        """A page of blocks."""
        page = await self._blocks.list(
            caller.user_id,
            agent=request.agent,
            size=page_size(request.page_size),
            after=await self._pages.read(caller.user_id, request, decode_block),
        )
        return pb.ListBlocksResponse(
            blocks=[to_block(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_block(page.next)),
        )

    async def update_block(self, request: pb.UpdateBlockRequest, caller: Caller) -> pb.UpdateBlockResponse:
        """The fields that the mask names."""
        changed = await self._blocks.update(
            caller.user_id, request.label, request.agent, from_block_change(request), request.etag
        )
        return pb.UpdateBlockResponse(block=to_block(changed))

    async def delete_block(self, request: pb.DeleteBlockRequest, caller: Caller) -> pb.DeleteBlockResponse:
        """For good."""
        revisions = await self._blocks.delete(caller.user_id, request.label, request.agent, request.etag)
        return pb.DeleteBlockResponse(deleted_revision_count=revisions)

    async def list_block_revisions(
        self, request: pb.ListBlockRevisionsRequest, caller: Caller
    ) -> pb.ListBlockRevisionsResponse:
        """A page of revisions."""
        page = await self._blocks.revisions(
            caller.user_id,
            request.label,
            request.agent,
            page_size(request.page_size),
            await self._pages.read(caller.user_id, request, decode_seq),
        )
        return pb.ListBlockRevisionsResponse(
            revisions=[to_revision(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_seq(page.next)),
        )

    async def restore_block(self, request: pb.RestoreBlockRequest, caller: Caller) -> pb.RestoreBlockResponse:
        """An earlier revision, again."""
        restored = await self._blocks.restore(
            caller.user_id, request.label, request.agent, request.revision, request.etag
        )
        return pb.RestoreBlockResponse(block=to_block(restored))
