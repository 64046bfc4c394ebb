"""`sage export` and `sage import`: everything of a user as JSON Lines; and single conversations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sage_client.cli.session import Session, UsageProblemError, confirm, session_of
from sage_client.cli.texts import counted
from sage_client.models.takeout import TakeoutCounts
from sage_client.models.transfer import ExportChunk, ExportDone, ExportProgress, ImportProgress


def export_command(
    ctx: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(help="Where to write it; `-` for standard output.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before overwriting it.")] = False,
) -> None:
    """Write everything of yours to a file, as JSON Lines.

    Conversations, the agents' own threads, core memory, archival memories, documents as text, agents.
    The file is yours alone to read, and appears when it is complete.

    Example: sage export maria.jsonl
    """
    session = session_of(ctx)
    if str(file) == "-":
        for event in session.client.takeout.export():
            if isinstance(event, TakeoutCounts):
                session.output.note(f"Wrote {_listed(event)}.")
            else:
                _to_stdout(event)
        return
    _confirm_overwriting(file, yes=yes)
    with _exporting(session) as show:
        counts = session.client.takeout.export_to(file, on_progress=show)
    if not session.output.document(counts):
        session.output.done(f"Wrote {_listed(counts)} to {file}.")


def import_command(
    ctx: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(help="A file that `export` wrote; `-` for standard input.")],
) -> None:
    """Read a file that `export` wrote.

    What is there already is skipped, so it can be repeated. Agents' own threads come back as conversations.

    Documents come back as archival memories, one for each of their chunks.

    Example: sage import maria.jsonl
    """
    session = session_of(ctx)
    if str(file) != "-" and not file.is_file():
        raise UsageProblemError(f"{file}: there is no such file")
    with session.output.progress() as progress:
        task = progress.add_task("Importing", total=None)

        def show(at: ImportProgress) -> None:
            progress.update(task, total=at.total_bytes, completed=at.bytes_done)

        try:
            source = sys.stdin.buffer.read() if str(file) == "-" else file
            done = session.client.takeout.import_(source, on_progress=show)
        except ValueError as error:
            raise UsageProblemError(f"{file}: {error}") from None
    if not session.output.document(done):
        session.output.done(f"Imported {_listed(done.created)}.")
        if done.skipped != TakeoutCounts():
            session.output.note(f"There already: {_listed(done.skipped)}.")
        if done.different_blocks:
            labels = ", ".join(done.different_blocks)
            session.output.note(f"Left as they are, although the file has another text: {labels}.")


def _confirm_overwriting(file: Path, *, yes: bool) -> None:
    """Ask before a file is replaced that is there already."""
    if file.exists():
        confirm(f"Overwrite {file}?", yes=yes)


def export_conversations(session: Session, file: Path, ids: Sequence[str], *, yes: bool) -> None:
    """Write these conversations to a file or to standard output."""
    if str(file) == "-":
        for event in session.client.conversations.export(ids):
            if isinstance(event, ExportDone):
                session.output.note(f"Wrote {_amount(event)}.")
            else:
                _to_stdout(event)
        return
    _confirm_overwriting(file, yes=yes)
    with _exporting(session) as show:
        done = session.client.conversations.export_to(file, ids, on_progress=show)
    if not session.output.document(done):
        session.output.done(f"Wrote {_amount(done)} to {file}.")


@contextmanager
def _exporting(session: Session) -> Iterator[Callable[[ExportProgress], None]]:
    with session.output.progress() as progress:
        task = progress.add_task("Exporting", total=None)

        def show(at: ExportProgress) -> None:
            progress.update(task, total=at.total_conversations, completed=at.conversations)

        yield show


def _to_stdout(event: ExportChunk | ExportProgress) -> None:
    if isinstance(event, ExportChunk):
        sys.stdout.buffer.write(event.jsonl)
        sys.stdout.buffer.flush()


def _listed(counts: TakeoutCounts) -> str:
    parts = (
        counted(counts.conversations, "conversation"),
        counted(counts.items, "item"),
        counted(counts.blocks, "block"),
        counted(counts.memories, "memory", "memories"),
        counted(counts.agents, "agent"),
    )
    some = [part for part in parts if not part.startswith("0 ")]
    return f"{', '.join(some[:-1])} and {some[-1]}" if len(some) > 1 else "".join(some) or "nothing"


def _amount(done: ExportDone) -> str:
    return f"{counted(done.conversations, 'conversation')} with {counted(done.items, 'item')}"
