"""`sage memory`: core memory by label, archival memory by id, and search over everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated
from uuid import UUID

import typer

from sage_client.cli import memory_view as view
from sage_client.cli.session import (
    Session,
    UsageProblemError,
    confirm,
    edited,
    first,
    session_of,
    text_given,
)
from sage_client.errors import NotFound
from sage_client.models.memory import MemoryFilter, MemorySource

app = typer.Typer(
    help="Read, search and change memory.\n\n"
    "Core memory is a few blocks that agents always see: they go by label, such as `human`, and keep a "
    "history. Archival memories are found by search: they go by id.\n\n"
    "Example: sage memory search beans",
    no_args_is_help=True,
)


class Source(StrEnum):
    """The sources of memories that can be asked for."""

    ARCHIVAL = "archival"
    MESSAGE = "message"
    DOCUMENT = "document"
    SUMMARY = "summary"


What = Annotated[str, typer.Argument(help="A block's label, or a memory's id.")]
Label = Annotated[str, typer.Argument(help="A block's label.")]
Agent = Annotated[str, typer.Option(help="Only this agent's own.", show_default=False)]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.")]
Sources = Annotated[list[Source] | None, typer.Option("--source", help="Where from; may be repeated.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list")
def list_command(
    ctx: typer.Context,
    *,
    source: Sources = None,
    tag: Tags = None,
    agent: Agent = "",
    limit: Annotated[int, typer.Option(min=1, help="The most memories to show.")] = 20,
) -> None:
    """Core memory, and the newest archival memories.

    Example: sage memory list --tag garden --limit 50
    """
    session = session_of(ctx)
    sources = [MemorySource(name) for name in source or [Source.ARCHIVAL]]
    where = MemoryFilter(sources=sources, tags=tag or (), agent=agent)
    blocks = [] if source or tag else list(session.client.memory.blocks.list(agent=agent))
    memories, more = first(session.client.memory.list(where), limit)
    if session.output.document({"blocks": blocks, "memories": memories}):
        return
    view.listing(session.output, blocks, memories)
    if more:
        session.output.note("There are more: give a larger --limit.")


@app.command("show")
def show(ctx: typer.Context, what: What, agent: Agent = "") -> None:
    """A block or a memory in full.

    Example: sage memory show human
    """
    session = session_of(ctx)
    if _is_id(what):
        memory = session.client.memory.get(what)
        if not session.output.document(memory):
            view.memory(session.output, memory)
        return
    with _naming(what):
        block = session.client.memory.blocks.get(what, agent=agent)
    if not session.output.document(block):
        view.block(session.output, block)


@app.command("search")
def search(
    ctx: typer.Context,
    *,
    query: Annotated[str, typer.Argument(help="What to look for, in words.")],
    source: Sources = None,
    tag: Tags = None,
    agent: Agent = "",
    limit: Annotated[int, typer.Option(min=1, max=100, help="The most results.")] = 10,
) -> None:
    """Search everything, by meaning and by words.

    The score ranks the results of one search: how well meaning and words fit, plus other evidence.

    It may be above 1.

    Example: sage memory search "what did Anna say about beans" --source message
    """
    session = session_of(ctx)
    if not query.strip():
        raise UsageProblemError("the query is empty")
    sources = [MemorySource(name) for name in source or ()]
    found = session.client.memory.search(
        query, sources=sources, tags=tag or (), agent=agent, top_k=limit, fully_consistent=True
    )
    if not session.output.document(found):
        view.results(session.output, found)


@app.command("add")
def add(
    ctx: typer.Context,
    *,
    text: Annotated[str, typer.Argument(help="What to remember; `-` reads standard input.")],
    tag: Tags = None,
    agent: Agent = "",
    block: Annotated[
        str, typer.Option(help="Make a new block of core memory with this label.", show_default=False)
    ] = "",
) -> None:
    """Remember something.

    As an archival memory or, with --block, as a new block of core memory.

    Example: sage memory add "Beans are sown in May" --tag garden
    """
    session = session_of(ctx)
    memory = session.client.memory
    if block:
        made = memory.blocks.create(block, text_given(text), agent=agent)
        if not session.output.document(made):
            session.output.done(f"Added the block {made.label}.")
        return
    written = memory.insert(text_given(text), tags=tag or (), agent=agent)
    if not session.output.document(written):
        session.output.done(f"Added the memory {written.memory.id}.")


@app.command("edit")
def edit(
    ctx: typer.Context,
    *,
    what: What,
    text: Annotated[
        str | None, typer.Argument(help="The new text; `-` reads standard input. Default: your editor.")
    ] = None,
    agent: Agent = "",
) -> None:
    """Change a block or a memory. Nobody else's change is overwritten.

    Example: sage memory edit human "Maria gardens in Lisbon."
    """
    session = session_of(ctx)
    if _is_id(what):
        _edit_memory(session, what, text)
        return
    blocks = session.client.memory.blocks
    with _naming(what):
        old = blocks.get(what, agent=agent)
    value = edited(old.value) if text is None else text_given(text)
    new = blocks.update(what, agent=agent, value=value, etag=old.etag)
    if not session.output.document(new):
        session.output.done(f"The block {new.label} is at revision {new.revision}.")


@app.command("history")
def history(
    ctx: typer.Context,
    *,
    label: Label,
    agent: Agent = "",
    limit: Annotated[int, typer.Option(min=1, help="The most revisions to show.")] = 20,
) -> None:
    """How a block changed, and who changed it.

    Archival memories keep no history.

    Example: sage memory history human
    """
    session = session_of(ctx)
    if _is_id(label):
        raise UsageProblemError("archival memories keep no history: give a block's label, such as human")
    with _naming(label):
        revisions, more = first(session.client.memory.blocks.revisions(label, agent=agent), limit)
    if session.output.document(revisions):
        return
    view.revisions(session.output, revisions)
    if more:
        session.output.note("There are more: give a larger --limit.")


@app.command("restore")
def restore(
    ctx: typer.Context,
    *,
    label: Label,
    revision: Annotated[int, typer.Argument(min=1, help="The revision, as `history` shows it.")],
    agent: Agent = "",
) -> None:
    """Bring an earlier revision of a block back, as a new revision.

    Example: sage memory restore human 3
    """
    session = session_of(ctx)
    block = session.client.memory.blocks.restore(label, revision, agent=agent)
    if not session.output.document(block):
        session.output.done(f"The block {block.label} is as it was at revision {revision}.")


@app.command("delete")
def delete(ctx: typer.Context, *, what: What, agent: Agent = "", yes: Yes = False) -> None:
    """Delete a block with its history, or a memory, for good.

    Example: sage memory delete 0193e2a4-7b1c-7c3a-9e58-0123456789ab --yes
    """
    session = session_of(ctx)
    if _is_id(what):
        confirm("Delete this memory for good?", yes=yes)
        deleted = session.client.memory.delete(what)
        if not session.output.document(deleted):
            session.output.done("Deleted.")
        return
    confirm(f"Delete the block {what} and its history for good?", yes=yes)
    with _naming(what):
        count = session.client.memory.blocks.delete(what, agent=agent)
    if not session.output.document({"deleted_revision_count": count}):
        session.output.done(f"Deleted the block {what}.")


def _edit_memory(session: Session, memory_id: str, text: str | None) -> None:
    old = session.client.memory.get(memory_id)
    value = edited(old.text) if text is None else text_given(text)
    written = session.client.memory.update(memory_id, text=value, etag=old.etag)
    if not session.output.document(written):
        session.output.done(f"Changed the memory {memory_id}.")


@contextmanager
def _naming(label: str) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        error.add_note(f"You asked for {label}: `sage memory list` shows what there is.")
        raise


def _is_id(what: str) -> bool:
    try:
        UUID(what)
    except ValueError:
        return False
    return True
