"""AppendItems against raw asyncpg that writes the same rows, already encrypted, into the same tables, and
commits them just as durably: what gRPC, authentication, validation, counting tokens, encryption and
idempotency cost."""

from __future__ import annotations

from contextlib import AsyncExitStack
from uuid import uuid4

from bench.calls import Caller
from bench.environment import Environment
from bench.raw_append import RawAppend
from bench.result import Result, at_most
from bench.runner import Rounds, Work, interleave, ratio_of
from sage.v1 import conversation_service_pb2 as pb
from sage.v1 import item_pb2

_IN_FLIGHT = 16
_ITEMS = 10
_TEXT = (
    "We dug two beds along the wall, the left one gets the morning sun and the right one gets it from noon "
    "until the evening. The soil is heavy there, so I mixed in three barrows of compost before the rain."
)


async def run(environment: Environment) -> list[Result]:
    options = environment.options
    append = Caller(environment.channel, "AppendItems")
    ours = await _appending(environment, append)
    await ours(0)
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(environment.second_database("bench_raw"))
        sizes = await _stored_sizes(environment)
        raw = await stack.enter_async_context(RawAppend.open(dsn, _IN_FLIGHT, _ITEMS, *sizes))
        contenders: dict[str, Work] = {
            "ours": ours,
            "unnest": raw.with_unnest,
            "executemany": raw.with_executemany,
            "one statement": raw.in_one_statement,
        }
        many = await interleave(
            contenders, in_flight=_IN_FLIGHT, seconds=options.seconds, rounds=options.rounds
        )
        alone = await interleave(contenders, in_flight=1, seconds=options.seconds / 2, rounds=options.rounds)
    # Fair: the faster of the two usual ways to write several rows in a transaction.
    usual = min(("unnest", "executemany"), key=lambda name: many[name].milliseconds)
    ratio = ratio_of(many["ours"], many[usual], lambda one: 1 / one.per_second)
    return [
        Result(
            "append_items_vs_asyncpg",
            ratio.value,
            ratio.spread,
            at_most(3),
            f"{many['ours'].milliseconds:.2f} ms/call",
            f"{many[usual].milliseconds:.2f} ms/call",
            [
                *_described(many, usual),
                *_described(alone, usual),
            ],
        )
    ]


async def _appending(environment: Environment, append: Caller) -> Work:
    """A user and a conversation for each worker, a new request id for each call."""
    create = Caller(environment.channel, "CreateConversation")
    places = []
    for worker in range(_IN_FLIGHT):
        metadata = environment.metadata(f"bench-append-{worker}")
        raw = pb.CreateConversationRequest(title="Garden").SerializeToString()
        created = pb.CreateConversationResponse.FromString(await create(raw, metadata))
        request = pb.AppendItemsRequest(
            conversation_id=created.conversation.id,
            items=[pb.NewItem(kind=item_pb2.ITEM_KIND_USER, text=_TEXT) for _ in range(_ITEMS)],
        )
        places.append((request, metadata))

    async def work(worker: int) -> object:
        request, metadata = places[worker]
        request.request_id = str(uuid4())
        return await append(request.SerializeToString(), metadata)

    return work


async def _stored_sizes(environment: Environment) -> tuple[int, int]:
    """How many bytes the server has stored of an item's content and of a kept answer."""
    async with environment.connection() as connection:
        content = await connection.fetchval("SELECT max(length(content_enc)) FROM items")
        answer = await connection.fetchval("SELECT max(length(response_enc)) FROM requests")
    return int(content), int(answer)


def _described(found: dict[str, Rounds], usual: str) -> list[str]:
    ours = found["ours"]
    lines = [ours.described(f"AppendItems of {_ITEMS} items")]
    for name, rounds in found.items():
        if name != "ours":
            times = ours.milliseconds / rounds.milliseconds
            lines.append(f"{rounds.described(f'asyncpg, {name}')}: ours takes {times:.2f} times as long")
    return [line + (" (the baseline)" if f"asyncpg, {usual}:" in line else "") for line in lines]
