"""The client against a small server on a real socket that fails as it is told."""
# ruff: noqa: N802 -- the contract names the methods

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never
from uuid import UUID

import grpc
import grpc.aio
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

import sage_client
from sage.v1 import conversation_pb2, item_pb2
from sage.v1 import conversation_service_pb2 as pb
from sage.v1.conversation_service_pb2_grpc import (
    ConversationServiceServicer,
    add_ConversationServiceServicer_to_server,
)
from sage_client import AsyncSageClient, NewItem, RetryPolicy

Context = grpc.aio.ServicerContext[Any, Any]
QUICK = RetryPolicy(initial_backoff=0.01)
LIST = ["a", "b", "c", "d", "e"]


@dataclass(frozen=True)
class Fail:
    """One answer that is an error."""

    code: grpc.StatusCode
    retry_after: float | None = None
    reason: str = "OVERLOADED"

    async def abort(self, context: Context) -> Never:
        status = status_pb2.Status(code=self.code.value[0], message="told to fail")
        details = [error_details_pb2.ErrorInfo(domain="sage", reason=f"ERROR_REASON_{self.reason}")]
        if self.retry_after is not None:
            delay = Duration()
            delay.FromNanoseconds(int(self.retry_after * 1e9))
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        for detail in details:
            packed = AnyMessage()
            packed.Pack(detail)
            status.details.append(packed)
        trailing = (("grpc-status-details-bin", status.SerializeToString()), ("x-request-id", "r-9"))
        await context.abort(self.code, "told to fail", trailing)


@dataclass
class Server(ConversationServiceServicer):
    """Records what comes in; fails as often as it is told before it answers."""

    fail: list[Fail] = field(default_factory=list)
    seen: list[Message] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    exports: list[pb.ExportConversationsResponse] = field(default_factory=list)
    fail_after_export: Fail | None = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    address: str = ""

    async def _enter(self, request: Message, context: Context) -> None:
        self.seen.append(request)
        pairs = context.invocation_metadata() or ()
        self.metadata.append({str(key): str(value) for key, value in pairs})
        if self.fail:
            await self.fail.pop(0).abort(context)

    async def CreateConversation(
        self, request: pb.CreateConversationRequest, context: Context
    ) -> pb.CreateConversationResponse:
        await self._enter(request, context)
        return pb.CreateConversationResponse(
            conversation=conversation_pb2.Conversation(id="c1", title=request.title)
        )

    async def GetConversation(
        self, request: pb.GetConversationRequest, context: Context
    ) -> pb.GetConversationResponse:
        await self._enter(request, context)
        if request.conversation_id == "slow":
            await asyncio.sleep(30)
        return pb.GetConversationResponse(conversation=conversation_pb2.Conversation(id="c1"))

    async def UpdateConversation(
        self, request: pb.UpdateConversationRequest, context: Context
    ) -> pb.UpdateConversationResponse:
        await self._enter(request, context)
        return pb.UpdateConversationResponse(conversation=conversation_pb2.Conversation(id="c1"))

    async def DeleteConversation(
        self, request: pb.DeleteConversationRequest, context: Context
    ) -> pb.DeleteConversationResponse:
        await self._enter(request, context)
        return pb.DeleteConversationResponse(conversation=conversation_pb2.Conversation(id="c1"))

    async def ListConversations(
        self, request: pb.ListConversationsRequest, context: Context
    ) -> pb.ListConversationsResponse:
        await self._enter(request, context)
        start = int(request.page_token or 0)
        end = start + request.page_size
        return pb.ListConversationsResponse(
            conversations=[conversation_pb2.Conversation(id=name) for name in LIST[start:end]],
            next_page_token=str(end) if end < len(LIST) else "",
        )

    async def AppendItems(self, request: pb.AppendItemsRequest, context: Context) -> pb.AppendItemsResponse:
        await self._enter(request, context)
        appended = [pb.AppendedItem(id=item.text, seq=seq) for seq, item in enumerate(request.items, 1)]
        return pb.AppendItemsResponse(items=appended)

    async def ExportConversations(
        self, request: pb.ExportConversationsRequest, context: Context
    ) -> AsyncIterator[pb.ExportConversationsResponse]:
        await self._enter(request, context)
        for event in self.exports:
            yield event
        if self.fail_after_export:
            await self.fail_after_export.abort(context)
        if request.show_deleted:
            try:
                await asyncio.sleep(30)
            finally:
                self.cancelled.set()

    async def ImportConversations(
        self, request: pb.ImportConversationsRequest, context: Context
    ) -> AsyncIterator[pb.ImportConversationsResponse]:
        await self._enter(request, context)
        lines = request.jsonl.count(b"\n")
        yield pb.ImportConversationsResponse(progress=pb.ImportProgress(lines=lines, total_lines=lines))
        yield pb.ImportConversationsResponse(
            done=pb.ImportDone(conversations_created=1, items_created=lines - 1, items_skipped=2)
        )


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    servicer = Server()  # type: ignore[abstract]  # the rest answers UNIMPLEMENTED
    running = grpc.aio.server(options=(("grpc.max_receive_message_length", -1),))
    add_ConversationServiceServicer_to_server(servicer, running)
    servicer.address = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    await running.start()
    yield servicer
    await running.stop(None)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(server.address, retry=QUICK) as connected:
        yield connected


