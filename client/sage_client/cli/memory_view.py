"""Memory, as people see it."""

from __future__ import annotations

from collections.abc import Sequence

from sage_client.cli.output import ACCENT, FAINT, ID, LABEL, Column, Output
from sage_client.cli.texts import counted, exactly, one_line, seconds, when
from sage_client.models.blocks import Block, BlockRevision
from sage_client.models.memory import Memory
from sage_client.models.search import SearchResult, SearchResults

LINES = 3


def listing(output: Output, blocks: Sequence[Block], memories: Sequence[Memory]) -> None:
    """Blocks in full, then a table of memories."""
    for one in blocks:
        block(output, one)
        output.out.print()
    columns = [
        Column("when"),
        Column("source", wide_only=True),
        Column("tags", ACCENT, wide_only=True),
        ID,
        Column("memory"),
    ]
    rows = [(when(one.create_time), one.source, " ".join(one.tags), one.id, one.text) for one in memories]
    output.table(columns, rows, "There are no archival memories yet: `sage memory add` makes one.")


def block(output: Output, one: Block) -> None:
    """A block with its value."""
    marks = [f"{one.char_count:,} of {one.char_limit:,} characters", f"revision {one.revision}"]
    marks += ["read-only"] if one.read_only else []
    output.line((one.label, LABEL), ("  " + ", ".join(marks), FAINT))
    output.indented(one.value or "(empty)", "" if one.value else FAINT)


def memory(output: Output, one: Memory) -> None:
    """A memory in full."""
    pairs = [
        ("id", one.id),
        ("when", exactly(one.create_time)),
        ("source", origin(one)),
        ("trust", one.trust),
    ]
    pairs += [("tags", " ".join(one.tags))] if one.tags else []
    pairs += [(name, value) for name, value in one.metadata.items()]
    output.pairs(pairs)
    output.out.print()
    output.text(one.text)


def origin(one: Memory) -> str:
    """Where a memory comes from: `document Garden book`, `message by Anna`."""
    where = one.provenance
    if where.document_title:
        return f"{one.source} {where.document_title}"
    return f"{one.source} by {where.author}" if where.author else str(one.source)


def results(output: Output, found: SearchResults) -> None:
    """What a search found: a line about each, and its text."""
    for result in found.results:
        _result(output, result)
    among = counted(found.candidate_count, "memory", "memories")
    output.note(f"{len(found.results)} found among {among} in {seconds(found.duration)}")


def _result(output: Output, result: SearchResult) -> None:
    one = result.memory
    about = f"  {when(one.create_time)}  {one_line(origin(one))}  {one.id}"
    output.line((f"{result.score:.2f}", ACCENT), (about, FAINT))
    output.indented(one_line(one.text), lines=LINES)


def revisions(output: Output, found: Sequence[BlockRevision]) -> None:
    """Revisions, the newest first."""
    columns = [
        Column("revision", LABEL, justify="right"),
        Column("when"),
        Column("by"),
        Column("turn", FAINT, wide_only=True),
        Column("value"),
    ]
    rows = [(one.revision, when(one.create_time), _actor(one), one.turn_id, one.value) for one in found]
    output.table(columns, rows, "There are no revisions.")


def _actor(one: BlockRevision) -> str:
    return f"{one.actor}, back to {one.restored_revision}" if one.restored_revision else str(one.actor)
