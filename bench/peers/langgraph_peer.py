"""LangGraph's PostgresStore with its vector index: a namespace for each user."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from uuid import uuid4

from langgraph.store.base import PutOp
from langgraph.store.postgres import PostgresStore

from bench.peers.peer import Kind, Peer
from bench.peers.workload import DIMENSIONS, Memory


class LangGraph(Peer):
    """The long-term memory of LangGraph's agents."""

    key = "langgraph"
    name = "LangGraph PostgresStore"
    kind = Kind.PRODUCT
    about = "library on Postgres, HNSW or a scan, as the planner thinks"

    def open(self) -> None:
        self._stack = ExitStack()
        embedder = self.place.embedder
        self._store = self._stack.enter_context(
            PostgresStore.from_conn_string(
                self.place.dsn,
                index={
                    "dims": DIMENSIONS,
                    "embed": lambda texts: [embedder.values(text) for text in texts],
                    "fields": ["text"],
                    "distance_type": "cosine",
                },
            )
        )
        self._store.setup()

    def close(self) -> None:
        self._stack.close()

    def insert_many(self, user: str, memories: Sequence[Memory]) -> None:
        self._store.batch([PutOp(_namespace(user), str(uuid4()), _value(memory)) for memory in memories])

    def insert_one(self, user: str, memory: Memory) -> None:
        self._store.put(_namespace(user), str(uuid4()), _value(memory))

    def search(self, user: str, query: str, k: int, tag: str = "") -> list[str]:
        wanted = {"tag": tag} if tag else None
        found = self._store.search(_namespace(user), query=query, filter=wanted, limit=k)
        return [item.value["text"] for item in found]

    def settle(self) -> None:
        self._store.conn.execute("ANALYZE")


def _namespace(user: str) -> tuple[str, str]:
    return ("memories", user)


def _value(memory: Memory) -> dict[str, str]:
    return {"text": memory.text, "tag": memory.tag}
