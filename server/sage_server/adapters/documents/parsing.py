"""Starts the child process, feeds it, and ends it whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import sage_server
from sage_server.adapters.documents.extraction import Extracted, Limits, Refusal, Refused, one_line

_CHILD = "sage_server.adapters.documents.child"
_MEMORY = 2 * 1024**3
_HEADER_BYTES = 16 * 1024
# What the interpreter may need to start. The rest of the environment holds secrets.
_INHERITED_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


async def parsed(content: bytes, media_type: str, limits: Limits, timeout: float) -> Extracted:  # noqa: ASYNC109
    """What the child process makes of the content. Raises Refused, also for a child that breaks or hangs.

    The child is gone when this returns, raises or is cancelled.
    """
    try:
        async with asyncio.timeout(timeout):
            process = await _started(media_type, limits, timeout)
            try:
                answer = await _asked(process, content, limits)
            finally:
                await _ended(process)
    except TimeoutError:
        raise Refused(Refusal.TIMEOUT) from None
    return _understood(answer, limits)


async def _started(media_type: str, limits: Limits, timeout: float) -> Process:  # noqa: ASYNC109
    """A child with none of our files and secrets. The clock here is faster than its limit of CPU time, which
    is for a child that has lost us."""
    inherited = {name: os.environ[name] for name in _INHERITED_ENVIRONMENT if name in os.environ}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-B", "-P", "-s", "-W", "ignore", "-m", _CHILD),
        *("--media-type", media_type, "--chars", str(limits.chars), "--pages", str(limits.pages)),
        *("--memory", str(_MEMORY), "--seconds", str(math.ceil(timeout) + 1)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=Path(sys.executable).anchor,
        env={**inherited, "PYTHONPATH": str(Path(sage_server.__file__).parents[1])},
    )


async def _asked(process: Process, content: bytes, limits: Limits) -> bytes:
    """Feeds the content and reads the answer at the same time, so that neither side waits for the other."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_feed(process, content))
        answer = group.create_task(_answer(process, _HEADER_BYTES + 4 * limits.chars))
    return answer.result()


async def _feed(process: Process, content: bytes) -> None:
    """A child that stops reading has said, or will not say, what it makes of it."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(content)
        await process.stdin.drain()
    process.stdin.close()


async def _answer(process: Process, most: int) -> bytes:
    """What the child says. One that says more than it can have to say is stopped."""
    assert process.stdout is not None
    answer = bytearray()
    while piece := await process.stdout.read(1024 * 1024):
        answer += piece
        if len(answer) > most:
            _kill(process)
            break
    return bytes(answer)


async def _ended(process: Process) -> None:
    """Kills the child unless it has ended, and closes the pipes."""
    _kill(process)
    assert process.stdin is not None
    process.stdin.close()
    await process.communicate()


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _understood(answer: bytes, limits: Limits) -> Extracted:
    """The answer as a value. The child may be in the hands of the file, so nothing is believed."""
    line, _, body = answer.partition(b"\n")
    try:
        header = json.loads(line)
        if "refusal" in header:
            raise Refused(Refusal(header["refusal"]))
        title, size, text = str(header["title"]), int(header["bytes"]), body.decode()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused(Refusal.DAMAGED) from None
    if size != len(body) or not 0 < len(text) <= limits.chars:
        raise Refused(Refusal.DAMAGED)
    return Extracted(one_line(title), text)
