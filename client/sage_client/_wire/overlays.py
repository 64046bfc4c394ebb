"""Overlays of agents."""

from __future__ import annotations

from sage.v1 import agent_pb2
from sage.v1 import agent_service_pb2 as pb
from sage_client._wire.agent_enums import change_kind_from
from sage_client._wire.blocks import block_from
from sage_client._wire.memory import memory_from
from sage_client._wire.times import time_from
from sage_client.models.overlays import MergedOverlay, OverlayChange


def change_from(message: agent_pb2.OverlayChange) -> OverlayChange:
    """A change."""
    return OverlayChange(
        id=message.id,
        kind=change_kind_from(message.kind),
        memory=memory_from(message.memory) if message.HasField("memory") else None,
        block=block_from(message.block) if message.HasField("block") else None,
        conflicting=message.conflicting,
        turn_id=message.turn_id,
        create_time=time_from(message.create_time),
    )


def merged_from(message: pb.MergeOverlayResponse) -> MergedOverlay:
    """What a merge did."""
    return MergedOverlay(
        merged_count=message.merged_count,
        skipped_change_ids=tuple(message.skipped_change_ids),
        skipped_count=message.skipped_count,
        memory_token=message.memory_token,
    )
