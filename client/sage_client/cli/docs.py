"""`sage docs`: documents in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from sage_client.cli import failures
from sage_client.cli.output import FAINT, ID, Column
from sage_client.cli.session import Session, UsageProblemError, confirm, first, session_of
from sage_client.cli.texts import counted, size, when
from sage_client.errors import InvalidArgument, SageError
from sage_client.models.documents import IngestDone, IngestEvent, IngestProgress

STDIN = Path("-")

app = typer.Typer(
    help="Documents that agents can search: text, Markdown, HTML and PDF.\n\n"
    "Example: sage docs add garden.pdf",
    no_args_is_help=True,
)


@app.command("add")
def add(
    ctx: typer.Context,
    *,
    files: Annotated[
        list[Path],
        typer.Argument(help="Files to take in; `-` for standard input."),
    ],
    title: Annotated[str, typer.Option(help="Default: the file's name.", show_default=False)] = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.")] = None,
    agent: Annotated[str, typer.Option(help="Into this agent's own memory.", show_default=False)] = "",
) -> None:
    """Take files into memory.

    A file that was added before is replaced.

    Example: sage docs add notes/*.md --tag garden
    """
    session = session_of(ctx)
    _check(files, title)
    added: list[tuple[Path, IngestDone]] = []
    refused: list[tuple[Path, SageError]] = []
    with session.output.progress() as progress:
        for file in files:
            try:
                done = _add(session, progress, file, title=title or file.name, tags=tag or [], agent=agent)
            except InvalidArgument as error:
                # Something about this file; the others may do.
                refused.append((file, error))
            else:
                added.append((file, done))
    if not session.output.document([done for _, done in added]):
        for file, done in added:
            session.output.done(_said(file, done))
    for file, why in refused:
        session.output.problem(f"{file}: {failures.line(why)}")
    if refused:
        raise typer.Exit(failures.FAILED)


@app.command("list")
def list_command(
    ctx: typer.Context,
    *,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Only with a tag; may be repeated.")] = None,
    agent: Annotated[str, typer.Option(help="Only this agent's own.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, help="The most documents to show.")] = 50,
) -> None:
    """The documents in memory, the newest first.

    Example: sage docs list --tag garden
    """
    session = session_of(ctx)
    documents, more = first(session.client.memory.documents.list(tags=tag or (), agent=agent), limit)
    if session.output.document(documents):
        return
    columns = [
        Column("when"),
        Column("status", wide_only=True),
        Column("chunks", justify="right"),
        Column("size", justify="right", wide_only=True),
        Column("type", FAINT, wide_only=True),
        ID,
        Column("title"),
    ]
    rows = [
        (
            when(one.update_time),
            one.status,
            one.chunk_count,
            size(one.byte_count),
            one.media_type,
            one.id,
            one.title or one.external_id,
        )
        for one in documents
    ]
    session.output.table(columns, rows, "There are no documents yet: `sage docs add` takes one in.")
    if more:
        session.output.note("There are more: give a larger --limit.")


@app.command("rm")
def remove(
    ctx: typer.Context,
    *,
    ids: Annotated[list[str], typer.Argument(help="Ids of documents, as `list` shows them.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove documents and all their chunks, for good.

    Example: sage docs rm 0193e2a4-7b1c-7c3a-9e58-0123456789ab --yes
    """
    session = session_of(ctx)
    confirm(f"Remove {counted(len(ids), 'document')} for good?", yes=yes)
    removed = [session.client.memory.documents.delete(one) for one in ids]
    if not session.output.document(removed):
        chunks = sum(one.deleted_count for one in removed)
        session.output.done(f"Removed {counted(len(ids), 'document')} with {counted(chunks, 'chunk')}.")


def _check(files: list[Path], title: str) -> None:
    if title and len(files) > 1:
        raise UsageProblemError("--title is for one file")
    if STDIN in files and not title:
        raise UsageProblemError("give --title: standard input has no name")
    for file in files:
        if file.is_dir():
            raise UsageProblemError(f"{file} is a folder: name its files, as in {file / '*.md'}")
        if file != STDIN and not file.exists():
            raise UsageProblemError(f"{file}: there is no such file")


def _add(
    session: Session, progress: Progress, file: Path, *, title: str, tags: list[str], agent: str
) -> IngestDone:
    task = progress.add_task(file.name, total=None)
    done = session.client.memory.documents.add(
        sys.stdin.buffer.read() if file == STDIN else file,
        title=title,
        # The whole path: two files of one name are two documents.
        external_id="" if file == STDIN else str(file.resolve()),
        tags=tags,
        agent=agent,
        on_event=lambda event: _show(progress, task, event),
    )
    progress.update(task, total=1, completed=1)
    return done


def _show(progress: Progress, task: TaskID, event: IngestEvent) -> None:
    if isinstance(event, IngestProgress) and event.chunks_total:
        progress.update(task, total=event.chunks_total, completed=event.chunks_done)


def _said(file: Path, done: IngestDone) -> str:
    if done.skipped:
        return f"{file.name}: nothing new ({done.document.id})"
    return f"{file.name}: {counted(done.document.chunk_count, 'chunk')} ({done.document.id})"
