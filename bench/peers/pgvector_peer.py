"""pgvector by hand, as somebody careful would write it: COPY for many rows, prepared statements for the rest,
a B-tree for users and tags, and no abstraction above. Once with an HNSW index and once without."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from pgvector.psycopg import register_vector

from bench.peers.peer import Kind, Peer
from bench.peers.workload import DIMENSIONS, Memory

_TABLE = f"""
CREATE TABLE memories (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id text NOT NULL,
    tag text NOT NULL,
    text text NOT NULL,
    embedding vector({DIMENSIONS}) NOT NULL
)
"""
_COLUMNS = "user_id, tag, text, embedding"
_NEAREST = "ORDER BY embedding <=> %s LIMIT %s"
_SEARCH = f"SELECT text FROM memories WHERE user_id = %s {_NEAREST}"
_SEARCH_TAG = f"SELECT text FROM memories WHERE user_id = %s AND tag = %s {_NEAREST}"


class PgvectorExact(Peer):
    """Every vector of the user is compared."""

    key = "pgvector_exact"
    name = "pgvector by hand, exact"
    kind = Kind.BY_HAND
    about = "SQL on Postgres, exact scan"

    def open(self) -> None:
        self._connection = psycopg.connect(self.place.dsn, autocommit=True, prepare_threshold=0)
        register_vector(self._connection)
        self._connection.execute(_TABLE)
        self._connection.execute("CREATE INDEX ON memories (user_id, tag)")

    def close(self) -> None:
        self._connection.close()

    def insert_many(self, user: str, memories: Sequence[Memory]) -> None:
        with (
            self._connection.transaction(),
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY memories ({_COLUMNS}) FROM STDIN WITH (FORMAT BINARY)") as copy,
        ):
            copy.set_types(["text", "text", "text", "vector"])
            for memory in memories:
                copy.write_row((user, memory.tag, memory.text, self.place.embedder.vector(memory.text)))

    def insert_one(self, user: str, memory: Memory) -> None:
        self._connection.execute(
            f"INSERT INTO memories ({_COLUMNS}) VALUES (%s, %s, %s, %s)",
            (user, memory.tag, memory.text, self.place.embedder.vector(memory.text)),
        )

    def search(self, user: str, query: str, k: int, tag: str = "") -> list[str]:
        vector = self.place.embedder.vector(query)
        if tag:
            rows = self._connection.execute(_SEARCH_TAG, (user, tag, vector, k), binary=True)
        else:
            rows = self._connection.execute(_SEARCH, (user, vector, k), binary=True)
        return [text for (text,) in rows]

    def settle(self) -> None:
        self._connection.execute("VACUUM (ANALYZE) memories")


class PgvectorHnsw(PgvectorExact):
    """With the index as pgvector makes it by default, and scans that go on until enough rows pass."""

    key = "pgvector_hnsw"
    name = "pgvector by hand, HNSW"
    about = "SQL on Postgres, HNSW, iterative scans"

    def open(self) -> None:
        super().open()
        self._connection.execute("CREATE INDEX ON memories USING hnsw (embedding vector_cosine_ops)")
        self._connection.execute("SET hnsw.iterative_scan = strict_order")
