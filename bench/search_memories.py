"""SearchMemories over gRPC against a bare FAISS search plus a bare echo of the same payload: what words,
scores, explanations, authentication and validation cost beside the scan and the wire."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import faiss

from bench.calls import Metadata
from bench.environment import Environment
from bench.memory_server import MemoryCaller, MemoryServer, echo, memory_server, settled
from bench.memory_work import DIMENSIONS, MEMORIES, Matrix, MemoryWork
from bench.result import Result, at_most
from bench.runner import Round, Rounds, Work, interleave, ratio_of
from sage.v1 import memory_service_pb2 as pb

_USER = "bench-search"
_BATCH = 1_000
_QUERIES = 500
_TOP_K = 10


async def run(environment: Environment) -> list[Result]:
    return [await _measured(environment, dimensions) for dimensions in DIMENSIONS]


async def _measured(environment: Environment, dimensions: int) -> Result:
    options, work = environment.options, MemoryWork(dimensions)
    vectors, queries = work.vectors(MEMORIES), work.vectors(_QUERIES)
    requests = work.search_requests(queries)
    async with memory_server(environment, dimensions) as server:
        metadata = server.metadata(_USER)
        await _insert(server, work, vectors)
        search = MemoryCaller(server.channel, "SearchMemories")
        size = len(await _checked(search, requests[0], metadata))
        async with echo(size) as channel:
            scan = _scanning(vectors, queries)
            call = _calling(MemoryCaller(channel, "SearchMemories"), requests, metadata)
            contenders = {
                "ours": _calling(search, requests, metadata),
                "faiss": scan,
                "echo": call,
                "in turn": _in_turn(call, scan),
            }
            found = await interleave(contenders, in_flight=1, seconds=options.seconds, rounds=options.rounds)
    bare = _sum(found["faiss"], found["echo"])
    ratio = ratio_of(found["ours"], bare, lambda one: one.p50)
    in_turn = ratio_of(found["ours"], found["in turn"], lambda one: one.p50)
    return Result(
        f"search_memories_{dimensions}_vs_faiss_and_echo",
        ratio.value,
        ratio.spread,
        at_most(1.5),
        f"{found['ours'].p50:.2f} ms/call",
        f"{bare.p50:.2f} ms/call",
        [
            found["ours"].described(f"SearchMemories in {MEMORIES:,} x {dimensions}"),
            found["faiss"].described(f"FAISS IndexFlatIP, one thread, the best {_TOP_K}"),
            found["echo"].described(f"echo of {len(requests[0])} bytes with {size}"),
            # A scan right after a scan finds vectors in the processor's cache; after a call it finds fewer.
            found["in turn"].described("the two in turn, one of each") + f": {in_turn.value:.2f} times",
        ],
    )


async def _insert(server: MemoryServer, work: MemoryWork, vectors: Matrix) -> None:
    insert = MemoryCaller(server.channel, "BatchInsertMemories")
    for start in range(0, MEMORIES, _BATCH):
        request = work.insert_request(work.texts(_BATCH), vectors[start : start + _BATCH])
        await insert(request.SerializeToString(), server.metadata(_USER))
    await settled(server.dsn)


async def _checked(search: MemoryCaller, request: bytes, metadata: Metadata) -> bytes:
    raw = await search(request, metadata)
    answer = pb.SearchMemoriesResponse.FromString(raw)
    if len(answer.results) != _TOP_K or answer.candidate_count != MEMORIES:
        raise RuntimeError("the search did not see all memories")
    return raw


def _calling(caller: MemoryCaller, requests: Sequence[bytes], metadata: Metadata) -> Work:
    turns: Iterator[bytes] = itertools.cycle(requests)

    async def work(_worker: int) -> object:
        return await caller(next(turns), metadata)

    return work


def _scanning(vectors: Matrix, queries: Matrix) -> Work:
    # A second thread makes a single query slower, and would take the other contenders' core.
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    turns = itertools.cycle(queries[at : at + 1] for at in range(len(queries)))

    async def work(_worker: int) -> object:
        return index.search(next(turns), _TOP_K)

    return work


def _in_turn(first: Work, second: Work) -> Work:
    async def work(worker: int) -> object:
        return await first(worker), await second(worker)

    return work


def _sum(first: Rounds, second: Rounds) -> Rounds:
    times = [a.p50 + b.p50 for a, b in zip(first.rounds, second.rounds, strict=True)]
    return Rounds([Round(seconds, [seconds]) for seconds in times], 1)
