"""`sage usage`: what models were used for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from sage_client.cli.output import ACCENT, Column
from sage_client.cli.session import session_of
from sage_client.cli.texts import counted


def usage(
    ctx: typer.Context,
    *,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Today and the days before it.")] = 30,
) -> None:
    """Calls and tokens by day, model and purpose.

    Example: sage usage --days 7
    """
    session = session_of(ctx)
    records = session.client.usage(after=datetime.now(UTC) - timedelta(days=days - 1))
    if session.output.document(records):
        return
    columns = [
        Column("day"),
        Column("purpose"),
        Column("calls", justify="right"),
        Column("sent", justify="right"),
        Column("received", justify="right"),
        Column("embedded", justify="right"),
        Column("model", ACCENT),
    ]
    rows = [
        (
            one.day,
            one.purpose,
            f"{one.calls:,}",
            f"{one.prompt_tokens:,}",
            f"{one.completion_tokens:,}",
            f"{one.embedding_tokens:,}",
            one.model,
        )
        for one in records
    ]
    session.output.table(columns, rows, "No model was used in this time.")
    if records:
        sent, received = sum(r.prompt_tokens for r in records), sum(r.completion_tokens for r in records)
        embedded = sum(r.embedding_tokens for r in records)
        calls = counted(sum(r.calls for r in records), "call")
        session.output.note(f"{calls}; tokens: {sent:,} sent, {received:,} received, {embedded:,} embedded")
