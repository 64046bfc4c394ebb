"""python -m bench: measure, print a table for people, and ratios for machines as the last line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import uvloop

from bench.environment import Options, open_environment
from bench.registry import BENCHMARKS
from bench.result import Result

_FULL = Options(seconds=10, rounds=20, list_size=1_000_000)
_QUICK = Options(seconds=3, rounds=6, list_size=100_000)


def main() -> None:
    """Measure what was asked for."""
    arguments = _arguments()
    results = uvloop.run(_measure(arguments.names or list(BENCHMARKS), _options(arguments)))
    for result in results:
        print(f"\n{result.name}")
        for note in result.notes:
            print(f"  {note}")
    print()
    print(_table(results))
    print(json.dumps({result.name: round(result.ratio, 3) for result in results}))


async def _measure(names: Sequence[str], options: Options) -> list[Result]:
    results = []
    async with open_environment(options) as environment:
        for name in dict.fromkeys(names):
            print(f"measuring {name}", file=sys.stderr)
            results += await BENCHMARKS[name](environment)
    return results


def _table(results: Sequence[Result]) -> str:
    rows = [("name", "ours", "baseline", "ratio", "spread", "goal", "met")]
    for result in results:
        low, high = result.spread
        rows.append(
            (
                *(result.name, result.ours, result.baseline, f"{result.ratio:.2f}"),
                *(
                    f"{low:.2f}-{high:.2f}",
                    str(result.goal),
                    "yes" if result.goal.met(result.ratio) else "NO",
                ),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _options(arguments: argparse.Namespace) -> Options:
    base = _QUICK if arguments.quick else _FULL
    return Options(
        seconds=arguments.seconds or base.seconds,
        rounds=base.rounds,
        list_size=arguments.list_size or base.list_size,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Ratios against raw limits.")
    # Not `choices`: argparse would hold no names at all against them.
    parser.add_argument("names", nargs="*", metavar="name", help=f"default: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="shorter and smaller: a first impression")
    parser.add_argument("--seconds", type=_positive, help=f"for each contender, default {_FULL.seconds:g}")
    parser.add_argument(
        "--list-size", type=_size, help=f"conversations to list from, default {_FULL.list_size:,}"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return arguments


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= 600:
        raise argparse.ArgumentTypeError("more than 0 and at most 600")
    return value


def _size(text: str) -> int:
    value = int(text.replace("_", "").replace(",", ""))
    if not 1000 <= value <= 10_000_000:
        raise argparse.ArgumentTypeError("from 1,000 to 10,000,000")
    return value


if __name__ == "__main__":
    main()
