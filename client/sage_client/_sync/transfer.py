# Generated from client/sage_client/_async/transfer.py by scripts/sync_client.py: do not edit.
"""Export and import of whole histories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from sage.v1 import conversation_service_pb2 as pb
from sage_client._sync.transport import Transport
from sage_client._wire.transfer import export_event_from, import_done_from, import_progress_from
from sage_client.errors import SageError, cut_short
from sage_client.files import JsonlSource, Piece, WholeFile, pieces, source_size
from sage_client.models.takeout import TakeoutCounts
from sage_client.models.transfer import (
    ExportChunk,
    ExportDone,
    ExportEvent,
    ExportProgress,
    ImportDone,
    ImportProgress,
)
from sage_client.retry import Repeat

Done = TypeVar("Done", ExportDone, TakeoutCounts)

if TYPE_CHECKING:
    from sage.v1.conversation_service_pb2_grpc import ConversationServiceStub


def save(
    path: str | os.PathLike[str],
    events: Iterator[ExportChunk | ExportProgress | Done],
    on_progress: Callable[[ExportProgress], None] | None,
    done: Done,
) -> Done:
    """Write an export to a file. Its last event; `done` if there is none."""
    with WholeFile(path) as file:
        for event in events:
            if isinstance(event, ExportChunk):
                file.write(event.jsonl)
            elif not isinstance(event, ExportProgress):
                done = event
            elif on_progress is not None:
                on_progress(event)
    return done


class Transfer:
    """The part of `client.conversations` that moves whole histories as JSON Lines."""

    def __init__(self, transport: Transport, stub: ConversationServiceStub) -> None:
        self._transport = transport
        self._stub = stub

    def export(
        self,
        ids: Iterable[str] | None = None,
        *,
        show_deleted: bool = False,
        include_agents: bool = False,
    ) -> Iterator[ExportEvent]:
        """Export these conversations, or all: chunks, progress between them, and ExportDone at the end.

        An iterator that ends without an error has given all of it. `include_agents`: True for the agents'
        own threads too, each as a conversation named after its agent; only together with all conversations.
        """
        request = pb.ExportConversationsRequest(
            conversation_ids=ids, show_deleted=show_deleted, include_agents=include_agents
        )
        responses = self._transport.stream(self._stub.ExportConversations, request, repeat=Repeat.SAFE)
        complete = False
        for response in responses:
            event = export_event_from(response)
            if event is not None:
                complete = isinstance(event, ExportDone)
                yield event
        if not complete:
            raise cut_short("export")

    def export_to(
        self,
        path: str | os.PathLike[str],
        ids: Iterable[str] | None = None,
        *,
        show_deleted: bool = False,
        on_progress: Callable[[ExportProgress], None] | None = None,
    ) -> ExportDone:
        """Export to a file, readable by its owner only. It appears, or is replaced, when it is complete."""
        events = self.export(ids, show_deleted=show_deleted)
        return save(path, events, on_progress, ExportDone(conversations=0, items=0))

    def import_(
        self, source: JsonlSource, *, on_progress: Callable[[ImportProgress], None] | None = None
    ) -> ImportDone:
        """Import JSON Lines: bytes, or the path of a file. A long source goes in several calls, in order.

        What is there already is skipped, so an import that failed on the way can simply be repeated. A call
        that was tried again counts as skipped what its first attempt had created.
        """
        done, bytes_done, total_bytes = ImportDone(), 0, source_size(source)
        for piece in pieces(source):
            done += self.import_piece(piece, bytes_done, total_bytes, on_progress)
            bytes_done += len(piece.jsonl)
        return done

    def import_piece(
        self,
        piece: Piece,
        bytes_done: int,
        total_bytes: int,
        on_progress: Callable[[ImportProgress], None] | None,
    ) -> ImportDone:
        """Import a piece of a longer source, of which so many bytes are done."""
        done = ImportDone()
        try:
            for event in self._import(piece):
                if isinstance(event, ImportDone):
                    done = event
                elif on_progress is not None:
                    on_progress(import_progress_from(event, piece, bytes_done, total_bytes))
        except SageError as error:
            if piece.first_line > 1:
                # The server counts the lines of a call, and the caller those of the source.
                error.add_note(f"Line 1 of this call is line {piece.first_line} of the source.")
            raise
        return done

    def _import(self, piece: Piece) -> Iterator[pb.ImportProgress | ImportDone]:
        request = pb.ImportConversationsRequest(jsonl=piece.jsonl)
        responses = self._transport.stream(self._stub.ImportConversations, request, repeat=Repeat.SAFE)
        complete = False
        for response in responses:
            match response.WhichOneof("event"):
                case "progress":
                    yield response.progress
                case "done":
                    complete = True
                    yield import_done_from(response.done)
        if not complete:
            raise cut_short("import")
