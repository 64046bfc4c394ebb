"""The sync client is made from the async one, so that no twin is kept by hand.

Tokens are rewritten, one by one: `async` and `await` go, names that speak of async get their plain form,
`grpc.aio` becomes `grpc`. What the rules below do not know stops the script: nothing half-async is written.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "client" / "sage_client" / "_async"
TARGET = ROOT / "client" / "sage_client" / "_sync"

NAMES = {
    "_async": "_sync",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "aclose": "close",
    "aclosing": "closing",
    "aiter": "iter",
    "anext": "next",
    "asyncio": "time",
}
KEYWORDS = {"async", "await"}
# Of asyncio only what `time` has under the same name.
ASYNCIO = {"sleep"}
# AsyncIterator, AsyncTransport, AdminServiceAsyncStub.
MARKER = re.compile(r"Async(?=[A-Z])")
PROSE = re.compile(r"\b(?:async|await) (?=\w)")
# Its docstring is about the rules of writing the original.
PACKAGE = '"""The client without async. Everything here is generated from `_async`."""\n'


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `text` in the place of what lies between two offsets."""

    start: int
    end: int
    text: str


class NoPlainFormError(Exception):
    """The original uses something that has no known plain form."""


def generate(target: Path) -> None:
    """Write the sync client to a folder that holds nothing else."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for source in sorted(SOURCE.glob("*.py")):
        text = PACKAGE if source.name == "__init__.py" else rewrite(source.read_text(encoding="utf-8"))
        origin = source.relative_to(ROOT).as_posix()
        header = f"# Generated from {origin} by scripts/sync_client.py: do not edit.\n"
        (target / source.name).write_text(_tidy(header + text, source), encoding="utf-8")


def rewrite(source: str) -> str:
    """The same program without async. Layout may suffer."""
    text = source
    for edit in sorted(_edits(source), key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _edits(source: str) -> Iterator[Edit]:
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    starts = _line_starts(source)

    def offset(position: tuple[int, int]) -> int:
        return starts[position[0] - 1] + position[1]

    for index, token in enumerate(tokens[:-1]):
        start, end, following = offset(token.start), offset(token.end), tokens[index + 1]
        if token.type in {tokenize.STRING, tokenize.COMMENT}:
            yield Edit(start, end, MARKER.sub("", PROSE.sub("", token.string)))
        elif token.type != tokenize.NAME:
            continue
        elif token.string in KEYWORDS:
            yield Edit(start, offset(following.start), "")
        elif token.string == "aio":
            if [before.string for before in tokens[index - 2 : index]] != ["grpc", "."]:
                raise NoPlainFormError(f"line {token.start[0]}: write grpc.aio in full")
            yield Edit(offset(tokens[index - 1].start), end, "")
        else:
            if token.string == "asyncio" and following.string == ".":
                _check_asyncio(tokens[index + 2])
            yield Edit(start, end, NAMES.get(token.string, MARKER.sub("", token.string)))


def _check_asyncio(member: tokenize.TokenInfo) -> None:
    if member.string not in ASYNCIO:
        raise NoPlainFormError(f"line {member.start[0]}: asyncio.{member.string} has no plain form here")


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in io.StringIO(source):
        starts.append(starts[-1] + len(line))
    return starts


def _tidy(text: str, source: Path) -> str:
    # Under the name of the original, so that the place it is written to makes no difference.
    ruff = str(Path(sys.executable).parent / "ruff")
    sorted_imports = _filter(text, ruff, "check", "--quiet", "--select=I", "--fix", source=source)
    return _filter(sorted_imports, ruff, "format", source=source)


def _filter(text: str, *command: str, source: Path) -> str:
    finished = subprocess.run(
        (*command, f"--stdin-filename={source}", "-"),
        cwd=ROOT,
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if finished.returncode != 0:
        sys.exit(f"{source}: the rewritten text is not Python that ruff can read:\n{finished.stderr}")
    return finished.stdout


if __name__ == "__main__":
    generate(TARGET)
