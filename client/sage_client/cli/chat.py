"""`sage chat`: talk to an agent."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sage_client.cli import failures, typed
from sage_client.cli.session import Session, UsageProblemError, session_of, text_given
from sage_client.cli.talk import Talk


def chat(
    ctx: typer.Context,
    *,
    message: Annotated[
        str | None,
        typer.Argument(
            help="One message; `-` reads standard input. Default: a talk, line by line.", show_default=False
        ),
    ] = None,
    agent: Annotated[str, typer.Option(help="Whom to talk to.")] = "main",
    conversation: Annotated[
        str,
        typer.Option(help="Talk in this conversation, where @name chooses the agent.", show_default=False),
    ] = "",
) -> None:
    """Talk to an agent.

    Its words come as it finds them; what it does on the way goes to stderr.

    In a talk, /help lists commands: /memory, /search, /context, /undo.

    Ctrl-C cancels the turn that runs, twice leaves. The agent main is enabled on first use.

    Example: sage chat "What did I want to sow in May?"
    """
    session = session_of(ctx)
    if message is not None:
        message = text_given(message)
        if not message.strip():
            raise UsageProblemError("the message is empty")
    session.ensure_agent(agent)
    talk = Talk(session, agent, conversation)
    if message is not None:
        raise typer.Exit(talk.say(message))
    raise typer.Exit(_typed(session, talk, agent) if sys.stdin.isatty() else _piped(talk))


def _piped(talk: Talk) -> int:
    """Every line of standard input. 1 if any failed."""
    code = 0
    for line in sys.stdin:
        if not line.strip():
            continue
        taken = talk.take(line.rstrip("\n"))
        if taken is None:
            break
        code = code or taken
    return code


def _typed(session: Session, talk: Talk, agent: str) -> int:
    """Message after message until the user leaves."""
    typed.edit_lines()
    session.output.note(f"You talk to {agent} at {session.address}. /help lists commands, Ctrl-D leaves.")
    pressed = False
    while True:
        try:
            text = typed.message()
        except EOFError:
            session.output.out.print()
            return 0
        except KeyboardInterrupt:
            session.output.out.print()
            if pressed:
                return failures.INTERRUPTED
            pressed = True
            session.output.note("Ctrl-C again leaves.")
            continue
        pressed = False
        if text.strip() and talk.take(text) is None:
            return 0
