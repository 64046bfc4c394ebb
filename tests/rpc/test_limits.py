"""Overload is refused early and says when to come back."""

from __future__ import annotations

import asyncio

import asyncpg
import grpc
import pytest

import sage_client
from sage.v1 import conversation_service_pb2 as pb
from sage.v1 import item_pb2
from sage_client import FlagScope, NewItem, RetryPolicy
from support.contract import BY_NAME, call_without_message
from support.server import running_server

NO_RETRY = RetryPolicy(max_attempts=1)


async def test_a_user_who_calls_too_often_is_told_when_to_come_back(dsn: str) -> None:
    async with running_server(dsn, max_rate_per_user=5) as server:
        async with sage_client.connect_async(server.address, user="maria", retry=NO_RETRY) as maria:
            with pytest.raises(sage_client.ResourceExhausted) as refused:
                for _ in range(30):
                    await maria.conversations.delete_all()
            assert refused.value.reason == "RATE_LIMITED"
            assert refused.value.retry_after is not None
            assert 0 < refused.value.retry_after <= 1
            ada = maria.with_options(user="ada")
            await ada.conversations.delete_all()


async def test_too_many_calls_at_once_are_refused_and_the_rest_are_answered(dsn: str) -> None:
    async with running_server(dsn, max_concurrent_per_user=4, pool_max=2) as server:
        async with sage_client.connect_async(server.address, user="maria", retry=NO_RETRY) as client:
            thread = await client.conversations.create()
            answers = await asyncio.gather(
                *(client.conversations.append(thread.id, [NewItem.user("x")]) for _ in range(60)),
                return_exceptions=True,
            )
            refused = [answer for answer in answers if isinstance(answer, sage_client.ResourceExhausted)]
            assert refused
            assert {error.reason for error in refused} == {"OVERLOADED"}
            stored = await client.conversations.get(thread.id)
            assert stored.message_count == len(answers) - len(refused)
            # Every place was given back.
            assert await client.conversations.delete_all() == 1


async def test_a_flood_of_calls_is_refused_with_a_reason_and_by_nobody_else(dsn: str) -> None:
    """gRPC has a limit of its own, and would cancel what is beyond it without a word."""
    async with running_server(dsn, max_concurrent_per_user=50) as server:
        async with sage_client.connect_async(server.address, user="maria", retry=NO_RETRY) as client:
            answers = await asyncio.gather(
                *(client.conversations.list_page() for _ in range(3000)), return_exceptions=True
            )
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert {getattr(error, "reason", type(error).__name__) for error in failed} <= {"OVERLOADED"}
    assert len(failed) < len(answers)


async def test_a_request_that_is_too_large_is_refused_with_the_limit(dsn: str) -> None:
    async with running_server(dsn, max_request_bytes=10_000) as server:
        async with sage_client.connect_async(server.address) as client:
            thread = await client.conversations.create()
            with pytest.raises(sage_client.ResourceExhausted) as refused:
                await client.conversations.append(thread.id, [NewItem.user("x" * 20_000)])
            assert refused.value.reason == "REQUEST_TOO_LARGE"
            assert refused.value.metadata == {"limit_bytes": "10000"}


async def test_a_dry_pool_is_overload_and_not_a_failure(dsn: str) -> None:
    async with running_server(dsn, pool_min=1, pool_max=1, pool_timeout=0.2) as server:
        async with sage_client.connect_async(server.address, retry=NO_RETRY) as client:
            await client.admin.set_flag("auto_embedding", FlagScope.GLOBAL, enabled=False)
            thread = await client.conversations.create()
            answers = await asyncio.gather(
                *(
                    client.conversations.append(thread.id, [NewItem.user("x" * 50_000)] * 50)
                    for _ in range(12)
                ),
                return_exceptions=True,
            )
            failures = [answer for answer in answers if isinstance(answer, BaseException)]
            assert all(isinstance(error, sage_client.ResourceExhausted) for error in failures), failures
            assert (await client.conversations.get(thread.id)).message_count == 50 * (12 - len(failures))


async def test_the_servers_deadline_holds_without_one_from_the_caller(dsn: str) -> None:
    """A lock in the database makes the call take long; afterwards nothing of it is there."""
    async with running_server(dsn, unary_deadline=0.5) as server:
        async with (
            grpc.aio.insecure_channel(server.address) as channel,
            sage_client.connect_async(server.address) as client,
        ):
            thread = await client.conversations.create()
            call = channel.unary_unary(
                "/sage.v1.ConversationService/AppendItems",
                request_serializer=pb.AppendItemsRequest.SerializeToString,
                response_deserializer=pb.AppendItemsResponse.FromString,
            )
            item = pb.NewItem(kind=item_pb2.ITEM_KIND_USER, text="x")
            database = await asyncpg.connect(dsn)
            async with database.transaction():
                await database.execute("SELECT 1 FROM conversations FOR UPDATE")
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(pb.AppendItemsRequest(conversation_id=thread.id, items=[item]))
            await database.close()
            assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert refused.value.details() == "The call took too long."
            assert (await client.conversations.get(thread.id)).message_count == 0


@pytest.mark.parametrize("method", ["CreateConversation", "Chat"])
async def test_the_servers_deadline_holds_for_a_message_that_never_comes(dsn: str, method: str) -> None:
    async with running_server(dsn, unary_deadline=0.5, stream_deadline=0.5) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            answer = await call_without_message(channel, BY_NAME[method], end=False)
    assert answer.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert answer.reason == "ERROR_REASON_DEADLINE_EXCEEDED"
