"""`sage events`: what agents do, as it happens."""

from __future__ import annotations

from typing import Annotated

import typer

from sage_client.cli import plain
from sage_client.cli.event_lines import parts
from sage_client.cli.output import FAINT, Output
from sage_client.cli.session import session_of
from sage_client.models.events import EventChannel, TurnDelta, TurnEvent


def events(
    ctx: typer.Context,
    *,
    after: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**63 - 1, help="Go on after this event; 0 for all that is kept. Default: from now on."
        ),
    ] = None,
    agent: Annotated[str, typer.Option(help="Only this agent's.", show_default=False)] = "",
    proactive: Annotated[
        bool, typer.Option("--proactive", help="Only what agents do while nobody asked.")
    ] = False,
    deltas: Annotated[bool, typer.Option("--deltas", help="With --json: words as they come.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Leave after so many events. 0: never.")] = 0,
) -> None:
    """Follow what agents do, until Ctrl-C.

    A broken connection is resumed without a gap. The number at the beginning of a line is for --after.

    Example: sage events --after 0 --agent main
    """
    session = session_of(ctx)
    # Fails at once if nobody is there; the stream itself is patient.
    session.client.agents.list_page(page_size=1)
    channels = [EventChannel.PROACTIVE] if proactive else [EventChannel.TURN, EventChannel.PROACTIVE]
    watch = session.patient.watch(
        after_event_id=after, channels=channels, agent=agent, deltas=deltas and session.output.json
    )
    if session.output.err.is_terminal:
        session.output.note(
            "This is what agents do from now on. Ctrl-C leaves." if after is None else "Ctrl-C leaves."
        )
    shown = 0
    with watch:
        for event in watch:
            shown += _show(session.output, event)
            if shown == limit > 0:
                return


def _show(output: Output, event: TurnEvent) -> int:
    """Print an event. How many it counts for: words in the making are none."""
    if output.json:
        output.record(plain.event_plain(event))
        return int(not isinstance(event, TurnDelta))
    said = parts(event)
    if said:
        head = f"{event.event_id:>6}  {event.create_time.astimezone():%H:%M:%S}  "
        output.line((head, FAINT), *said)
    return 1
