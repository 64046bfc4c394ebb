"""Blocks of core memory and scratchpads."""

from __future__ import annotations

from sage.v1 import memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client._wire.enums import actor_from
from sage_client._wire.times import time_from
from sage_client.models.blocks import Block, BlockRevision
from sage_client.models.scratchpads import Scratchpad
from sage_client.unset import Unset


def block_from(message: memory_pb2.Block) -> Block:
    """A block."""
    return Block(
        id=message.id,
        label=message.label,
        agent_id=message.agent_id,
        description=message.description,
        value=message.value,
        char_limit=message.char_limit,
        char_count=message.char_count,
        read_only=message.read_only,
        create_time=time_from(message.create_time),
        update_time=time_from(message.update_time),
        etag=message.etag,
        revision=message.revision,
    )


def revision_from(message: memory_pb2.BlockRevision) -> BlockRevision:
    """A revision of a block."""
    return BlockRevision(
        revision=message.revision,
        block_id=message.block_id,
        value=message.value,
        description=message.description,
        char_limit=message.char_limit,
        read_only=message.read_only,
        actor=actor_from(message.actor),
        agent_id=message.agent_id,
        turn_id=message.turn_id,
        restored_revision=message.restored_revision,
        create_time=time_from(message.create_time),
    )


def block_update_to(
    label: str,
    *,
    agent: str,
    description: str | Unset,
    value: str | Unset,
    char_limit: int | Unset,
    read_only: bool | Unset,
    etag: str,
) -> pb.UpdateBlockRequest:
    """A change of what is given: the mask names that and nothing else."""
    request = pb.UpdateBlockRequest(label=label, agent=agent, etag=etag)
    request.update_mask.SetInParent()
    if not isinstance(description, Unset):
        request.description = description
        request.update_mask.paths.append("description")
    if not isinstance(value, Unset):
        request.value = value
        request.update_mask.paths.append("value")
    if not isinstance(char_limit, Unset):
        request.char_limit = char_limit
        request.update_mask.paths.append("char_limit")
    if not isinstance(read_only, Unset):
        request.read_only = read_only
        request.update_mask.paths.append("read_only")
    return request


def scratchpad_from(message: memory_pb2.Scratchpad) -> Scratchpad:
    """A scratchpad."""
    return Scratchpad(
        conversation_id=message.conversation_id,
        agent_id=message.agent_id,
        items=tuple(message.items),
        update_time=time_from(message.update_time) if message.HasField("update_time") else None,
        etag=message.etag,
    )
