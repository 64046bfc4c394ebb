"""Record a real session of the command line as a picture: a server is started, each command is run on a
terminal, and what it shows is drawn as SVG, once for light and once for dark pages.

Run through make: `make pictures`. `python scripts/record_session.py FOLDER --columns 120` draws elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
STARTED = "Sage listens on "

BOOKLET = "# Beans\n\nSow runner beans after the last frost, in the second week of May. Three to a cane.\n"
SESSION = (
    'sage chat "My name is Maria and I grow beans on a balcony in Lisbon."',
    "sage docs add beans.md",
    'sage chat "When do I sow my beans?"',
    'sage memory search "how many to a cane" --limit 1',
    "sage memory history human",
    "sage context",
)

_ANSI = [(0, 0, 0), (190, 30, 45), (20, 130, 60), (150, 110, 0), (30, 80, 190), (140, 40, 150), (0, 120, 140)]
_BRIGHT = [(90, 90, 90), (255, 110, 110), (90, 210, 130), (230, 190, 80), (110, 160, 255), (220, 130, 230)]
THEMES = {
    "light": TerminalTheme((255, 255, 255), (36, 41, 47), [*_ANSI, (120, 120, 120)]),
    "dark": TerminalTheme((22, 27, 34), (201, 209, 217), [*_BRIGHT, (80, 200, 215), (230, 230, 230)]),
}
# Rich's own loads a font from the web; a picture in a README must not.
PICTURE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Record, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "docs" / "images")
    parser.add_argument("--columns", type=int, default=92, help="width of the terminal (default: 92)")
    options = parser.parse_args()
    # Where the user who runs Postgres can reach it, also when root records.
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        Path(home).chmod(0o755)
        (Path(home) / "beans.md").write_text(BOOKLET)
        with server(Path(home)) as address:
            shown = [(line, on_terminal(line, address, Path(home), options.columns)) for line in SESSION]
    for name, theme in THEMES.items():
        picture = options.folder / f"session-{name}.svg"
        picture.write_text(drawn(shown, theme, options.columns))
        print(f"Wrote {picture}")


@contextmanager
def server(home: Path) -> Iterator[str]:
    """A server without any setting of a model; gives its address."""
    settings = {
        "SAGE_LISTEN": "127.0.0.1:0",
        "SAGE_METRICS_LISTEN": "off",
        "SAGE_DATA_DIR": str(home / "data"),
    }
    process = subprocess.Popen(
        (BIN / "sage-server", "serve"), env=plain_environment() | settings, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith(STARTED):
                yield line.split()[3]
                break
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def on_terminal(line: str, address: str, home: Path, columns: int) -> str:
    """What a command shows on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    name, *arguments = shlex.split(line)
    variables = {"SAGE_CLIENT_ADDRESS": address, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        (BIN / name, *arguments),
        cwd=home,
        env=plain_environment() | variables,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # so a terminal says that nobody writes any more
        while piece := os.read(ours, 65536):
            said += piece
    os.close(ours)
    if process.wait() != 0:
        sys.exit(f"{line}\n{said.decode()}")
    return said.decode().replace("\r\n", "\n")


def drawn(shown: list[tuple[str, str]], theme: TerminalTheme, columns: int) -> str:
    """The session as a picture."""
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True, legacy_windows=False)
    for number, (line, said) in enumerate(shown):
        if number:
            console.print()
        console.print(Text(f"$ {line}", style="bold"))
        console.print(Text.from_ansi(said.rstrip("\n")))
    return console.export_svg(title="sage", theme=theme, code_format=PICTURE, unique_id="sage")


def plain_environment() -> dict[str, str]:
    """The environment of somebody who has set nothing of Sage's."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SAGE_", "OPENAI_", "NO_COLOR"))
    }


if __name__ == "__main__":
    main()
