"""The root of the command line: options that may stand anywhere, and failures as one line."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup, TyperOption

from sage_client.cli import failures
from sage_client.cli.output import nobody_reads
from sage_client.cli.session import Session, UsageProblemError
from sage_client.errors import SageError

FLAGS = frozenset({"--json", "--tls"})
VALUES = frozenset({"--address", "--token", "--user", "--tls-ca"})


class SageGroup(TyperGroup):
    """Takes the global options before or after a command's name, and turns failures into exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, the global options first."""
        _without_types(ctx)
        return super().parse_args(ctx, args if ctx.resilient_parsing else globals_first(args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            nobody_reads()
        except KeyboardInterrupt:
            # The shell's prompt is not to follow the ^C.
            if (session := ctx.find_object(Session)) and session.output.err.is_terminal:
                session.output.err.print()
            raise
        except (SageError, UsageProblemError, UnicodeError, OSError, typer.Abort) as error:
            raise typer.Exit(_told(ctx.find_object(Session), error)) from None


def _without_types(ctx: Any) -> None:
    """Leave the types of flags out of the help: `--json <bool>` reads as if a value could be given."""
    for option in ctx.command.get_params(ctx):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    for below in getattr(ctx.command, "commands", {}).values():
        _without_types(typer.Context(below, parent=ctx))


def _told(session: Session, error: Exception) -> int:
    """Say in one line what went wrong. The exit code."""
    match error:
        case SageError():
            return failures.show(session.output, error, session.address)
        case UsageProblemError():
            session.output.problem(str(error))
            return failures.USAGE
        case UnicodeError():
            session.output.problem("a text is not valid UTF-8")
            return failures.USAGE
        case OSError():
            session.output.problem(f"{error.strerror or 'cannot be read or written'}: {error.filename or ''}")
        case _:
            session.output.note("Nothing was done.")
    return failures.FAILED


def globals_first(args: list[str]) -> list[str]:
    """The arguments with the global options in front. What follows `--` stays where it is."""
    ahead: list[str] = []
    rest: list[str] = []
    coming = iter(args)
    for arg in coming:
        if arg == "--":
            rest += [arg, *coming]
        elif arg in FLAGS or arg.partition("=")[0] in VALUES:
            ahead.append(arg)
            if arg in VALUES:
                ahead += [value for value in [next(coming, None)] if value is not None]
        else:
            rest.append(arg)
    return ahead + rest
