"""python -m bench.peers: measure, print tables for people, draw the picture, and figures for machines as the
last line."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.peers.measure import Size, measure
from bench.peers.peer import Peer
from bench.peers.picture import draw
from bench.peers.place import open_ground
from bench.peers.registry import PEERS, versions
from bench.peers.report import Report
from bench.peers.workload import Workload

_PICTURE = Path(__file__).parents[2] / "docs" / "images" / "peers.svg"


def main() -> None:
    """Measure what was asked for."""
    arguments = _arguments()
    keys = arguments.names or list(PEERS)
    report = asyncio.run(_measure(keys, Size(rounds=2 if arguments.quick else 10)))
    print(f"\n{report.times()}\n\n{report.recalls()}\n")
    for aim in report.goals():
        print(
            f"{aim.name}: {aim.ratio:.2f} ({aim.other}), goal {aim.goal}, met: {'yes' if aim.met else 'NO'}"
        )
    if arguments.picture and "sage" in keys:
        draw(report, arguments.picture)
    print(json.dumps(report.as_json()))


async def _measure(keys: Sequence[str], size: Size) -> Report:
    """The contenders block; the event loop has nothing to do while they are measured."""
    started = time.monotonic()
    workload = Workload()
    async with AsyncExitStack() as stack:
        ground = await stack.enter_async_context(open_ground(workload.embedder, sage="sage" in keys))
        peers: list[Peer] = []
        for key in keys:
            peer = PEERS[key](await ground.place(f"peer_{key}"))
            peer.open()
            stack.callback(peer.close)
            peers.append(peer)
        # What is there for good is not looked at again: no contender pays for another's objects.
        gc.freeze()
        figures = measure(peers, workload, size)
    return Report(peers, figures, versions(), time.monotonic() - started)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.peers", description="Sage and its peers, the same work.")
    # Not `choices`: argparse would hold no names at all against them.
    parser.add_argument("names", nargs="*", metavar="name", help=f"default: {', '.join(PEERS)}")
    parser.add_argument("--quick", action="store_true", help="2,000 memories instead of 10,000")
    parser.add_argument(
        "--picture",
        type=_picture,
        default=None,
        help="where to draw; default: docs/images/peers.svg if not quick",
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in PEERS]
    if unknown:
        parser.error(f"no contender {', '.join(unknown)}; there are {', '.join(PEERS)}")
    if arguments.picture is None and not arguments.quick and not arguments.names:
        arguments.picture = _PICTURE
    return arguments


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in {".svg", ".png"}:
        raise argparse.ArgumentTypeError("an .svg or a .png file")
    return path


if __name__ == "__main__":
    main()
