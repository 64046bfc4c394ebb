"""`sage erase`: a user, for good."""

from __future__ import annotations

from typing import Annotated

import typer

from sage_client.cli.session import confirm, session_of
from sage_client.cli.texts import counted


def erase(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="USER", help="The user's id in the application.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Erase a user and everything of theirs, for good.

    Their key, every row, every cache. Needs an admin's API key, where keys are needed at all.

    Example: sage erase maria --yes
    """
    session = session_of(ctx)
    confirm(f"Erase everything of {name} for good?", yes=yes)
    erasure = session.client.admin.erase_user(name)
    if not session.output.document(erasure):
        rows = counted(sum(erasure.rows_by_table.values()), "row")
        session.output.done(f"Erased {name}: {rows}. {_caches(erasure.replicas_unconfirmed)}")


def _caches(unconfirmed: int) -> str:
    if unconfirmed:
        return f"{counted(unconfirmed, 'replica')} did not confirm that their caches are empty."
    return "All replicas confirmed."
