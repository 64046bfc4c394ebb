"""What a benchmark answers with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """The bound that a ratio should keep."""

    sign: str
    value: float

    def met(self, ratio: float) -> bool:
        compare: Callable[[float, float], bool] = operator.ge if self.sign == ">=" else operator.le
        return compare(ratio, self.value)

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


def at_least(value: float) -> Goal:
    return Goal(">=", value)


def at_most(value: float) -> Goal:
    return Goal("<=", value)


@dataclass(frozen=True)
class Result:
    """A ratio, measured in one interleaved run."""

    name: str
    """The key in the JSON object. It is a contract: whoever compares runs looks for it."""
    ratio: float
    spread: tuple[float, float]
    """The smallest and the largest ratio of a single pair of rounds."""
    goal: Goal
    ours: str
    """What was measured, with its unit. Example: `2,104 calls/s`."""
    baseline: str
    notes: Sequence[str] = ()
    """Lines for people: latencies, variants, what was counted."""