UNAVAILABLE = Fail(grpc.StatusCode.UNAVAILABLE, reason="DATABASE_UNAVAILABLE")


async def test_a_creation_that_is_tried_again_carries_the_same_request_id(
    server: Server, client: AsyncSageClient
) -> None:
    server.fail = [UNAVAILABLE, UNAVAILABLE]

    created = await client.conversations.create("Garden", metadata={"k": "v"})
    await client.conversations.create("Garden")

    assert created.title == "Garden"
    requests = [request for request in server.seen if isinstance(request, pb.CreateConversationRequest)]
    assert len(requests) == 4
    assert requests[0] == requests[1] == requests[2]
    assert UUID(requests[0].request_id).version == 4
    assert requests[3].request_id != requests[0].request_id


async def test_a_request_id_of_the_caller_is_kept(server: Server, client: AsyncSageClient) -> None:
    mine = "0b5e2f3e-7a1b-4c7c-8d9e-000000000001"
    items = [NewItem.user("x"), NewItem.assistant("y")]
    appended = await client.conversations.append("c1", items, request_id=mine)

    assert [(item.id, item.seq) for item in appended] == [("x", 1), ("y", 2)]
    (request,) = server.seen
    assert isinstance(request, pb.AppendItemsRequest)
    assert request.request_id == mine
    assert [item.kind for item in request.items] == [item_pb2.ITEM_KIND_USER, item_pb2.ITEM_KIND_ASSISTANT]


async def test_the_time_that_the_server_asks_for_is_waited(server: Server, client: AsyncSageClient) -> None:
    server.fail = [Fail(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=0.3)]

    begun = time.monotonic()
    await client.conversations.delete("c1")

    assert time.monotonic() - begun >= 0.3
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, sage_client.InvalidArgument),
        (grpc.StatusCode.ABORTED, sage_client.Aborted),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, sage_client.ResourceExhausted),
        (grpc.StatusCode.INTERNAL, sage_client.Internal),
    ],
)
async def test_what_a_retry_cannot_mend_is_raised_at_once(
    server: Server, client: AsyncSageClient, code: grpc.StatusCode, expected: type[sage_client.SageError]
) -> None:
    server.fail = [Fail(code)]

    with pytest.raises(expected) as caught:
        await client.conversations.get("c1")

    assert caught.value.request_id == "r-9"
    assert len(server.seen) == 1


async def test_a_change_that_may_have_been_made_is_not_sent_twice(
    server: Server, client: AsyncSageClient
) -> None:
    server.fail = [UNAVAILABLE]
    with pytest.raises(sage_client.Unavailable):
        await client.conversations.delete("c1")

    server.fail = [UNAVAILABLE]
    with pytest.raises(sage_client.Unavailable):
        await client.conversations.update("c1", title="x", etag="e1")
    assert len(server.seen) == 2

    server.fail = [UNAVAILABLE]
    await client.conversations.update("c1", title="x")
    assert len(server.seen) == 4

    server.fail = [Fail(grpc.StatusCode.UNAVAILABLE, reason="SHUTTING_DOWN")]
    await client.conversations.delete("c1")
    assert len(server.seen) == 6


async def test_attempts_end_with_the_policy(server: Server, client: AsyncSageClient) -> None:
    server.fail = [UNAVAILABLE] * 10

    with pytest.raises(sage_client.Unavailable):
        await client.conversations.get("c1")

    assert len(server.seen) == QUICK.max_attempts


