"""Sage, as an application uses it: the Python client, over gRPC, with an API key, for a user at a time."""

from __future__ import annotations

from collections.abc import Sequence

import sage_client
from bench.peers.peer import Kind, Peer
from bench.peers.workload import Memory


class Sage(Peer):
    """Vectors are given, as to everybody, and the query's words too: its search is hybrid."""

    key = "sage"
    name = "Sage"
    kind = Kind.SAGE
    about = "remote (gRPC), Postgres, encrypted, exact scan and words"

    def open(self) -> None:
        self._client = sage_client.connect(self.place.address, token=self.place.api_key)

    def close(self) -> None:
        self._client.close()

    def insert_many(self, user: str, memories: Sequence[Memory]) -> None:
        vector = self.place.embedder.vector
        self._client.with_options(user=user).memory.insert_many(
            sage_client.NewMemory(memory.text, tags=(memory.tag,), embedding=vector(memory.text))
            for memory in memories
        )

    def insert_one(self, user: str, memory: Memory) -> None:
        vector = self.place.embedder.vector(memory.text)
        self._client.with_options(user=user).memory.insert(memory.text, tags=(memory.tag,), embedding=vector)

    def search(self, user: str, query: str, k: int, tag: str = "") -> list[str]:
        found = self._client.with_options(user=user).memory.search(
            query, embedding=self.place.embedder.vector(query), tags=(tag,) if tag else (), top_k=k
        )
        return [result.memory.text for result in found.results]
