"""Documents and how they are taken in."""

from __future__ import annotations

from sage.v1 import memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client._wire.enums import reason_from, stage_from, status_from, trust_from
from sage_client._wire.times import time_from
from sage_client.models.documents import Document, IngestAccepted, IngestDone, IngestEvent, IngestProgress


def document_from(message: memory_pb2.Document) -> Document:
    """A document."""
    return Document(
        id=message.id,
        title=message.title,
        external_id=message.external_id,
        media_type=message.media_type,
        status=status_from(message.status),
        failure=reason_from(message.failure),
        chunk_count=message.chunk_count,
        byte_count=message.byte_count,
        char_count=message.char_count,
        tags=tuple(message.tags),
        metadata=dict(message.metadata),
        agent_id=message.agent_id,
        trust=trust_from(message.trust),
        create_time=time_from(message.create_time),
        update_time=time_from(message.update_time),
    )


def ingest_event_from(message: pb.IngestDocumentResponse) -> IngestEvent | None:
    """The event, or None for a kind that only a newer server knows."""
    match message.WhichOneof("event"):
        case "accepted":
            return IngestAccepted(document_from(message.accepted.document))
        case "progress":
            progress = message.progress
            return IngestProgress(stage_from(progress.stage), progress.chunks_done, progress.chunks_total)
        case "done":
            return _done_from(message.done)
        case _:
            return None


def _done_from(message: pb.IngestDone) -> IngestDone:
    return IngestDone(
        document=document_from(message.document),
        skipped=message.skipped,
        added_count=message.added_count,
        reused_count=message.reused_count,
        deleted_count=message.deleted_count,
        memory_token=message.memory_token,
    )
