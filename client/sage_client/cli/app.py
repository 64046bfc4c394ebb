"""`sage`: the commands, and the options that all of them share."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer import rich_utils

from sage_client.cli import agents, chat, context, conversations, docs, events, memory, transfer, usage, users
from sage_client.cli.group import SageGroup
from sage_client.cli.output import FAINT, LABEL, Output
from sage_client.cli.session import Session
from sage_client.options import DEFAULT_ADDRESS

# Yellow cannot be read on white.
rich_utils.STYLE_USAGE = LABEL
rich_utils.STYLE_TYPES = rich_utils.STYLE_OPTION_ENVVAR = FAINT

app = typer.Typer(
    name="sage",
    cls=SageGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no server, 130 Ctrl-C, "
    "141 when nobody reads on.",
)


def _version(value: bool) -> None:  # noqa: FBT001 -- as Typer calls it
    if value:
        typer.echo(version("sage-memory"))
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    *,
    address: Annotated[
        str, typer.Option(envvar="SAGE_CLIENT_ADDRESS", help="The server, `host:port` or `unix:/path`.")
    ] = DEFAULT_ADDRESS,
    token: Annotated[
        str | None,
        typer.Option(envvar="SAGE_CLIENT_TOKEN", help="An API key or a JWT.", show_default=False),
    ] = None,
    user: Annotated[
        str | None, typer.Option(envvar="SAGE_CLIENT_USER", help="The user that an API key acts for.")
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", envvar="SAGE_CLIENT_TLS", help="Connect with TLS.")] = False,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="SAGE_CLIENT_TLS_CA",
            help="Connect with TLS and trust the certificates in this file.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="JSON for scripts; JSON Lines where there is more to come.")
    ] = False,
    show_version: Annotated[  # noqa: ARG001 -- its callback does it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Talk to Sage: a persistent agent whose memory is yours to read, edit and take along.

    The options below may stand before or after a command.

    Example: sage chat "Remember that beans are sown in May."
    """
    session = Session(Output(json=json), address, token or None, user or None, tls, tls_ca)
    ctx.obj = session
    ctx.call_on_close(session.close)


app.command("chat")(chat.chat)
app.add_typer(memory.app, name="memory")
app.add_typer(docs.app, name="docs")
app.add_typer(conversations.app, name="conversations")
app.add_typer(agents.app, name="agents")
app.command("events")(events.events)
app.command("context")(context.context)
app.command("usage")(usage.usage)
app.command("export")(transfer.export_command)
app.command("import")(transfer.import_command)
app.command("erase")(users.erase)
