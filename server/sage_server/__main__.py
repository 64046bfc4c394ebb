"""`sage-server`, and `python -m sage_server`."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command line."""
    # Imports make a quarter of a million objects and next to no garbage: the collector would look at them
    # hundreds of times meanwhile, and need not look at them afterwards either.
    gc.disable()
    from sage_server.cli import main as run  # noqa: PLC0415 (the collector must be off before)

    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()
