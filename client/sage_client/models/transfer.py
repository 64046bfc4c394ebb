"""Export and import of conversations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExportChunk:
    """A piece of an export: whole lines of JSON. Concatenate the chunks to get the file."""

    jsonl: bytes


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """What is written so far, and the conversations to write in all."""

    conversations: int
    items: int
    total_conversations: int


@dataclass(frozen=True, slots=True)
class ExportDone:
    """The export is complete. Always the last event."""

    conversations: int
    items: int


ExportEvent = ExportChunk | ExportProgress | ExportDone


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """Lines of the source that are handled, and about how many of its bytes that is."""

    lines: int
    bytes_done: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ImportDone:
    """What an import created, and what was there already."""

    conversations_created: int = 0
    conversations_skipped: int = 0
    items_created: int = 0
    items_skipped: int = 0

    def __add__(self, other: ImportDone) -> ImportDone:
        return ImportDone(
            conversations_created=self.conversations_created + other.conversations_created,
            conversations_skipped=self.conversations_skipped + other.conversations_skipped,
            items_created=self.items_created + other.items_created,
            items_skipped=self.items_skipped + other.items_skipped,
        )
