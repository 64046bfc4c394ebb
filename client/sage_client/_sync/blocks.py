# Generated from client/sage_client/_async/blocks.py by scripts/sync_client.py: do not edit.
"""Core memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from sage.v1 import memory_service_pb2 as pb
from sage_client._sync.paging import every
from sage_client._sync.transport import Transport
from sage_client._wire.blocks import block_from, block_update_to, revision_from
from sage_client.models.blocks import Block, BlockRevision
from sage_client.models.page import Page
from sage_client.retry import Repeat
from sage_client.unset import UNSET, Unset

if TYPE_CHECKING:
    from sage.v1.memory_service_pb2_grpc import MemoryServiceStub


class Blocks:
    """`client.memory.blocks`: labelled texts that are always in the context of the agents that see them.

    A block is named by its label and the agent whose block it is; without an agent, all agents share it.
    """

    def __init__(self, transport: Transport, stub: MemoryServiceStub) -> None:
        self._transport = transport
        self._stub = stub

    def create(
        self,
        label: str,
        value: str = "",
        *,
        agent: str = "",
        description: str = "",
        char_limit: int = 0,
        read_only: bool = False,
        request_id: str | None = None,
    ) -> Block:
        """Create a block. AlreadyExists if the label is taken. A limit of 0 means the server's default."""
        request = pb.CreateBlockRequest(
            label=label,
            agent=agent,
            description=description,
            value=value,
            char_limit=char_limit,
            read_only=read_only,
            request_id=request_id or str(uuid4()),
        )
        response = self._transport.unary(self._stub.CreateBlock, request, repeat=Repeat.SAFE)
        return block_from(response.block)

    def get(self, label: str, *, agent: str = "") -> Block:
        """Read one block."""
        request = pb.GetBlockRequest(label=label, agent=agent)
        response = self._transport.unary(self._stub.GetBlock, request, repeat=Repeat.SAFE)
        return block_from(response.block)

    def list(self, *, agent: str = "", page_size: int = 0) -> Iterator[Block]:
        """All blocks, or the shared ones and an agent's own, fetched page by page while you iterate."""
        return every(partial(self.list_page, agent=agent, page_size=page_size))

    def list_page(self, *, page_token: str = "", agent: str = "", page_size: int = 0) -> Page[Block]:
        """One page, shared blocks first."""
        request = pb.ListBlocksRequest(page_size=page_size, page_token=page_token, agent=agent)
        response = self._transport.unary(self._stub.ListBlocks, request, repeat=Repeat.SAFE)
        return Page(tuple(block_from(message) for message in response.blocks), response.next_page_token)

    def update(
        self,
        label: str,
        *,
        agent: str = "",
        description: str | Unset = UNSET,
        value: str | Unset = UNSET,
        char_limit: int | Unset = UNSET,
        read_only: bool | Unset = UNSET,
        etag: str = "",
    ) -> Block:
        """Change what is given and nothing else, of a read-only block too. Aborted if `etag` is old."""
        request = block_update_to(
            label,
            agent=agent,
            description=description,
            value=value,
            char_limit=char_limit,
            read_only=read_only,
            etag=etag,
        )
        response = self._transport.unary(self._stub.UpdateBlock, request, repeat=_repeat(etag))
        return block_from(response.block)

    def delete(self, label: str, *, agent: str = "", etag: str = "") -> int:
        """Delete a block for good, and its revisions: how many there were."""
        request = pb.DeleteBlockRequest(label=label, agent=agent, etag=etag)
        # A repeat of a delete that was carried out is NOT_FOUND, which would hide that it worked.
        response = self._transport.unary(self._stub.DeleteBlock, request, repeat=Repeat.IF_REFUSED)
        return response.deleted_revision_count

    def revisions(self, label: str, *, agent: str = "", page_size: int = 0) -> Iterator[BlockRevision]:
        """All revisions of a block, the newest first, fetched page by page while you iterate."""
        return every(partial(self.revisions_page, label, agent=agent, page_size=page_size))

    def revisions_page(
        self, label: str, *, page_token: str = "", agent: str = "", page_size: int = 0
    ) -> Page[BlockRevision]:
        """One page of revisions."""
        request = pb.ListBlockRevisionsRequest(
            label=label, agent=agent, page_size=page_size, page_token=page_token
        )
        response = self._transport.unary(self._stub.ListBlockRevisions, request, repeat=Repeat.SAFE)
        return Page(tuple(revision_from(message) for message in response.revisions), response.next_page_token)

    def restore(self, label: str, revision: int, *, agent: str = "", etag: str = "") -> Block:
        """Make an earlier revision current again, as a new revision. Aborted if `etag` is old."""
        request = pb.RestoreBlockRequest(label=label, agent=agent, revision=revision, etag=etag)
        response = self._transport.unary(self._stub.RestoreBlock, request, repeat=_repeat(etag))
        return block_from(response.block)


def _repeat(etag: str) -> Repeat:
    # Writing the same state again is safe, but a repeat with an etag would find it changed by itself.
    return Repeat.IF_REFUSED if etag else Repeat.SAFE
