"""Placing scores between the lowest and the highest, and finding the best of them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sage_server.engine.memory_index.vectors import Floats, Rows

Scores: TypeAlias = npt.NDArray[np.float64]
_MANY = 2_000


class Range(NamedTuple):
    """The lowest and the highest score of the candidates, between which the others are placed from 0 to 1."""

    low: float
    high: float

    @classmethod
    def of(cls, scores: Scores | Floats, among: npt.NDArray[np.bool_] | None) -> Range:
        """The range of those that count."""
        counted = scores if among is None else scores[among]
        return cls(float(counted.min()), float(counted.max())) if len(counted) else cls(0.0, 0.0)

    def spread(self, scores: Scores | Floats, weight: float) -> Scores:
        """The place of each score, times a weight."""
        if self.high == self.low:
            return np.full(len(scores), weight * self.place(self.high))
        spread = np.subtract(scores, self.low, dtype=np.float64)
        spread *= weight / (self.high - self.low)
        return spread

    def place(self, score: float) -> float:
        """The place of one score. Equal ones are at 1 if above 0."""
        if self.high == self.low:
            return 1.0 if self.high > 0 else 0.0
        return (score - self.low) / (self.high - self.low)


def highest(values: npt.NDArray[np.float64] | npt.NDArray[np.int64], count: int) -> Rows:
    """Where the highest values are, and all that equal the last of them."""
    if len(values) <= count:
        return np.arange(len(values))
    if len(values) <= _MANY:
        return _cut(values, count)
    # The last one in among some is a lower bound for all, and a cheap one.
    some = values[:: len(values) // (_MANY // 4)]
    above = np.flatnonzero(values >= np.partition(some, -count)[-count])
    return above[highest(values[above], count)] if len(above) < len(values) else _cut(values, count)


def _cut(values: npt.NDArray[np.float64] | npt.NDArray[np.int64], count: int) -> Rows:
    return np.flatnonzero(values >= np.partition(values, -count)[-count])
