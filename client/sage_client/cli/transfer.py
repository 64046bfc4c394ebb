"""`sage export` and `sage import`: whole histories as JSON Lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sage_client.cli.session import Session, session_of
from sage_client.cli.texts import counted
from sage_client.models.transfer import ExportChunk, ExportDone, ExportProgress, ImportProgress


def export_command(
    ctx: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(help="Where to write it; `-` for standard output.")],
) -> None:
    """Write all conversations to a file, as JSON Lines.

    The file is yours alone to read, and appears when it is complete.

    Example: sage export history.jsonl
    """
    export_to(session_of(ctx), file, None)


def import_command(
    ctx: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(help="A file that `export` wrote.", exists=True, dir_okay=False)],
) -> None:
    """Read conversations from a file that `export` wrote.

    What is there already is skipped, so it can be repeated.

    Example: sage import history.jsonl
    """
    session = session_of(ctx)
    with session.output.progress() as progress:
        task = progress.add_task("Importing", total=None)

        def show(at: ImportProgress) -> None:
            progress.update(task, total=at.total_bytes, completed=at.bytes_done)

        done = session.client.conversations.import_(file, on_progress=show)
    if not session.output.document(done):
        session.output.done(
            f"Imported {counted(done.conversations_created, 'conversation')} with "
            f"{counted(done.items_created, 'item')}; {counted(done.conversations_skipped, 'conversation')} "
            f"and {counted(done.items_skipped, 'item')} were there already."
        )


def export_to(session: Session, file: Path, ids: Sequence[str] | None) -> None:
    """Write these conversations, or all, to a file or to standard output."""
    if str(file) == "-":
        _export_to_stdout(session, ids)
        return
    with session.output.progress() as progress:
        task = progress.add_task("Exporting", total=None)

        def show(at: ExportProgress) -> None:
            progress.update(task, total=at.total_conversations, completed=at.conversations)

        done = session.client.conversations.export_to(file, ids, on_progress=show)
    if not session.output.document(done):
        session.output.done(f"Wrote {_amount(done)} to {file}.")


def _export_to_stdout(session: Session, ids: Sequence[str] | None) -> None:
    for event in session.client.conversations.export(ids):
        if isinstance(event, ExportChunk):
            sys.stdout.buffer.write(event.jsonl)
        elif isinstance(event, ExportDone):
            session.output.note(f"Wrote {_amount(event)}.")
    sys.stdout.buffer.flush()


def _amount(done: ExportDone) -> str:
    return f"{counted(done.conversations, 'conversation')} with {counted(done.items, 'item')}"
