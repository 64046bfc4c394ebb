"""BatchInsertMemories against raw asyncpg that writes the same rows, already encrypted, into the same tables,
and commits them just as durably: what gRPC, validation, encryption, idempotency and the index in RAM cost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack
from uuid import uuid4

import asyncpg

from bench.environment import Environment
from bench.memory_server import MemoryCaller, MemoryServer, memory_server
from bench.memory_work import DIMENSIONS, MEMORIES, MemoryWork
from bench.raw_insert import RawInsert, StoredSizes
from bench.result import Result, at_most
from bench.runner import Rounds, Work, interleave, ratio_of
from sage.v1 import memory_service_pb2 as pb

_BATCH = 1_000
_BATCHES = MEMORIES // _BATCH
_ROUND = 0.005
"""Seconds, less than a call takes: every round is one call."""


async def run(environment: Environment) -> list[Result]:
    return [await _measured(environment, dimensions) for dimensions in DIMENSIONS]


async def _measured(environment: Environment, dimensions: int) -> Result:
    rounds = environment.options.rounds
    users = rounds // _BATCHES + 1  # a first round warms up
    work = MemoryWork(dimensions)
    batches = [
        work.insert_request(work.texts(_BATCH), work.vectors(_BATCH)).SerializeToString()
        for _ in range(_BATCHES)
    ]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(memory_server(environment, dimensions))
        sizes = await _stored_sizes(server, batches[0])
        dsn = await stack.enter_async_context(environment.second_database(f"bench_raw_{dimensions}"))
        raws = [await stack.enter_async_context(RawInsert.open(dsn, n * users, users, sizes)) for n in (0, 1)]
        contenders: dict[str, Work] = {
            "ours": _inserting(server, "bench", batches),
            "COPY": _in_turn(raws[0].with_copy),
            "unnest": _in_turn(raws[1].with_unnest),
        }
        found = await interleave(contenders, in_flight=1, seconds=_ROUND * rounds, rounds=rounds)
    return _result(dimensions, found)


def _result(dimensions: int, found: dict[str, Rounds]) -> Result:
    # Fair: the faster of the two usual ways to write many rows.
    usual = min(("COPY", "unnest"), key=lambda name: found[name].p50)
    ratio = ratio_of(found["ours"], found[usual], lambda one: one.p50)
    size = f"{_BATCH:,} x {dimensions}"
    return Result(
        f"insert_memories_{dimensions}_vs_asyncpg",
        ratio.value,
        ratio.spread,
        at_most(2),
        f"{found['ours'].p50:.0f} ms/batch",
        f"{found[usual].p50:.0f} ms/batch",
        [
            found["ours"].described(f"BatchInsertMemories of {size}"),
            *(
                found[name].described(f"asyncpg, {name}") + (" (the baseline)" if name == usual else "")
                for name in ("COPY", "unnest")
            ),
        ],
    )


def _inserting(server: MemoryServer, name: str, batches: Sequence[bytes]) -> Work:
    """Ten batches for a user, then the next user. A new request id for each call."""
    insert = MemoryCaller(server.channel, "BatchInsertMemories")
    numbers = itertools.count()

    async def work(_worker: int) -> object:
        user, batch = divmod(next(numbers), len(batches))
        # Messages that follow each other are one message: only the id is new.
        named = pb.BatchInsertMemoriesRequest(request_id=str(uuid4())).SerializeToString()
        return await insert(batches[batch] + named, server.metadata(f"{name}-{user}"))

    return work


def _in_turn(write: Work) -> Work:
    numbers = itertools.count()

    async def work(_worker: int) -> object:
        return await write(next(numbers) // _BATCHES)

    return work


async def _stored_sizes(server: MemoryServer, batch: bytes) -> StoredSizes:
    """What the server has stored of a batch."""
    await _inserting(server, "sizes", [batch])(0)
    connection = await asyncpg.connect(server.dsn)
    try:
        rows = await connection.fetch("SELECT length(content_enc), length(vector_0_enc) FROM memories")
        answer = await connection.fetchval("SELECT max(length(response_enc)) FROM requests")
    finally:
        await connection.close()
    return StoredSizes([row[0] for row in rows], rows[0][1], answer)
