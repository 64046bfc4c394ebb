"""Export and import."""

from __future__ import annotations

from sage.v1 import conversation_service_pb2 as pb
from sage_client.files import Piece
from sage_client.models.transfer import (
    ExportChunk,
    ExportDone,
    ExportEvent,
    ExportProgress,
    ImportDone,
    ImportProgress,
)


def export_event_from(message: pb.ExportConversationsResponse) -> ExportEvent | None:
    """The event, or None for a kind that only a newer server knows."""
    match message.WhichOneof("event"):
        case "chunk":
            return ExportChunk(message.chunk.jsonl)
        case "progress":
            progress = message.progress
            return ExportProgress(progress.conversations, progress.items, progress.total_conversations)
        case "done":
            return ExportDone(message.done.conversations, message.done.items)
        case _:
            return None


def import_progress_from(
    message: pb.ImportProgress, piece: Piece, bytes_before: int, total_bytes: int
) -> ImportProgress:
    """Progress within a piece as progress within its source."""
    share = message.lines / message.total_lines if message.total_lines else 0.0
    return ImportProgress(
        lines=piece.first_line - 1 + message.lines,
        bytes_done=bytes_before + int(share * len(piece.jsonl)),
        total_bytes=total_bytes,
    )


def import_done_from(message: pb.ImportDone) -> ImportDone:
    """What a call created and skipped."""
    return ImportDone(
        conversations_created=message.conversations_created,
        conversations_skipped=message.conversations_skipped,
        items_created=message.items_created,
        items_skipped=message.items_skipped,
    )
