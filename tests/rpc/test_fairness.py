"""One event loop serves everybody: no call within the contract's limits holds up the calls of others."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

import grpc
import pytest

import sage_client
from sage.v1 import conversation_service_pb2 as pb
from sage_client import AsyncSageClient, NewItem, NewMemory, SageClient, SearchQuery
from support.server import RunningServer

MAYS = "May " * 2_500
YEARS = "jan 1999 " * 1_100
TURN = 0.5
"""Seconds of the processor: several times what the longest turn takes, and less than what each of these
calls needs in all. Unlike time, it does not grow while the machine is busy with something else."""


@pytest.fixture(autouse=True)
def spared_collector() -> Iterator[None]:
    """As `sage-server serve` does: the collector need not look at what was there before."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@dataclass
class Turns:
    """How long the event loop was with somebody else, and who was served meanwhile."""

    longest: float = 0.0
    answers: list[str] = field(default_factory=list)

    async def watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.thread_time() - before)

    async def ask(self, other: AsyncSageClient, conversation_id: str) -> None:
        while True:
            self.answers.append((await other.conversations.get(conversation_id)).id)


@contextmanager
def raw_call(address: str) -> Iterator[Callable[[bytes], None]]:
    """An import of a size that the client would send in pieces."""
    with grpc.insecure_channel(address, [("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_stream(
            "/sage.v1.ConversationService/ImportConversations",
            request_serializer=pb.ImportConversationsRequest.SerializeToString,
            response_deserializer=pb.ImportConversationsResponse.FromString,
        )
        yield lambda jsonl: list(call(pb.ImportConversationsRequest(jsonl=jsonl))).clear()


def long_texts(count: int) -> list[str]:
    """Texts that share no word."""
    return [" ".join(f"{number:x}of{text}" for number in range(14_000))[:99_000] for text in range(count)]


def lines(texts: Sequence[str]) -> bytes:
    """A conversation with messages, as JSON Lines of at most 8 MiB."""
    thread, at = str(UUID(int=1 << 76)), "2024-01-01T00:00:00Z"
    made = [{"type": "conversation", "id": thread, "create_time": at}]
    made += [
        {"type": "item", "kind": "user", "id": str(UUID(int=n)), "conversation_id": thread, "text": text}
        for n, text in enumerate(texts)
    ]
    jsonl = "\n".join(json.dumps(line) for line in made).encode()
    assert 7 << 20 < len(jsonl) <= 8 << 20
    return jsonl


def search(client: SageClient, _address: str) -> None:
    client.memory.search(MAYS)


def search_for_months(client: SageClient, _address: str) -> None:
    assert len(client.memory.search_many([SearchQuery(MAYS)] * 32)) == 32


def search_for_years(client: SageClient, _address: str) -> None:
    assert len(client.memory.search_many([SearchQuery(YEARS)] * 32)) == 32


def insert_and_delete_long_texts(client: SageClient, _address: str) -> None:
    written = client.memory.insert_many([NewMemory(text) for text in long_texts(60)])
    assert client.memory.delete_many(written.ids).deleted_count == 60


def append_long_texts(client: SageClient, _address: str) -> None:
    thread = client.conversations.create(private=True)
    assert (
        len(client.conversations.append(thread.id, [NewItem.user(text) for text in long_texts(200)])) == 200
    )


def import_many_lines(_client: SageClient, address: str) -> None:
    """The last line is none, so that nothing is stored."""
    with (
        raw_call(address) as import_,
        pytest.raises(grpc.RpcError, match="line 54002 is not a line of an export"),
    ):
        import_(lines(["x"] * 54_000) + b"\n{")


def import_long_texts(_client: SageClient, address: str) -> None:
    with raw_call(address) as import_:
        import_(lines(long_texts(80)))


def call(heavy: Callable[[SageClient, str], None], address: str) -> None:
    """Do it as another user, who has a message to search in."""
    with sage_client.connect(address, user="ada") as ada:
        thread = ada.conversations.create()
        ada.conversations.append(thread.id, [NewItem.user("I saw Anna in May.")])
        while not ada.memory.search("Anna").results:
            time.sleep(0.02)
        heavy(ada, address)


Heavy: TypeAlias = Callable[[SageClient, str], None]
CALLS: list[Heavy] = [
    search,
    search_for_months,
    search_for_years,
    insert_and_delete_long_texts,
    append_long_texts,
    import_many_lines,
    import_long_texts,
]


@pytest.mark.parametrize("heavy", CALLS, ids=lambda heavy: heavy.__name__)
async def test_no_call_within_the_contracts_limits_holds_up_others(
    server: RunningServer, client: AsyncSageClient, heavy: Heavy
) -> None:
    thread = await client.conversations.create()
    turns = Turns()
    watching = [asyncio.create_task(one) for one in (turns.watch(), turns.ask(client, thread.id))]
    await asyncio.to_thread(call, heavy, server.address)
    for task in watching:
        task.cancel()
    ended = await asyncio.gather(*watching, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
    assert len(turns.answers) > 1
    assert turns.longest < TURN
