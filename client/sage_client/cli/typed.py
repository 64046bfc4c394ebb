"""What a person types in a talk: messages of one line or more."""

from __future__ import annotations

import sys
from contextlib import suppress
from select import select

ASK = "\n> "
MORE = "… "
QUOTES = '"""'
# A terminal hands on a long paste in pieces, faster than anybody types.
PAUSE = 0.05


def edit_lines() -> None:
    """Lines can be edited and recalled, and a paste stays whole, where there is such a thing."""
    with suppress(ImportError):
        import readline  # noqa: PLC0415

        # What may stand in for it marks no pastes, and reads settings of another form.
        if "GNU" in (readline.__doc__ or ""):
            readline.parse_and_bind("set enable-bracketed-paste on")


def message() -> str:
    """The next message or command. Raises EOFError and KeyboardInterrupt as `input` does."""
    line = input(ASK)
    if line.strip() == QUOTES:
        return _until_quotes()
    if line.startswith("/") or not line:
        return line
    lines = [line]
    while (goes_on := lines[-1].endswith("\\")) or _more_waits():
        if goes_on:
            lines[-1] = lines[-1][:-1]
        lines.append(input(MORE))
    return "\n".join(lines)


def _until_quotes() -> str:
    lines: list[str] = []
    while (line := input(MORE)).strip() != QUOTES:
        lines.append(line)
    return "\n".join(lines)


def _more_waits() -> bool:
    """Whether the next line is there already: of a paste that the terminal did not mark as one."""
    return sys.platform != "win32" and bool(select([sys.stdin], [], [], PAUSE)[0])
