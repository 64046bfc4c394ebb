"""mem0, with FAISS in files and with pgvector. `infer=False`: no model reads the texts, they are stored as
they are; a stub embeds them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

from mem0 import Memory as Mem0
from mem0.embeddings.base import EmbeddingBase

from bench.peers.peer import Kind, Peer
from bench.peers.workload import DIMENSIONS, Embedder, Memory


class _Stub(EmbeddingBase):  # type: ignore[misc]
    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self._embedder = embedder

    def embed(self, text: str, _action: str | None = None) -> list[float]:
        return self._embedder.values(text)


class _Mem0(Peer):
    """mem0 has no bulk insert of given texts: `add` with a list stores one after the other."""

    kind = Kind.PRODUCT
    _provider: str

    def open(self) -> None:
        logging.getLogger("mem0").setLevel(logging.ERROR)
        # The keys of the model and of the embedder are never used: one is not asked, one is replaced.
        unused = {"provider": "openai", "config": {"api_key": "unused"}}
        self._memory = Mem0.from_config(
            {
                "vector_store": {
                    "provider": self._provider,
                    "config": {
                        "collection_name": "memories",
                        "embedding_model_dims": DIMENSIONS,
                        **self._options(),
                    },
                },
                "llm": unused,
                "embedder": unused,
                "history_db_path": str(self.place.folder / "history.db"),
            }
        )
        self._memory.embedding_model = _Stub(self.place.embedder)

    def _options(self) -> Mapping[str, object]:
        raise NotImplementedError

    def close(self) -> None:
        self._memory.db.close()

    def insert_many(self, user: str, memories: Sequence[Memory]) -> None:
        # Metadata is the same for all texts of a call, so memories with different tags are different calls.
        for memory in memories:
            self.insert_one(user, memory)

    def insert_one(self, user: str, memory: Memory) -> None:
        self._memory.add(memory.text, user_id=user, metadata={"tag": memory.tag}, infer=False)

    def search(self, user: str, query: str, k: int, tag: str = "") -> list[str]:
        filters = {"user_id": user, "tag": tag} if tag else {"user_id": user}
        # The threshold would leave out memories that are among the nearest but not near.
        found = self._memory.search(query, top_k=k, filters=filters, threshold=0.0)
        return [result["memory"] for result in found["results"]]

    def fill(self, memories: Sequence[tuple[str, Memory]]) -> None:
        texts = [memory.text for _, memory in memories]
        self._memory.vector_store.insert(
            vectors=self.place.embedder.matrix(texts).tolist(),
            ids=[str(uuid4()) for _ in memories],
            payloads=[_payload(user, memory) for user, memory in memories],
        )


class Mem0Faiss(_Mem0):
    """mem0's FAISS store writes all of its files again at every insert."""

    key = "mem0_faiss"
    name = "mem0 (FAISS)"
    about = "in process, files, exact scan, filters after the search"
    bulk_sample = 10
    single_sample = 4
    _provider = "faiss"

    def _options(self) -> Mapping[str, object]:
        return {"path": str(self.place.folder / "faiss")}


class Mem0Pgvector(_Mem0):
    """mem0 on Postgres, with its default index."""

    key = "mem0_pgvector"
    name = "mem0 (pgvector)"
    about = "library on Postgres, HNSW, filters after the index"
    bulk_sample = 100
    _provider = "pgvector"

    def _options(self) -> Mapping[str, object]:
        return {"connection_string": self.place.dsn, "hnsw": True}

    def settle(self) -> None:
        with self._memory.vector_store.connection_pool.connection() as connection:
            connection.execute("ANALYZE")

    def close(self) -> None:
        self._memory.vector_store.connection_pool.close()
        super().close()


def _payload(user: str, memory: Memory) -> dict[str, str]:
    """What `add` stores beside the vector."""
    now = datetime.now(UTC).isoformat()
    return {
        "tag": memory.tag,
        "user_id": user,
        "role": "user",
        "data": memory.text,
        "hash": hashlib.md5(memory.text.encode(), usedforsecurity=False).hexdigest(),
        "created_at": now,
        "updated_at": now,
        "text_lemmatized": memory.text,
    }
