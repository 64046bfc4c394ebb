"""`sage context`: what an agent would be sent."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from sage_client.cli.output import ACCENT, BAD, FAINT, LABEL, Output
from sage_client.cli.session import session_of
from sage_client.cli.texts import bar, counted
from sage_client.models.agents import ContextPreview


def context(
    ctx: typer.Context,
    *,
    message: Annotated[str, typer.Argument(help="As if you sent this.", show_default=False)] = "",
    agent: Annotated[str, typer.Option(help="The agent.")] = "main",
    conversation: Annotated[
        str, typer.Option(help="In this conversation. Default: its own thread.", show_default=False)
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="The texts too, as the model gets them.")] = False,
) -> None:
    """What the agent would be sent, with a bar for each part.

    No model is called and nothing is stored.

    Example: sage context "What do I sow in May?" --full
    """
    session = session_of(ctx)
    preview = session.client.agents.preview_context(agent, input=message, conversation_id=conversation)
    if not session.output.document(preview):
        show(session.output, preview, full=full)


def show(output: Output, preview: ContextPreview, *, full: bool = False) -> None:
    """The parts of a context, how long each is, and how full the context is."""
    room = max(output.out.width - 40, 10)
    largest = max((section.token_count for section in preview.sections), default=0) or 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=LABEL)
    table.add_column("part", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("", style=ACCENT, no_wrap=True)
    for section in preview.sections:
        length = Text(bar(section.token_count / largest, room))
        table.add_row(section.kind.replace("_", " "), f"{section.token_count:,}", length)
    rest = preview.token_count - sum(section.token_count for section in preview.sections)
    if rest > 0:
        table.add_row("format", f"{rest:,}", Text(bar(rest / largest, room)))
    output.out.print(table)
    share = preview.token_count / preview.max_context_tokens if preview.max_context_tokens else 0
    used = f"{preview.token_count:,} of {preview.max_context_tokens:,} tokens ({share:.0%})"
    output.line((used, LABEL), (f"  {preview.model or 'no model is configured'}", FAINT))
    if preview.would_compact:
        output.line(("The oldest items would be compacted into a summary first.", BAD))
    if full:
        _texts(output, preview)


def _texts(output: Output, preview: ContextPreview) -> None:
    for section in preview.sections:
        if section.text:
            entries = f", {counted(section.entry_count, 'entry', 'entries')}" if section.entry_count else ""
            output.out.print()
            output.line((section.kind.replace("_", " "), LABEL), (entries, FAINT))
            output.text(section.text)
