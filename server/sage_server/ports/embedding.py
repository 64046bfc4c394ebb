"""Making vectors of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Vectors: TypeAlias = npt.NDArray[np.float32]
"""One row a text, one column a dimension."""

WordWeight: TypeAlias = Callable[[str], float]
r"""How much one word of a query counts for one user. Must take any `\w+` as it is written, in any case, and
must answer with a finite number of 0 or more."""

_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Embedded:
    """Vectors of texts, in the order of the texts.

    `vectors` is C-contiguous and its rows have length 1; a row is zeros only if its text has nothing that
    the model knows. `tokens` is what the texts cost, as the model counts.
    """

    vectors: Vectors
    tokens: int


class Embedder(Protocol):
    """A model that makes vectors. Equal names mean vectors that can be compared."""

    @property
    def model(self) -> str:
        """The name that is stored beside vectors, with its maker: `local/wordllama-256`."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of every vector. Must never change."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Vectors of documents.

        Must take any number of texts, none included, and any valid Unicode of up to 100,000 characters each,
        empty ones included. Must not hold up the event loop, must not keep a text after it has answered, and
        must raise EMBEDDING_UNAVAILABLE if vectors cannot be had now. It is all of the texts or none.
        """
        ...

    async def embed_queries(self, texts: Sequence[str], weight: WordWeight) -> Embedded:
        """Vectors of queries, to compare with those of documents. Obliged as `embed` is.

        A model that sees words one by one must count each by its weight; one that reads a text as a whole
        may leave the weights aside. Weights that are all 0 must count as no weights. `weight` must be called
        by the caller's thread, before anything is awaited.
        """
        ...


class Embedders(Protocol):
    """The models that this server can use."""

    @property
    def current(self) -> Embedder:
        """The one that the settings name; new vectors are made with it."""
        ...

    def of(self, model: str, dimensions: int) -> Embedder | None:
        """The embedder of stored vectors. Must be None if this server cannot make it."""
        ...


def unit(vectors: npt.NDArray[np.floating[Any]]) -> Vectors:
    """The rows at length 1, as C-contiguous float32. Rows of zeros stay zeros.

    The numbers must be finite. Rows that have length 1 already keep their bits; if all do, the array itself
    may be the answer.
    """
    # In float64 the squares of a float32 neither overflow nor vanish.
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    lengths[(lengths == 0) | (np.abs(lengths - 1) <= _ROUNDING)] = 1
    if (lengths == 1).all():
        return np.ascontiguousarray(vectors, dtype=np.float32)
    return np.ascontiguousarray(vectors / lengths[:, np.newaxis], dtype=np.float32)
