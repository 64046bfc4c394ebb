"""A page of ListConversations for a user with very many conversations against one with 1,000, on one
server: whether the price of a page depends on what is not on it."""

from __future__ import annotations

from uuid import UUID

from bench.calls import Caller
from bench.environment import Environment
from bench.many_conversations import build
from bench.result import Result, at_most
from bench.runner import Ratio, Rounds, interleave, ratio_of
from sage.v1 import conversation_service_pb2 as pb
from sage_server.domain.paging import TimeCursor
from sage_server.rpc.page_tokens import PageTokens, encode_time

_FEW = 1000
_PAGE = 50


async def run(environment: Environment) -> list[Result]:
    options = environment.options
    listing = Caller(environment.channel, "ListConversations")
    contenders = {}
    for size in (_FEW, options.list_size):
        user = f"bench-list-{size}"
        user_id = await environment.user_id(user)
        middle = await build(environment, user_id, size)
        metadata = environment.metadata(user)
        for place, cursor in (("first", None), ("middle", middle)):
            request = await _request(environment, user_id, cursor)
            await _check(await listing(request.SerializeToString(), metadata))
            contenders[f"{place} of {size:,}"] = listing.repeating(request, metadata)
    await environment.execute("VACUUM (ANALYZE) conversations")  # as autovacuum would, but not meanwhile

    found = await interleave(contenders, in_flight=1, seconds=options.seconds, rounds=options.rounds)
    ratios = {place: _ratio(found, place, options.list_size) for place in ("first", "middle")}
    worse = max(ratios, key=lambda place: ratios[place].value)
    return [
        Result(
            "list_1m_vs_1k",
            ratios[worse].value,
            ratios[worse].spread,
            at_most(1.5),
            f"{found[f'{worse} of {options.list_size:,}'].p50:.2f} ms/page",
            f"{found[f'{worse} of {_FEW:,}'].p50:.2f} ms/page",
            [
                *(rounds.described(f"{_PAGE} conversations, {name}") for name, rounds in found.items()),
                *(f"{place} page: {ratio.value:.2f}" for place, ratio in ratios.items()),
                *([] if options.list_size == 1_000_000 else [f"measured at {options.list_size:,}"]),
            ],
        )
    ]


async def _request(
    environment: Environment, user_id: UUID, cursor: TimeCursor | None
) -> pb.ListConversationsRequest:
    """For the page after the cursor. The token is made here: walking there would take thousands of calls."""
    request = pb.ListConversationsRequest(page_size=_PAGE)
    request.page_token = await PageTokens(environment.keys).write(user_id, request, encode_time(cursor))
    return request


async def _check(raw: bytes) -> None:
    page = pb.ListConversationsResponse.FromString(raw)
    if len(page.conversations) != _PAGE or not page.next_page_token:
        raise RuntimeError("the page is not full")


def _ratio(found: dict[str, Rounds], place: str, size: int) -> Ratio:
    return ratio_of(found[f"{place} of {size:,}"], found[f"{place} of {_FEW:,}"], lambda one: one.p50)
