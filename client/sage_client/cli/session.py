"""What every command gets: a client and where to print."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeVar

import typer

import sage_client
from sage_client import RetryPolicy, SageClient, TlsOptions
from sage_client.cli.output import Output
from sage_client.errors import NotFound

T = TypeVar("T")

# A person waits: an absent server is to be told within a second. A turn that runs is worth waiting for.
QUICK = RetryPolicy(max_attempts=3)
PATIENT = RetryPolicy(max_attempts=12, max_backoff=3.0)


class UsageProblemError(Exception):
    """The command was not used as it can be. The message says how."""


@dataclass(frozen=True)
class Session:
    """The client as the global options say. Nothing is sent before a command asks."""

    output: Output
    address: str
    token: str | None
    user: str | None
    tls: bool
    ca_file: Path | None

    @cached_property
    def client(self) -> SageClient:
        """For calls that a person waits for."""
        tls: TlsOptions | bool = TlsOptions(ca_file=self.ca_file) if self.ca_file else self.tls
        try:
            return sage_client.connect(self.address, token=self.token, user=self.user, tls=tls, retry=QUICK)
        except (ValueError, OSError) as error:
            raise UsageProblemError(str(error)) from None

    @cached_property
    def patient(self) -> SageClient:
        """For streams that go on when their server is replaced."""
        return self.client.with_options(retry=PATIENT)

    def close(self) -> None:
        """Close what was opened."""
        if "client" in self.__dict__:
            self.client.close()

    def ensure_agent(self, name: str) -> None:
        """Raise NotFound if there is no such agent; `main` is enabled on first use, after saying so."""
        try:
            self.client.agents.get(name)
        except NotFound:
            if name != "main":
                raise
            self.output.note("First use: enabling the agent main, with the memory blocks persona and human.")
            self.client.agent(name).enable()


def session_of(context: typer.Context) -> Session:
    """The session of a command."""
    session = context.find_object(Session)
    assert session is not None
    return session


def first(found: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """The first of a list, and whether there are more."""
    iterator: Iterator[T] = iter(found)
    taken = list(islice(iterator, limit))
    return taken, len(taken) == limit and next(iterator, None) is not None


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be taken back."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblemError("give --yes: this cannot be taken back, and there is nobody to ask")
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as error:
        # Both Ctrl-C and the end of input, and only the former is an interruption.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    if not agreed:
        raise typer.Abort


def text_given(text: str) -> str:
    """The text, or all of standard input for `-`."""
    return sys.stdin.read() if text == "-" else text


def edited(value: str) -> str:
    """The text as the user left it in their editor."""
    if not sys.stdin.isatty():
        raise UsageProblemError("give the new text, or `-` to read it from standard input")
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.NamedTemporaryFile("w", suffix=".md", delete=False, encoding="utf-8") as file:
        file.write(value)
    path = Path(file.name)
    try:
        subprocess.run([*editor, str(path)], check=True)  # noqa: S603 -- the user's own choice
        text = path.read_text(encoding="utf-8")
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageProblemError(f"the editor {editor[0]} failed: {error}") from None
    finally:
        path.unlink()
    # Editors end a file with a line break that the text did not have.
    return text if value.endswith("\n") else text.removesuffix("\n")
