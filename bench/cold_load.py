"""Loading a user's index against fetching the same rows, decrypting the same cells and copying the vectors
into one array: what words, attributes and everything else that makes an index of it cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import numpy as np

from bench.environment import Connection, Environment
from bench.memory_server import settled
from bench.memory_work import DIMENSIONS, MEMORIES, MemoryWork
from bench.result import Result, at_most
from bench.runner import interleave, ratio_of
from sage_server.adapters.clock import SystemClock
from sage_server.adapters.crypto import CachedKeyRing, EnvironmentRootKeys, KeyWrapping, new_root_key
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.memories import PostgresMemoryStore
from sage_server.adapters.postgres.schema import cell, memories
from sage_server.adapters.postgres.users import PostgresKeyStore, PostgresUserStore
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.ports.keys import UserCipher
from sage_server.ports.memories import NewMemory, Space

_BATCH = 1_000
_ROUND = 0.005
"""Seconds, less than a load takes: every round is one load."""
_BUDGET = 1 << 30
_CONTENT, _VECTOR = cell(memories.c.content_enc), cell(memories.c.vector_0_enc)
_COLUMNS = ", ".join(
    column.name for column in memories.c if column.name not in {"user_id", "model_1", "vector_1_enc"}
)
_FETCH = f"SELECT {_COLUMNS} FROM memories WHERE user_id = $1 AND state = 0"


async def run(environment: Environment) -> list[Result]:
    return [await _measured(environment, dimensions) for dimensions in DIMENSIONS]


@dataclass(frozen=True)
class _Place:
    """A user with memories, and the two ways to them."""

    user_id: UUID
    indexes: IndexCache
    connection: Connection
    cipher: UserCipher
    dimensions: int

    async def load(self, _worker: int) -> object:
        """As the first search after a start does."""
        self.indexes.forget_all()
        entry = await self.indexes.get(self.user_id)
        assert entry is not None
        assert len(entry.index) == MEMORIES
        return entry

    async def copy(self, _worker: int) -> object:
        """The least that any load has to do."""
        rows = await self.connection.fetch(_FETCH, self.user_id)
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        texts = []
        for row, room in zip(rows, vectors, strict=True):
            texts.append(self.cipher.open(_CONTENT, row["id"], row["content_enc"]).decode())
            room[:] = np.frombuffer(self.cipher.open(_VECTOR, row["id"], row["vector_0_enc"]), "<f4")
        return texts, vectors


async def _measured(environment: Environment, dimensions: int) -> Result:
    rounds = environment.options.rounds
    async with (
        environment.second_database(f"bench_load_{dimensions}") as dsn,
        _place(dsn, dimensions) as place,
    ):
        found = await interleave(
            {"ours": place.load, "copy": place.copy},
            in_flight=1,
            seconds=_ROUND * rounds,
            rounds=rounds,
        )
    ratio = ratio_of(found["ours"], found["copy"], lambda one: one.p50)
    return Result(
        f"cold_load_{dimensions}_vs_copy",
        ratio.value,
        ratio.spread,
        at_most(1.3),
        f"{found['ours'].p50:.0f} ms",
        f"{found['copy'].p50:.0f} ms",
        [
            found["ours"].described(f"load of {MEMORIES:,} x {dimensions}"),
            found["copy"].described("fetch, decrypt and copy"),
        ],
    )


@asynccontextmanager
async def _place(dsn: str, dimensions: int) -> AsyncIterator[_Place]:
    database = await Database.open(dsn, PoolOptions(0, 4, 30, 600))
    connection = await asyncpg.connect(dsn)
    wrapping, clock = KeyWrapping(EnvironmentRootKeys(new_root_key())), SystemClock()
    keys = CachedKeyRing(PostgresKeyStore(database, clock), wrapping, 10)
    user_id = await PostgresUserStore(database, clock, wrapping.new_key).resolve("bench", "cold-load")
    store = PostgresMemoryStore(database, keys)
    indexes = IndexCache(store, _BUDGET)
    try:
        await _fill(store, user_id, dimensions)
        await settled(dsn)
        yield _Place(user_id, indexes, connection, await keys.cipher(user_id), dimensions)
    finally:
        indexes.close()
        await connection.close()
        await database.close()


async def _fill(store: PostgresMemoryStore, user_id: UUID, dimensions: int) -> None:
    work, space = MemoryWork(dimensions), Space("bench", dimensions)
    for _ in range(0, MEMORIES, _BATCH):
        new = [NewMemory(*pair) for pair in zip(work.memories(_BATCH), work.vectors(_BATCH), strict=True)]
        await store.insert(user_id, new, space, None, datetime.now(UTC))
