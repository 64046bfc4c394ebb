"""Documents as messages. The domain's enum numbers are the contract's; a test says so."""

from __future__ import annotations

from uuid import UUID

from sage.v1 import error_reason_pb2, memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_server.domain.documents import Document, DocumentStatus
from sage_server.domain.errors import Reason
from sage_server.domain.memories import MemoryTrust
from sage_server.ports.document_store import DocumentFilter
from sage_server.rpc.mapping import to_timestamp
from sage_server.rpc.memory_mapping import from_tags
from sage_server.services.documents import DocumentDraft, IngestAccepted, IngestDone, IngestProgress


def to_document(document: Document) -> memory_pb2.Document:
    """A document for a caller."""
    return memory_pb2.Document(
        id=str(document.id),
        title=document.title,
        external_id=document.external_id,
        media_type=document.media_type,
        status=memory_pb2.DocumentStatus.ValueType(document.status),
        failure=_to_reason(document.failure),
        chunk_count=document.chunk_count,
        byte_count=document.byte_count,
        char_count=document.char_count,
        tags=document.tags,
        metadata=document.metadata,
        agent_id="" if document.agent_id is None else str(document.agent_id),
        trust=memory_pb2.MemoryTrust.ValueType(document.trust),
        create_time=to_timestamp(document.created_at),
        update_time=to_timestamp(document.updated_at),
    )


def to_under_way(event: IngestAccepted | IngestProgress) -> pb.IngestDocumentResponse:
    """An event that is not the last."""
    if isinstance(event, IngestAccepted):
        return pb.IngestDocumentResponse(accepted=pb.IngestAccepted(document=to_document(event.document)))
    return pb.IngestDocumentResponse(
        progress=pb.IngestProgress(
            stage=pb.IngestStage.ValueType(event.stage), chunks_done=event.done, chunks_total=event.total
        )
    )


def to_done(event: IngestDone, token: str) -> pb.IngestDocumentResponse:
    """The last event."""
    return pb.IngestDocumentResponse(
        done=pb.IngestDone(
            document=to_document(event.document),
            skipped=event.skipped,
            added_count=event.added,
            reused_count=event.reused,
            deleted_count=event.deleted,
            memory_token=token,
        )
    )


def from_document(request: pb.IngestDocumentRequest, agent_id: UUID | None) -> DocumentDraft:
    """A document to take in. Unless the caller says so, it is somebody else's words."""
    return DocumentDraft(
        content=request.content,
        media_type=request.media_type,
        title=request.title,
        external_id=request.external_id,
        tags=from_tags(request.tags, "tags"),
        metadata=dict(request.metadata),
        agent_id=agent_id,
        trust=MemoryTrust(request.trust) if request.trust else MemoryTrust.EXTERNAL,
    )


def from_document_filter(request: pb.ListDocumentsRequest, agent_id: UUID | None) -> DocumentFilter:
    """Which documents are meant."""
    return DocumentFilter(
        external_id=request.external_id,
        tags=from_tags(request.tags, "tags"),
        agent_id=agent_id,
        statuses=frozenset(DocumentStatus(status) for status in request.statuses),
    )


def _to_reason(reason: Reason | None) -> error_reason_pb2.ErrorReason.ValueType:
    if reason is None:
        return error_reason_pb2.ERROR_REASON_UNSPECIFIED
    return error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{reason.value}")
