"""How much and for how long a provider is asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelLimits:
    """The limits of calls to one provider.

    `try_seconds` is for a whole try. `idle_seconds` is for the time between two parts of a stream, from its
    first words on: a model may think for long before them. `total_seconds` is for all tries and the waits
    between them. An answer of more than `answer_characters` is cut off there.
    """

    at_once: int = 32
    tries: int = 5
    backoff_seconds: float = 0.5
    connect_seconds: float = 10.0
    try_seconds: float = 120.0
    idle_seconds: float = 30.0
    total_seconds: float = 240.0
    answer_characters: int = 6_000_000
