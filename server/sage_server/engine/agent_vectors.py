"""Vectors of agents' descriptions, kept in memory only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

from sage_server.domain.agents import Agent
from sage_server.engine.lru import Lru
from sage_server.engine.usage import EmbeddingMeter
from sage_server.ports.embedding import Embedder, Embedders
from sage_server.ports.memories import Vector

_CAPACITY = 5_000
"""Vectors: some megabytes with the bundled model, some tens with a large one."""
_Key: TypeAlias = tuple[UUID, UUID, int, str, int]


class AgentVectors:
    """Embeds a task beside the descriptions of agents. A description that has not changed is embedded once.

    Implements UserCache: what a vector is of, a person wrote.
    """

    def __init__(self, embedders: Embedders, usage: EmbeddingMeter, capacity: int = _CAPACITY) -> None:
        self._embedders = embedders
        self._usage = usage
        self._known: Lru[_Key, tuple[UUID, Vector]] = Lru(capacity)
        self._generation = 0

    @property
    def generation(self) -> int:
        """Changes when something is forgotten."""
        return self._generation

    async def embed(
        self, user_id: UUID, task: str, agents: Sequence[Agent], generation: int
    ) -> tuple[Vector, Sequence[Vector]]:
        """The vector of the task, and one for each agent. The user is charged for what was embedded.

        `generation` is of before the agents were read: nothing comes back that was forgotten since.
        """
        embedder = self._embedders.current
        found = [self._find(_key(user_id, embedder, agent)) for agent in agents]
        missing = [at for at, vector in enumerate(found) if vector is None]
        texts = [task, *(agents[at].profile.description for at in missing)]
        embedded = await embedder.embed(texts)
        self._usage.record_embedding(user_id, embedder.model, embedded.tokens)
        for at, vector in zip(missing, embedded.vectors[1:], strict=True):
            found[at] = vector
            if generation == self._generation:
                # A copy: a row of the matrix would keep all of it in memory.
                self._known.put(_key(user_id, embedder, agents[at]), (user_id, vector.copy()))
        return embedded.vectors[0], [vector for vector in found if vector is not None]

    def forget(self, user_id: UUID) -> None:
        """Drop the user's vectors."""
        self._generation += 1
        self._known.discard(lambda known: known[0] == user_id)

    def forget_all(self) -> None:
        """Drop every vector."""
        self._generation += 1
        self._known.clear()

    def _find(self, key: _Key) -> Vector | None:
        known = self._known.get(key)
        return None if known is None else known[1]


def _key(user_id: UUID, embedder: Embedder, agent: Agent) -> _Key:
    return user_id, agent.id, agent.version, embedder.model, embedder.dimensions
