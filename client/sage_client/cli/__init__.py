"""`sage`: the command line of the client. It needs the extra `cli`; the client itself does not."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point."""
    try:
        import rich  # noqa: F401, PLC0415 -- an extra: only asked for here
        import typer  # noqa: F401, PLC0415
    except ImportError:
        sys.stderr.write("sage: the command line needs more packages: pip install 'sage-memory[cli]'\n")
        raise SystemExit(1) from None
    from sage_client.cli.app import app  # noqa: PLC0415 -- it imports them

    app(prog_name="sage")
