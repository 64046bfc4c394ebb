"""Measuring contenders against each other: short rounds in turn, in one run, so that whatever else the
machine does meets all of them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Work: TypeAlias = Callable[[int], Awaitable[object]]
"""One call. The number says which of the workers makes it, from 0; a worker makes one call at a time."""

_ROUND_LIMIT = 60.0


@dataclass(frozen=True)
class Round:
    """What one contender did in one round."""

    seconds: float
    latencies: Sequence[float]

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies)


@dataclass(frozen=True)
class Rounds:
    """What one contender did in all rounds."""

    rounds: Sequence[Round]
    in_flight: int

    @property
    def calls(self) -> int:
        return sum(len(one.latencies) for one in self.rounds)

    @property
    def per_second(self) -> float:
        """The median of the rounds."""
        return statistics.median(one.per_second for one in self.rounds)

    @property
    def milliseconds(self) -> float:
        """The time of a call on average over a round, the median of the rounds."""
        return 1000 * self.in_flight / self.per_second

    @property
    def p50(self) -> float:
        """In milliseconds, the median of the rounds."""
        return 1000 * statistics.median(one.p50 for one in self.rounds)

    @property
    def p99(self) -> float:
        """In milliseconds, of all calls."""
        every = sorted(latency for one in self.rounds for latency in one.latencies)
        return 1000 * every[min(len(every) - 1, len(every) * 99 // 100)]

    def described(self, name: str) -> str:
        return (
            f"{name}: {self.per_second:,.0f} calls/s, p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, "
            f"{self.in_flight} in flight"
        )


@dataclass(frozen=True)
class Ratio:
    """Of the medians, with the extremes of single pairs of rounds."""

    value: float
    spread: tuple[float, float]


def ratio_of(ours: Rounds, baseline: Rounds, measure: Callable[[Round], float]) -> Ratio:
    """Ours divided by the baseline, round by round and in all."""
    mine = [measure(one) for one in ours.rounds]
    theirs = [measure(one) for one in baseline.rounds]
    pairs = [a / b for a, b in zip(mine, theirs, strict=True)]
    return Ratio(statistics.median(mine) / statistics.median(theirs), (min(pairs), max(pairs)))


async def interleave(
    contenders: Mapping[str, Work], *, in_flight: int, seconds: float, rounds: int
) -> dict[str, Rounds]:
    """Every contender once a round, the order turned round every time; `seconds` in all for each. A first
    round warms up and does not count."""
    length = seconds / rounds
    found: dict[str, list[Round]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        order = list(contenders) if number % 2 else list(contenders)[::-1]
        for name in order:
            one = await _round(contenders[name], in_flight, length)
            if number:
                found[name].append(one)
    return {name: Rounds(done, in_flight) for name, done in found.items()}


async def _round(work: Work, in_flight: int, seconds: float) -> Round:
    latencies: list[float] = []
    clock = time.perf_counter
    started = clock()
    end = started + seconds

    async def worker(number: int) -> None:
        now = clock()
        while now < end:
            await work(number)
            before, now = now, clock()
            latencies.append(now - before)

    async with asyncio.timeout(_ROUND_LIMIT + seconds):
        await asyncio.gather(*(worker(number) for number in range(in_flight)))
    return Round(clock() - started, latencies)
