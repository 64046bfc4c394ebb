"""Blocks as messages. The domain's enum numbers are the contract's; a test says so."""

from __future__ import annotations

from uuid import UUID

from sage.v1 import memory_pb2, memory_service_pb2
from sage_server.domain.blocks import DEFAULT_CHAR_LIMIT, Block, BlockChange, BlockCursor, BlockRevision
from sage_server.rpc.mapping import to_timestamp


def to_block(block: Block) -> memory_pb2.Block:
    """A block for a caller."""
    return memory_pb2.Block(
        id=str(block.id),
        label=block.label,
        agent_id=_to_id(block.agent_id),
        description=block.description,
        value=block.value,
        char_limit=block.char_limit,
        char_count=len(block.value),
        read_only=block.read_only,
        create_time=to_timestamp(block.created_at),
        update_time=to_timestamp(block.updated_at),
        etag=block.etag,
        revision=block.revision,
    )


def to_revision(revision: BlockRevision) -> memory_pb2.BlockRevision:
    """A revision for a caller."""
    return memory_pb2.BlockRevision(
        revision=revision.revision,
        block_id=str(revision.block_id),
        value=revision.value,
        description=revision.description,
        char_limit=revision.char_limit,
        read_only=revision.read_only,
        actor=memory_pb2.BlockActor.ValueType(revision.actor.kind),
        agent_id=_to_id(revision.actor.agent_id),
        turn_id=_to_id(revision.actor.turn_id),
        restored_revision=revision.restored_revision or 0,
        create_time=to_timestamp(revision.created_at),
    )


def from_char_limit(char_limit: int) -> int:
    """0 means the default."""
    return char_limit or DEFAULT_CHAR_LIMIT


def from_block_change(request: memory_service_pb2.UpdateBlockRequest) -> BlockChange:
    """What the mask names."""
    named = set(request.update_mask.paths)
    return BlockChange(
        description=request.description if "description" in named else None,
        value=request.value if "value" in named else None,
        char_limit=from_char_limit(request.char_limit) if "char_limit" in named else None,
        read_only=request.read_only if "read_only" in named else None,
    )


def encode_block(cursor: BlockCursor | None) -> bytes | None:
    """A position in a list of blocks."""
    return None if cursor is None else bytes([cursor.of_an_agent]) + cursor.id.bytes


def decode_block(position: bytes) -> BlockCursor:
    """Reads `encode_block`."""
    return BlockCursor(bool(position[0]), UUID(bytes=position[1:]))


def _to_id(found: UUID | None) -> str:
    return "" if found is None else str(found)
