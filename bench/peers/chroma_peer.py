"""Chroma in process, in files: a collection for each user, which is several times as fast as a filter."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import chromadb
from chromadb.config import Settings

from bench.peers.peer import Kind, Peer
from bench.peers.workload import Memory


class Chroma(Peer):
    """Vectors are given, as everywhere here; Chroma's own embedder is not loaded."""

    key = "chroma"
    name = "Chroma"
    kind = Kind.PRODUCT
    about = "in process, files, HNSW, a collection for each user"

    def open(self) -> None:
        settings = Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(str(self.place.folder / "chroma"), settings)
        self._collections: dict[str, chromadb.Collection] = {}

    def close(self) -> None:
        self._client.close()

    def insert_many(self, user: str, memories: Sequence[Memory]) -> None:
        texts = [memory.text for memory in memories]
        self._collection(user).add(
            ids=[str(uuid4()) for _ in memories],
            embeddings=self.place.embedder.matrix(texts),
            documents=texts,
            metadatas=[{"tag": memory.tag} for memory in memories],
        )

    def insert_one(self, user: str, memory: Memory) -> None:
        self.insert_many(user, [memory])

    def search(self, user: str, query: str, k: int, tag: str = "") -> list[str]:
        found = self._collection(user).query(
            query_embeddings=[self.place.embedder.vector(query)],
            n_results=k,
            where={"tag": tag} if tag else None,
            include=["documents", "distances", "metadatas"],
        )
        return list(found["documents"][0])

    def _collection(self, user: str) -> chromadb.Collection:
        if user not in self._collections:
            self._collections[user] = self._client.create_collection(
                user, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
            )
        return self._collections[user]
