"""The server takes no message from who may not call, so nobody unknown decides how much memory it needs."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from support.contract import BY_NAME, METHODS, Answer, call, call_without_message
from support.server import ROOT_KEY, child_server, running_server

Code = grpc.StatusCode
MARIA = (("x-sage-user", "maria"),)
AT_ONCE = 5
"""Seconds; the deadline of a call is a minute and more."""
CHECK: MethodDescriptor = health_pb2.DESCRIPTOR.services_by_name["Health"].methods_by_name["Check"]
REFLECTION: MethodDescriptor = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].methods_by_name[
    "ServerReflectionInfo"
]


async def silent(channel: grpc.aio.Channel, method: MethodDescriptor) -> Answer:
    """What the server says while it could still wait for the message."""
    return await asyncio.wait_for(call_without_message(channel, method, MARIA, end=False), AT_ONCE)


@asynccontextmanager
async def held(
    channel: grpc.aio.Channel, method: MethodDescriptor, count: int = 1
) -> AsyncIterator[list[asyncio.Task[Answer]]]:
    """Calls that run, because their messages may still come."""
    running = [
        asyncio.create_task(call_without_message(channel, method, MARIA, end=False)) for _ in range(count)
    ]
    await asyncio.sleep(0.5)
    yield running
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_call_without_credentials_is_refused_before_its_message_comes(dsn: str) -> None:
    async with running_server(dsn, auth="required") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            for method in METHODS:
                assert (await silent(channel, method)).code is Code.UNAUTHENTICATED, method.full_name


async def test_a_call_that_ends_without_credentials_and_message_is_unauthenticated(dsn: str) -> None:
    async with running_server(dsn, auth="required") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            for method in METHODS:
                answer = await call_without_message(channel, method)
                assert answer.code is Code.UNAUTHENTICATED, method.full_name


@pytest.mark.parametrize("scope", ["server", "user"])
async def test_a_call_over_the_limit_of_calls_at_once_is_refused_before_its_message_comes(
    dsn: str, scope: str
) -> None:
    limit = "max_concurrent" if scope == "server" else "max_concurrent_per_user"
    async with running_server(dsn, **{limit: 2}) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            async with held(channel, BY_NAME["CreateConversation"], 2):
                answer = await silent(channel, BY_NAME["CreateConversation"])
                assert (answer.code, answer.reason) == (Code.RESOURCE_EXHAUSTED, "ERROR_REASON_OVERLOADED")
                assert dict(answer.metadata) == {"scope": scope}
            # The places of calls that went away are free.
            listed = await call(channel, BY_NAME["ListConversations"], b"", MARIA)
            assert listed.code is Code.OK


async def test_a_call_over_the_limit_of_the_rate_is_refused_before_its_message_comes(dsn: str) -> None:
    async with running_server(dsn, max_rate_per_user=1) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            answers = [await call(channel, BY_NAME["ListConversations"], b"", MARIA) for _ in range(3)]
            assert answers[-1].reason == "ERROR_REASON_RATE_LIMITED"
            answer = await silent(channel, BY_NAME["ListConversations"])
    assert (answer.code, answer.reason) == (Code.RESOURCE_EXHAUSTED, "ERROR_REASON_RATE_LIMITED")


async def test_health_and_reflection_answer_however_many_calls_keep_their_messages_back(dsn: str) -> None:
    async with running_server(dsn, auth="required") as server:
        async with (
            grpc.aio.insecure_channel(server.address) as hostile,
            grpc.aio.insecure_channel(server.address) as channel,
            held(hostile, CHECK, 40) as checks,
            held(hostile, REFLECTION, 40) as reflections,
        ):
            health = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=AT_ONCE
            )
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            asked = reflection_pb2.ServerReflectionRequest(list_services="")
            info = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
                iter([asked, asked]), timeout=AT_ONCE
            )
            named = [{s.name for s in answer.list_services_response.service} async for answer in info]
            assert len(named) == 2
            assert {"sage.v1.AgentService", "grpc.health.v1.Health"} <= named[0]
            ended = [task.result() for task in (*checks, *reflections) if task.done()]
            assert len(ended) >= 64, "few messages are waited for at once"
            assert {answer.code for answer in ended} == {Code.RESOURCE_EXHAUSTED}


async def test_a_health_check_that_is_none_is_refused(dsn: str) -> None:
    async with running_server(dsn, auth="required") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            assert (await call_without_message(channel, CHECK)).code is Code.INVALID_ARGUMENT
            assert (await call(channel, CHECK, b"\xff")).code is Code.INVALID_ARGUMENT
            assert (await call(channel, CHECK, b"x" * 1_000_000)).code is Code.RESOURCE_EXHAUSTED
            unknown = health_pb2.HealthCheckRequest(service="other")
            assert (await call(channel, CHECK, unknown)).code is Code.NOT_FOUND


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_messages_of_callers_without_credentials_take_no_memory(dsn: str, tmp_path: Path) -> None:
    message = b"x" * 30_000_000
    async with child_server(
        database_url=dsn, root_key=ROOT_KEY, data_dir=tmp_path, auth="required"
    ) as server:
        before = _peak_megabytes(server.process.pid)
        started = time.monotonic()
        answers = await asyncio.gather(*(_alone(server.address, message) for _ in range(8)))
        assert {answer.code for answer in answers} == {Code.UNAUTHENTICATED}
        assert time.monotonic() - started < 2 * AT_ONCE
        assert _peak_megabytes(server.process.pid) - before < 90


async def _alone(address: str, message: bytes) -> Answer:
    """A call on a connection of its own, so that none waits for another one's window."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=own) as channel:
        return await call(channel, BY_NAME["CreateConversation"], message)


def _peak_megabytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024
