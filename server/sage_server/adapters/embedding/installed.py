"""The embedders of one server, by the names that are stored beside vectors."""

from __future__ import annotations

from collections.abc import Callable

from sage_server.ports.embedding import Embedder


class InstalledEmbedders:
    """The current embedder, and others that are made when a stored vector first asks for them.

    `make` answers with None for a model that this server cannot make. What it makes is kept.
    """

    def __init__(self, current: Embedder, make: Callable[[str, int], Embedder | None]) -> None:
        self._current = current
        self._make = make
        self._made = {(current.model, current.dimensions): current}

    @property
    def current(self) -> Embedder:
        """See Embedders."""
        return self._current

    def of(self, model: str, dimensions: int) -> Embedder | None:
        """See Embedders."""
        found = self._made.get((model, dimensions))
        if found is None:
            found = self._make(model, dimensions)
            if found is None or found.dimensions != dimensions:
                return None
            self._made[model, dimensions] = found
        return found