async def test_a_wait_longer_than_the_deadline_is_not_begun(server: Server, client: AsyncSageClient) -> None:
    server.fail = [Fail(grpc.StatusCode.UNAVAILABLE, retry_after=60)]

    begun = time.monotonic()
    with pytest.raises(sage_client.Unavailable) as caught:
        await client.with_options(timeout=5).conversations.get("c1")

    assert caught.value.retry_after == 60
    assert time.monotonic() - begun < 2


async def test_a_call_ends_by_its_timeout(client: AsyncSageClient) -> None:
    begun = time.monotonic()
    with pytest.raises(sage_client.DeadlineExceeded):
        await client.with_options(timeout=0.2).conversations.get("slow")

    assert time.monotonic() - begun < 5


async def test_nobody_at_the_address_is_a_typed_error() -> None:
    retry = RetryPolicy(max_attempts=2, initial_backoff=0.01)
    async with sage_client.connect_async("127.0.0.1:1", retry=retry) as client:
        with pytest.raises(sage_client.Unavailable) as caught:
            await client.conversations.get("c1")

    assert (caught.value.reason, caught.value.request_id) == (None, None)


async def test_a_token_is_asked_for_on_every_attempt(server: Server) -> None:
    tokens = iter(["t1", "t2", "t3"])
    async with sage_client.connect_async(
        server.address, token=lambda: next(tokens), user="maria", retry=QUICK
    ) as client:
        await client.conversations.get("c1")
        server.fail = [UNAVAILABLE]
        await client.conversations.get("c1")

    assert [pairs["authorization"] for pairs in server.metadata] == ["Bearer t1", "Bearer t2", "Bearer t3"]
    assert {pairs["x-sage-user"] for pairs in server.metadata} == {"maria"}


async def test_a_client_for_another_user_shares_the_channel(server: Server, client: AsyncSageClient) -> None:
    other = client.with_options(user="otto", token="t")
    await other.conversations.get("c1")
    await client.conversations.get("c1")

    assert other.channel is client.channel
    assert server.metadata[0]["x-sage-user"] == "otto"
    assert "x-sage-user" not in server.metadata[1]


async def test_iteration_goes_over_all_pages_and_fetches_them_when_needed(
    server: Server, client: AsyncSageClient
) -> None:
    found = client.conversations.list(page_size=2)
    assert (await anext(found)).id == "a"
    assert len(server.seen) == 1

    assert [conversation.id async for conversation in found] == ["b", "c", "d", "e"]
    tokens = [
        request.page_token for request in server.seen if isinstance(request, pb.ListConversationsRequest)
    ]
    assert tokens == ["", "2", "4"]

    page = await client.conversations.list_page(page_size=2, page_token="4")
    assert ([conversation.id for conversation in page.items], page.next_page_token) == (["e"], "")


CHUNK = pb.ExportConversationsResponse(chunk=pb.ExportChunk(jsonl=b"{}\n"))
PROGRESS = pb.ExportConversationsResponse(
    progress=pb.ExportProgress(conversations=1, items=2, total_conversations=4)
)
DONE = pb.ExportConversationsResponse(done=pb.ExportDone(conversations=1, items=2))


async def test_an_export_is_written_whole(server: Server, client: AsyncSageClient, tmp_path: Path) -> None:
    server.exports = [CHUNK, PROGRESS, CHUNK, DONE]
    server.fail = [UNAVAILABLE]
    seen: list[sage_client.ExportProgress] = []

    done = await client.conversations.export_to(tmp_path / "out", on_progress=seen.append)

    assert (tmp_path / "out").read_bytes() == b"{}\n{}\n"
    assert done == sage_client.ExportDone(conversations=1, items=2)
    assert seen == [sage_client.ExportProgress(1, 2, 4)]


@pytest.mark.parametrize(
    ("failure", "expected"), [(UNAVAILABLE, sage_client.Unavailable), (None, sage_client.Internal)]
)
async def test_an_export_that_breaks_off_is_neither_repeated_nor_kept(
    server: Server,
    client: AsyncSageClient,
    tmp_path: Path,
    failure: Fail | None,
    expected: type[sage_client.SageError],
) -> None:
    server.exports, server.fail_after_export = [CHUNK], failure

    with pytest.raises(expected):
        await client.conversations.export_to(tmp_path / "out")

    assert len(server.seen) == 1
    assert os.listdir(tmp_path) == []  # noqa: PTH208 -- Path would count as blocking here


