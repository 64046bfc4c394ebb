"""Vectors that callers bring."""

from __future__ import annotations

import numpy as np

from sage_server.domain.embeddings import (
    embedding_dimension_mismatch,
    embedding_invalid,
    embedding_model_mismatch,
)
from sage_server.ports.embedding import Vectors, unit
from sage_server.ports.memories import Space, Vector


def checked(vectors: list[Vector], space: Space, indexes: list[int] | None = None) -> Vectors:
    """The vectors at length 1; `indexes` are their places in a batch.

    Raises EMBEDDING_DIMENSION_MISMATCH or EMBEDDING_INVALID for the first that will not do.
    """
    places: list[int] | list[None] = [None] * len(vectors) if indexes is None else indexes
    for vector, place in zip(vectors, places, strict=True):
        if len(vector) != space.dimensions:
            raise embedding_dimension_mismatch(space.dimensions, len(vector), place)
    matrix = np.stack(vectors)
    # In float64, where the squares of a float32 neither overflow nor vanish.
    lengths = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)
    for length, place in zip(lengths.tolist(), places, strict=True):
        if not np.isfinite(length) or length == 0:
            raise embedding_invalid(place)
    return unit(matrix)


def checked_one(vector: Vector, space: Space, index: int | None = None) -> Vector:
    """As `checked`, for one."""
    one: Vector = checked([vector], space, None if index is None else [index])[0]
    return one


def check_model(model: str, space: Space) -> None:
    """Refuse a vector that says it is of another model. One that says nothing is believed."""
    if model and model != space.model:
        raise embedding_model_mismatch(space.model)
