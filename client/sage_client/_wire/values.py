"""Plain values that many requests carry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sage.v1 import memory_pb2
from sage_client._wire.times import time_to
from sage_client.models.memory import Vector


def vector_to(vector: Vector | None) -> Sequence[float] | None:
    """The numbers. An array gives them all at once: one by one they would cost six times as much."""
    if vector is None or isinstance(vector, Sequence):
        return vector
    return vector.tolist()


def texts_to(texts: Iterable[str]) -> Iterable[str]:
    """The texts. A single one is refused: it would be sent letter by letter."""
    if isinstance(texts, str):
        raise TypeError("several texts are expected, for example [text]")
    return texts


def time_range_to(after: datetime | None, before: datetime | None) -> memory_pb2.TimeRange | None:
    """A range, or None if neither end is given."""
    if after is None and before is None:
        return None
    return memory_pb2.TimeRange(start_time=time_to(after), end_time=time_to(before))