async def test_stopping_an_export_early_cancels_the_call(server: Server, client: AsyncSageClient) -> None:
    server.exports = [CHUNK]
    async for event in client.conversations.export(show_deleted=True):
        assert event == sage_client.ExportChunk(b"{}\n")
        break

    await asyncio.wait_for(server.cancelled.wait(), 5)


async def test_a_long_import_goes_in_several_calls_and_is_summed_up(
    server: Server, client: AsyncSageClient, tmp_path: Path
) -> None:
    source = (b"x" * 1_000_000 + b"\n") * 9
    (tmp_path / "in").write_bytes(source)
    server.fail = [UNAVAILABLE]
    seen: list[sage_client.ImportProgress] = []

    done = await client.conversations.import_(tmp_path / "in", on_progress=seen.append)

    sent = [request.jsonl for request in server.seen if isinstance(request, pb.ImportConversationsRequest)]
    assert sent[0] == sent[1]
    assert b"".join(sent[1:]) == source
    assert max(map(len, sent)) <= 4 * 1024 * 1024
    assert done == sage_client.ImportDone(conversations_created=3, items_created=6, items_skipped=6)
    assert [progress.lines for progress in seen] == [4, 8, 9]
    assert [progress.bytes_done for progress in seen] == [4_000_004, 8_000_008, 9_000_009]
    assert {progress.total_bytes for progress in seen} == {9_000_009}


async def test_a_bad_line_far_into_an_import_can_be_found(server: Server, client: AsyncSageClient) -> None:
    line = b"x" * 3_000_000 + b"\n"

    def fail_later(progress: sage_client.ImportProgress) -> None:
        server.fail = [Fail(grpc.StatusCode.INVALID_ARGUMENT)]

    with pytest.raises(sage_client.InvalidArgument) as caught:
        await client.conversations.import_(line * 3, on_progress=fail_later)

    assert caught.value.__notes__ == ["Line 1 of this call is line 2 of the source."]


async def test_an_empty_import_is_nothing_to_do(server: Server, client: AsyncSageClient) -> None:
    assert await client.conversations.import_(b"") == sage_client.ImportDone()
    assert server.seen == []


async def test_what_is_not_wrapped_can_be_sent_with_the_same_care(
    server: Server, client: AsyncSageClient
) -> None:
    server.fail = [UNAVAILABLE]
    response = await client.transport.unary(
        client.stubs.conversations.GetConversation,
        pb.GetConversationRequest(conversation_id="c1"),
        repeat=sage_client.Repeat.SAFE,
    )

    assert response.conversation.id == "c1"
    assert len(server.seen) == 2


async def in_thread(server: Server, work: Callable[[sage_client.SageClient], None]) -> None:
    def run() -> None:
        with sage_client.connect(server.address, token="t", user="maria", retry=QUICK) as client:
            work(client)

    await asyncio.to_thread(run)


async def test_the_sync_client_retries_pages_and_raises_alike(server: Server, tmp_path: Path) -> None:
    server.fail = [UNAVAILABLE, UNAVAILABLE]
    server.exports = [CHUNK, DONE]

    def work(client: sage_client.SageClient) -> None:
        assert client.conversations.create("Garden").title == "Garden"
        assert [found.id for found in client.conversations.list(page_size=2)] == LIST
        assert list(client.conversations.export()) == [
            sage_client.ExportChunk(b"{}\n"),
            sage_client.ExportDone(conversations=1, items=2),
        ]
        assert client.conversations.export_to(tmp_path / "out").items == 2
        assert client.conversations.import_(tmp_path / "out").conversations_created == 1
        server.fail = [Fail(grpc.StatusCode.NOT_FOUND)]
        with pytest.raises(sage_client.NotFound) as caught:
            client.conversations.get("c1")
        assert caught.value.request_id == "r-9"
        with pytest.raises(sage_client.DeadlineExceeded):
            client.with_options(timeout=0.2).conversations.get("slow")

    await in_thread(server, work)

    first, second, third = server.seen[:3]
    assert first == second == third
    assert server.metadata[0]["authorization"] == "Bearer t"
    assert server.metadata[0]["x-sage-user"] == "maria"


async def test_stopping_a_sync_export_early_cancels_the_call(server: Server) -> None:
    server.exports = [CHUNK]

    def work(client: sage_client.SageClient) -> None:
        for _ in client.conversations.export(show_deleted=True):
            break
        # Before the client is closed, which would cancel the call as well.
        asyncio.run_coroutine_threadsafe(server.cancelled.wait(), loop).result(5)

    loop = asyncio.get_running_loop()
    await in_thread(server, work)
