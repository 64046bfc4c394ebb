"""`sage conversations`: threads and their history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sage_client.cli import transfer
from sage_client.cli.output import ACCENT, FAINT, ID, LABEL, Column, Output
from sage_client.cli.session import first, session_of
from sage_client.cli.texts import counted, exactly, one_line, when
from sage_client.models.conversations import Conversation, ConversationOrder
from sage_client.models.items import Item, ItemKind, ItemOrder

app = typer.Typer(
    help="Threads beside the agents' own.\n\nTo talk in one: `sage chat --conversation ID`.\n\n"
    "Example: sage conversations list",
    no_args_is_help=True,
)

ConversationId = Annotated[str, typer.Argument(metavar="ID", help="A conversation's id, as `list` shows it.")]


@app.command("list")
def list_command(
    ctx: typer.Context,
    *,
    deleted: Annotated[bool, typer.Option("--deleted", help="Those that can be undeleted.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The most conversations to show.")] = 20,
) -> None:
    """The conversations, the latest first.

    Example: sage conversations list --limit 100
    """
    session = session_of(ctx)
    listed = session.client.conversations.list(order=ConversationOrder.ACTIVE, deleted_only=deleted)
    conversations, more = first(listed, limit)
    if session.output.document(conversations):
        return
    columns = [
        Column("when"),
        Column("items", justify="right"),
        Column("tokens", justify="right", wide_only=True),
        ID,
        Column("title"),
    ]
    rows = [
        (
            when(one.last_item_time or one.create_time),
            one.message_count,
            one.total_tokens,
            one.id,
            one.title or one.summary,
        )
        for one in conversations
    ]
    session.output.table(columns, rows, "There are no conversations: `sage conversations new` makes one.")
    if more:
        session.output.note("There are more: give a larger --limit.")


@app.command("new")
def new(
    ctx: typer.Context,
    *,
    title: Annotated[str, typer.Argument(help="A title for people.", show_default=False)] = "",
    private: Annotated[
        bool, typer.Option("--private", help="Nothing of it is found outside it, for good.")
    ] = False,
) -> None:
    """Make an empty conversation.

    Example: sage conversations new "Garden plans"
    """
    session = session_of(ctx)
    made = session.client.conversations.create(title, private=private)
    if not session.output.document(made):
        session.output.done(f"Made the conversation {made.id}.")
        session.output.note(f"Talk in it: sage chat --conversation {made.id}")


@app.command("show")
def show(
    ctx: typer.Context,
    *,
    conversation_id: ConversationId,
    limit: Annotated[int, typer.Option(min=1, help="The most items to show, the newest.")] = 50,
) -> None:
    """A conversation and its newest items.

    Example: sage conversations show 0193e2a4-7b1c-7c3a-9e58-0123456789ab
    """
    session = session_of(ctx)
    conversation = session.client.conversations.get(conversation_id)
    newest, more = first(
        session.client.conversations.items(conversation_id, order=ItemOrder.NEWEST_FIRST), limit
    )
    items = newest[::-1]
    if session.output.document({"conversation": conversation, "items": items}):
        return
    _head(session.output, conversation)
    if more:
        session.output.note("There is more before: give a larger --limit.")
    for item in items:
        _item(session.output, item)


@app.command("rename")
def rename(
    ctx: typer.Context,
    *,
    conversation_id: ConversationId,
    title: Annotated[str, typer.Argument(help="The new title.")],
) -> None:
    """Give a conversation another title.

    Example: sage conversations rename 0193e2a4-7b1c-7c3a-9e58-0123456789ab "Beans"
    """
    session = session_of(ctx)
    changed = session.client.conversations.update(conversation_id, title=title)
    if not session.output.document(changed):
        session.output.done(f"Its title is now {changed.title}.")


@app.command("delete")
def delete(ctx: typer.Context, conversation_id: ConversationId) -> None:
    """Delete a conversation.

    It can be undeleted until retention removes it.

    Example: sage conversations delete 0193e2a4-7b1c-7c3a-9e58-0123456789ab
    """
    session = session_of(ctx)
    deleted = session.client.conversations.delete(conversation_id)
    if not session.output.document(deleted):
        session.output.done("Deleted.")
        session.output.note(f"Bring it back: sage conversations undelete {deleted.id}")


@app.command("undelete")
def undelete(ctx: typer.Context, conversation_id: ConversationId) -> None:
    """Bring a deleted conversation back.

    Example: sage conversations undelete 0193e2a4-7b1c-7c3a-9e58-0123456789ab
    """
    session = session_of(ctx)
    back = session.client.conversations.undelete(conversation_id)
    if not session.output.document(back):
        session.output.done(f"{back.id} is back.")


@app.command("export")
def export(
    ctx: typer.Context,
    *,
    conversation_id: ConversationId,
    file: Annotated[Path, typer.Argument(help="Where to write it; `-` for standard output.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before overwriting it.")] = False,
) -> None:
    """Write one conversation to a file, as JSON Lines.

    `sage export` writes all of them.

    Example: sage conversations export 0193e2a4-7b1c-7c3a-9e58-0123456789ab garden.jsonl
    """
    transfer.export_conversations(session_of(ctx), file, [conversation_id], yes=yes)


def _head(output: Output, one: Conversation) -> None:
    output.line((one_line(one.title) or "(no title)", LABEL))
    about = [counted(one.message_count, "item"), f"from {exactly(one.create_time)}"]
    about += ["private"] if one.private else []
    about += ["deleted"] if one.delete_time else []
    output.line((", ".join(about), FAINT))


def _item(output: Output, item: Item) -> None:
    who = item.author or ("you" if item.kind is ItemKind.USER else str(item.kind))
    head = one_line(f"{who} {item.tool.name}" if item.tool else who)
    output.out.print()
    output.line((head, ACCENT), (f"  {exactly(item.create_time)}", FAINT))
    arguments = item.tool.arguments_json if item.tool else ""
    output.text(item.text or arguments)
