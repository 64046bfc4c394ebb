"""Summaries of `client.conversations` against a server on a real socket."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

import sage_client
from sage.v1 import conversation_pb2
from sage.v1 import conversation_service_pb2 as pb
from sage_client import AsyncSageClient, ConversationSummary, RetryPolicy, Summarized
from support.agent_server import AgentServer, running

QUICK = RetryPolicy(initial_backoff=0.001)
ID = "0193e2a4-7b1c-7c3a-9e58-0123456789ab"
MAY = datetime(2026, 5, 1, tzinfo=UTC)
SUMMARY = ConversationSummary("s2", ID, 3, 8, 6, "Beans were sown.", 4, "s1", MAY)
SUMMARY_PB = conversation_pb2.ConversationSummary(
    id="s2",
    conversation_id=ID,
    from_seq=3,
    to_seq=8,
    message_count=6,
    text="Beans were sown.",
    token_count=4,
    previous_id="s1",
    create_time=Timestamp(seconds=int(MAY.timestamp())),
)


@pytest.fixture
async def server() -> AsyncIterator[AgentServer]:
    handler = AgentServer()
    async with running(handler):
        yield handler


@pytest.fixture
async def client(server: AgentServer) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(server.address, retry=QUICK) as connected:
        yield connected


async def test_summaries_are_read_whole_over_all_pages(server: AgentServer, client: AsyncSageClient) -> None:
    server.fail = [grpc.StatusCode.UNAVAILABLE]
    server.script(
        pb.ListSummariesResponse(summaries=[SUMMARY_PB], next_page_token="2"),
        pb.ListSummariesResponse(summaries=[conversation_pb2.ConversationSummary(id="s1")]),
    )

    found = [summary async for summary in client.conversations.summaries(ID, page_size=1)]

    assert found[0] == SUMMARY
    assert [summary.id for summary in found] == ["s2", "s1"]
    names = {field.name for field in dataclasses.fields(ConversationSummary)}
    assert names == set(conversation_pb2.ConversationSummary.DESCRIPTOR.fields_by_name)
    first = pb.ListSummariesRequest(conversation_id=ID, page_size=1)
    again = pb.ListSummariesRequest(conversation_id=ID, page_size=1, page_token="2")
    assert server.seen == [first, first, again]


async def test_a_summary_that_is_asked_for_again_is_asked_for_with_the_same_request_id(
    server: AgentServer, client: AsyncSageClient
) -> None:
    server.fail = [grpc.StatusCode.UNAVAILABLE]
    server.script(
        pb.SummarizeConversationResponse(summary=SUMMARY_PB, applied=True),
        pb.SummarizeConversationResponse(),
    )

    assert await client.conversations.summarize(ID) == Summarized(SUMMARY, applied=True)
    assert await client.conversations.summarize(ID, keep_newest=0, request_id=ID) == Summarized(
        None, applied=False
    )

    first, second, third = server.seen
    assert first == second
    assert UUID(first.request_id).version == 4
    assert not first.HasField("keep_newest")
    assert third == pb.SummarizeConversationRequest(conversation_id=ID, keep_newest=0, request_id=ID)


async def test_the_sync_client_does_the_same(server: AgentServer) -> None:
    server.script(
        pb.SummarizeConversationResponse(summary=SUMMARY_PB, applied=True),
        pb.ListSummariesResponse(summaries=[SUMMARY_PB]),
    )

    def work() -> None:
        with sage_client.connect(server.address, retry=QUICK) as client:
            assert client.conversations.summarize(ID, keep_newest=2).summary == SUMMARY
            assert list(client.conversations.summaries(ID)) == [SUMMARY]

    await asyncio.to_thread(work)

    assert server.seen[0].keep_newest == 2
