"""What can be wrong with an embedding. No message and no metadata holds text or numbers of a vector."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias

from sage_server.domain.errors import Reason, SageError

UnavailableCause: TypeAlias = Literal["timeout", "rate_limited", "refused", "unreachable", "malformed"]
"""Why a provider gave no embedding: one fixed word, never the provider's own."""


def embedding_dimension_mismatch(expected: int, actual: int, index: int | None = None) -> SageError:
    """A vector of another length than the model's. `index` is its place in a batch."""
    return SageError(
        Reason.EMBEDDING_DIMENSION_MISMATCH,
        f"The vector has {actual} dimensions; the model in use has {expected}.",
        metadata={"expected": str(expected), "actual": str(actual)} | _place(index),
    )


def embedding_invalid(index: int | None = None) -> SageError:
    """A vector of length zero, or with a number that is not finite. `index` is its place in a batch."""
    return SageError(
        Reason.EMBEDDING_INVALID,
        "The vector has length zero or is not finite, and cannot be normalised.",
        metadata=_place(index),
    )


def embedding_model_mismatch(expected: str) -> SageError:
    """A vector of another model than the one in use, which is `expected`."""
    return SageError(
        Reason.EMBEDDING_MODEL_MISMATCH,
        f"The vector was made by another model than the one in use, {expected}.",
        metadata={"expected": expected},
    )


def embedding_unavailable(cause: UnavailableCause) -> SageError:
    """The provider gave no embedding; a later try may succeed."""
    return SageError(
        Reason.EMBEDDING_UNAVAILABLE,
        "The embedding provider gave no usable answer.",
        metadata={"cause": cause},
        retry_after=timedelta(seconds=1),
    )


def _place(index: int | None) -> dict[str, str]:
    return {} if index is None else {"index": str(index)}
