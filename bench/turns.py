"""A turn of one step, with a model that answers at once, against the raw transactions that it needs: what
durability, encryption, the context, the events and gRPC cost."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from uuid import uuid4

import grpc
from openai import AsyncOpenAI

from bench.environment import Environment
from bench.raw_turn import RawTurn
from bench.result import Result, at_most
from bench.runner import Round, Rounds, Work, interleave, ratio_of
from sage.v1 import agent_pb2, turn_event_pb2
from sage.v1 import agent_service_pb2 as pb
from sage.v1.agent_service_pb2_grpc import AgentServiceStub

if TYPE_CHECKING:
    from sage.v1.agent_service_pb2_grpc import AgentServiceAsyncStub

_USERS = 64
_WATCHERS = 100
_IN_FLIGHT = 16
_TEXT = "When do I sow the beans, and when the peas?"
_SECONDS = 60.0
_CONTEXT = 4_000


async def run(environment: Environment) -> list[Result]:
    stub = AgentServiceStub(environment.channel)
    for user in range(_USERS):
        await _enabled(environment, stub, user)
    options = environment.options
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(environment.second_database("bench_raw_turn"))
        raw = await stack.enter_async_context(RawTurn.open(dsn, _USERS))
        model = AsyncOpenAI(base_url=environment.model_url, api_key="x", max_retries=0)
        stack.push_async_callback(model.close)

        async def ask(_worker: int) -> object:
            return await model.chat.completions.create(
                model="bench", messages=[{"role": "user", "content": _TEXT * 100}]
            )

        async def raw_and_model(worker: int) -> object:
            await ask(worker)
            return await raw.turn(worker)

        accepted = await _accepted(environment, stub, raw)
        whole: dict[str, Work] = {
            "ours": _turn(environment, stub),
            "raw": raw.turn,
            "model": ask,
            "raw and model": raw_and_model,
        }
        alone = await interleave(whole, in_flight=1, seconds=options.seconds, rounds=options.rounds)
        many = await interleave(whole, in_flight=_IN_FLIGHT, seconds=options.seconds, rounds=options.rounds)
        crowd = await interleave(
            {"ours": whole["ours"]}, in_flight=_USERS, seconds=options.seconds, rounds=options.rounds
        )
    fan_out = await _fan_out(environment, stub)
    first = ratio_of(accepted["ours"], accepted["raw"], lambda one: one.p50)
    ratio = ratio_of(many["ours"], many["raw and model"], lambda one: 1 / one.per_second)
    return [
        Result(
            "chat_accepted_vs_asyncpg",
            first.value,
            first.spread,
            at_most(2.5),
            f"{accepted['ours'].p50:.2f} ms",
            f"{accepted['raw'].p50:.2f} ms",
            [
                accepted["ours"].described("Chat until `accepted`"),
                accepted["raw"].described("asyncpg, the transaction that it needs"),
            ],
        ),
        Result(
            "turn_vs_asyncpg",
            ratio.value,
            ratio.spread,
            at_most(2.5),
            f"{many['ours'].milliseconds:.2f} ms/turn",
            f"{many['raw and model'].milliseconds:.2f} ms/turn",
            [
                *(many[name].described(name) for name in many),
                *(alone[name].described(name) for name in alone),
                f"one turn at a time takes {alone['ours'].p50:.2f} ms, of which the model's HTTP call "
                f"through the openai package takes {alone['model'].p50:.2f} ms",
                f"against the transactions without the model's call: "
                f"{many['ours'].milliseconds / many['raw'].milliseconds:.2f}",
                crowd["ours"].described(f"{_USERS} users at once"),
                fan_out,
            ],
        ),
    ]


async def _enabled(environment: Environment, stub: AgentServiceAsyncStub, user: int) -> None:
    """With a context of one size: a thread that grows would make every turn slower than the one before."""
    request = pb.UpdateAgentRequest(
        enabled=True,
        max_context_tokens=_CONTEXT,
        compaction=agent_pb2.CompactionSettings(mode=agent_pb2.COMPACTION_MODE_OFF),
    )
    request.update_mask.paths.extend(["enabled", "max_context_tokens", "compaction"])
    await stub.UpdateAgent(request, metadata=environment.metadata(f"bench-turn-{user}"), timeout=_SECONDS)


def _turn(environment: Environment, stub: AgentServiceAsyncStub) -> Work:
    async def work(worker: int) -> object:
        request = pb.ChatRequest(input=_TEXT, request_id=str(uuid4()))
        last = None
        async for response in stub.Chat(
            request, metadata=environment.metadata(f"bench-turn-{worker}"), timeout=_SECONDS
        ):
            last = response.event
        if last is None or not last.HasField("done"):
            raise RuntimeError(f"a turn did not end well: {last}")
        return last

    return work


async def _accepted(environment: Environment, stub: AgentServiceAsyncStub, raw: RawTurn) -> dict[str, Rounds]:
    """Only the way to `accepted` counts; then the turn is let run to its end before the next."""
    options = environment.options
    found: dict[str, list[Round]] = {"ours": [], "raw": []}
    for _ in range(options.rounds):
        for name, latencies in (("ours", list[float]()), ("raw", list[float]())):
            end = time.perf_counter() + options.seconds / options.rounds
            while (started := time.perf_counter()) < end:
                if name == "raw":
                    await raw.accept(0)
                    latencies.append(time.perf_counter() - started)
                    continue
                call = stub.Chat(
                    pb.ChatRequest(input=_TEXT, request_id=str(uuid4())),
                    metadata=environment.metadata("bench-turn-0"),
                    timeout=_SECONDS,
                )
                await call.read()
                latencies.append(time.perf_counter() - started)
                while await call.read() is not grpc.aio.EOF:
                    pass
            found[name].append(Round(sum(latencies), latencies))
    return {name: Rounds(rounds, 1) for name, rounds in found.items()}


async def _fan_out(environment: Environment, stub: AgentServiceAsyncStub) -> str:
    """Events of one user that 100 watchers see."""
    metadata = environment.metadata("bench-turn-0")
    request = pb.WatchEventsRequest(channels=[turn_event_pb2.EVENT_CHANNEL_TURN])
    calls = [stub.WatchEvents(request, metadata=metadata, timeout=_SECONDS) for _ in range(_WATCHERS)]
    for call in calls:
        await call.read()  # the heartbeat with which it begins
    turn = _turn(environment, stub)
    turns = 50
    started = time.perf_counter()
    seen = 0

    async def watch(call: grpc.aio.UnaryStreamCall[pb.WatchEventsRequest, pb.WatchEventsResponse]) -> None:
        nonlocal seen
        ended = 0
        while ended < turns:
            response = await call.read()
            assert isinstance(response, pb.WatchEventsResponse)
            event = response.event
            if not event.HasField("heartbeat"):
                seen += 1
                ended += event.HasField("done")

    watching = [asyncio.create_task(watch(call)) for call in calls]
    for _ in range(turns):
        await turn(0)
    await asyncio.gather(*watching)
    seconds = time.perf_counter() - started
    for call in calls:
        call.cancel()
    rate = f"{seen / seconds:,.0f} events/s"
    return f"{_WATCHERS} watchers of one user: {seen:,} events of {turns} turns in {seconds:.1f} s, {rate}"
