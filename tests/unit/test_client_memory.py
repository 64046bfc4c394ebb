"""`client.memory`, and the jobs of `client.admin`, against a server on a real socket."""

from __future__ import annotations

import array
import asyncio
import dataclasses
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import grpc.aio
import numpy as np
import protovalidate
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

import sage_client
from sage.v1 import admin_pb2, admin_service_pb2, memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client import (
    AsyncSageClient,
    DocumentStatus,
    EmbedPurpose,
    MemoryFilter,
    MemorySource,
    MemoryTrust,
    NewMemory,
    RetryPolicy,
    SearchQuery,
    TagMatch,
    Vector,
)

Context = grpc.aio.ServicerContext[Any, Any]
QUICK = RetryPolicy(initial_backoff=0.01)
ID = "0193e2a4-7b1c-7c3a-9e58-0123456789ab"
OTHER = "0193e2a4-7b1c-7c3a-9e58-0123456789ac"
MAY = datetime(2026, 5, 1, tzinfo=UTC)
JUNE = datetime(2026, 6, 1, tzinfo=UTC)
METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for service in (
        pb.DESCRIPTOR.services_by_name["MemoryService"],
        admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
    )
    for method in service.methods
}


@dataclass
class Server(grpc.GenericRpcHandler):
    """Answers every method with what is scripted for it, or with an empty message. Records what comes in.

    A request that breaks the contract is INVALID_ARGUMENT.
    """

    answers: dict[str, deque[Message]] = field(default_factory=dict)
    fail: list[grpc.StatusCode] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    address: str = ""

    def script(self, *answers: Message) -> None:
        for answer in answers:
            method = type(answer).DESCRIPTOR.name.removesuffix("Response")
            self.answers.setdefault(method, deque()).append(answer)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        method = METHODS[handler_call_details.method]
        answers = self.answers.get(method.name) or deque([GetMessageClass(method.output_type)()])

        async def unary(request: Message, context: Context) -> Message:
            await self._enter(request, context)
            return answers.popleft()

        async def stream(request: Message, context: Context) -> AsyncIterator[Message]:
            await self._enter(request, context)
            while answers:
                yield answers.popleft()

        parse = GetMessageClass(method.input_type).FromString
        write = GetMessageClass(method.output_type).SerializeToString
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, parse, write)
        return grpc.unary_unary_rpc_method_handler(unary, parse, write)

    async def _enter(self, request: Message, context: Context) -> None:
        self.seen.append(request)
        if self.fail:
            await context.abort(self.fail.pop(0), "told to fail")
        violations = protovalidate.collect_violations(request)
        if violations:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, violations[0].proto.message)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    handler = Server()
    running = grpc.aio.server(options=(("grpc.max_receive_message_length", -1),))
    running.add_generic_rpc_handlers((handler,))
    handler.address = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    await running.start()
    yield handler
    await running.stop(None)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(server.address, retry=QUICK) as connected:
        yield connected


async def drain(events: AsyncIterator[object]) -> list[object]:
    return [event async for event in events]


Call = Callable[[AsyncSageClient], Awaitable[object]]
# Method, call, and whether it may be sent again after a lost connection.
CALLS: list[tuple[str, Call, bool]] = [
    ("CreateBlock", lambda c: c.memory.blocks.create("goals", "Sow beans."), True),
    ("GetBlock", lambda c: c.memory.blocks.get("goals"), True),
    ("ListBlocks", lambda c: drain(c.memory.blocks.list()), True),
    ("UpdateBlock", lambda c: c.memory.blocks.update("goals", value=""), True),
    ("UpdateBlock", lambda c: c.memory.blocks.update("goals", read_only=False, etag="e"), False),
    ("DeleteBlock", lambda c: c.memory.blocks.delete("goals"), False),
    ("ListBlockRevisions", lambda c: drain(c.memory.blocks.revisions("goals")), True),
    ("RestoreBlock", lambda c: c.memory.blocks.restore("goals", 1), True),
    ("RestoreBlock", lambda c: c.memory.blocks.restore("goals", 1, etag="e"), False),
    ("InsertMemory", lambda c: c.memory.insert("Anna is allergic to nuts."), True),
    ("BatchInsertMemories", lambda c: c.memory.insert_many([NewMemory("a"), NewMemory("b")]), True),
    ("GetMemory", lambda c: c.memory.get(ID), True),
    ("ListMemories", lambda c: drain(c.memory.list()), True),
    ("UpdateMemory", lambda c: c.memory.update(ID, tags=[]), True),
    ("UpdateMemory", lambda c: c.memory.update(ID, text="x", etag="e"), False),
    ("DeleteMemory", lambda c: c.memory.delete(ID), False),
    ("DeleteMemories", lambda c: c.memory.delete_many([ID]), True),
    ("SearchMemories", lambda c: c.memory.search("Anna"), True),
    ("BatchSearchMemories", lambda c: c.memory.search_many([SearchQuery("Anna")]), True),
    ("GetDocument", lambda c: c.memory.documents.get(ID), True),
    ("ListDocuments", lambda c: drain(c.memory.documents.list()), True),
    ("DeleteDocument", lambda c: c.memory.documents.delete(ID), False),
    ("GetScratchpad", lambda c: c.memory.scratchpads.get(), True),
    ("WriteScratchpad", lambda c: c.memory.scratchpads.write(["a"], ID), True),
    ("WriteScratchpad", lambda c: c.memory.scratchpads.write(["a"], agent="main", etag="e"), False),
    ("ClearScratchpad", lambda c: c.memory.scratchpads.clear(ID), True),
    ("EmbedText", lambda c: c.memory.embed(["a"]), True),
    ("GetMemoryStats", lambda c: c.memory.stats(), True),
    ("GetJobStats", lambda c: c.admin.job_stats(), True),
    ("ListDeadJobs", lambda c: drain(c.admin.list_dead_jobs()), True),
    ("RetryDeadJob", lambda c: c.admin.retry_dead_job("7"), False),
    ("EraseUser", lambda c: c.admin.erase_user("maria"), False),
]


def test_every_method_of_the_service_has_its_call_here() -> None:
    contract = {method.name for method in pb.DESCRIPTOR.services_by_name["MemoryService"].methods}

    assert contract - {name for name, _, _ in CALLS} == {"IngestDocument"}


@pytest.mark.parametrize(("method", "call", "again"), CALLS)
async def test_a_call_is_sent_again_as_it_was_and_only_where_that_does_no_harm(
    server: Server, client: AsyncSageClient, method: str, call: Call, again: bool
) -> None:
    server.fail = [grpc.StatusCode.UNAVAILABLE]
    if again:
        await call(client)
    else:
        with pytest.raises(sage_client.Unavailable):
            await call(client)
        await call(client)

    first, second = server.seen
    assert type(first).__name__ == f"{method}Request"
    assert first == second
    if "request_id" in type(first).DESCRIPTOR.fields_by_name:
        assert UUID(first.request_id).version == 4


async def test_a_value_that_only_a_newer_server_knows_cannot_be_sent(client: AsyncSageClient) -> None:
    with pytest.raises(ValueError, match=r"MemorySource\.UNKNOWN cannot be sent"):
        await client.memory.search("x", sources=[MemorySource.UNKNOWN])
    with pytest.raises(ValueError, match=r"MemoryTrust\.UNKNOWN cannot be sent"):
        await client.memory.insert("x", trust=MemoryTrust.UNKNOWN)
    with pytest.raises(ValueError, match=r"DocumentStatus\.UNKNOWN cannot be sent"):
        await client.memory.documents.list_page(statuses=[DocumentStatus.UNKNOWN])


async def test_a_plain_search_leaves_everything_else_to_the_server(
    server: Server, client: AsyncSageClient
) -> None:
    await client.memory.search("When did Anna move?")

    assert server.seen == [
        pb.SearchMemoriesRequest(query="When did Anna move?", tag_match=memory_pb2.TAG_MATCH_ANY, top_k=10)
    ]


FULL_QUERY = SearchQuery(
    query="Anna",
    embedding=(0.5, -0.25),
    sources=(MemorySource.MESSAGE, MemorySource.SUMMARY),
    tags=("health",),
    match=TagMatch.ALL,
    conversation_id=ID,
    agent="scout",
    document_id=OTHER,
    after=MAY,
    before=JUNE,
    top_k=3,
    vector_weight=0.0,
    text_weight=1.0,
    min_score=0.0,
    context_evidence=False,
    at_least_as_fresh="t1",
)
FULL_REQUEST = pb.SearchMemoriesRequest(
    query="Anna",
    query_embedding=[0.5, -0.25],
    sources=[memory_pb2.MEMORY_SOURCE_MESSAGE, memory_pb2.MEMORY_SOURCE_SUMMARY],
    tags=["health"],
    tag_match=memory_pb2.TAG_MATCH_ALL,
    conversation_id=ID,
    agent="scout",
    document_id=OTHER,
    created=memory_pb2.TimeRange(
        start_time=Timestamp(seconds=int(MAY.timestamp())), end_time=Timestamp(seconds=int(JUNE.timestamp()))
    ),
    top_k=3,
    vector_weight=0.0,
    text_weight=1.0,
    min_score=0.0,
    context_evidence=False,
    consistency=memory_pb2.Consistency(at_least_as_fresh="t1"),
)


async def test_a_search_carries_every_argument_alone_and_among_many(
    server: Server, client: AsyncSageClient
) -> None:
    arguments = {one.name: getattr(FULL_QUERY, one.name) for one in dataclasses.fields(FULL_QUERY)}
    server.script(
        pb.SearchMemoriesResponse(memory_token="alone"),
        pb.BatchSearchMemoriesResponse(
            responses=[pb.SearchMemoriesResponse(memory_token=token) for token in ("first", "second")]
        ),
    )

    alone = await client.memory.search(**arguments)
    many = await client.memory.search_many([FULL_QUERY, SearchQuery("x", fully_consistent=True)])

    assert (alone.memory_token, [found.memory_token for found in many]) == ("alone", ["first", "second"])
    assert server.seen[0] == FULL_REQUEST
    assert server.seen[1].requests[0] == FULL_REQUEST
    assert server.seen[1].requests[1].consistency == memory_pb2.Consistency(fully_consistent=True)
    assert set(arguments) == set(inspect.signature(client.memory.search).parameters)


async def test_the_stronger_demand_for_freshness_holds(server: Server, client: AsyncSageClient) -> None:
    await client.memory.search("x", at_least_as_fresh="t1", fully_consistent=True)

    assert server.seen[0].consistency == memory_pb2.Consistency(fully_consistent=True)


@pytest.mark.parametrize(
    "vector",
    [
        [0.5, 0.25, -1.0],
        (0.5, 0.25, -1.0),
        array.array("f", [0.5, 0.25, -1.0]),
        np.array([0.5, 0.25, -1.0], dtype=np.float32),
        np.array([0.5, 0.25, -1.0]),
    ],
    ids=lambda vector: type(vector).__name__,
)
async def test_a_vector_may_be_a_list_a_tuple_or_an_array(
    server: Server, client: AsyncSageClient, vector: Vector
) -> None:
    await client.memory.search(embedding=vector)
    await client.memory.insert("a", embedding=vector, embedding_model="m")
    await client.memory.update(ID, text="b", embedding=vector, embedding_model="m")

    searched, inserted, updated = server.seen
    assert list(searched.query_embedding) == [0.5, 0.25, -1.0]
    assert (list(inserted.embedding), inserted.embedding_model) == ([0.5, 0.25, -1.0], "m")
    assert (list(updated.embedding), updated.embedding_model) == ([0.5, 0.25, -1.0], "m")


async def test_a_table_of_vectors_is_no_vector(server: Server, client: AsyncSageClient) -> None:
    with pytest.raises(TypeError):
        await client.memory.search(embedding=np.zeros((2, 3), dtype=np.float32))

    assert server.seen == []


async def test_one_text_where_several_are_meant_is_refused(server: Server, client: AsyncSageClient) -> None:
    for call in (
        client.memory.search("x", tags="health"),
        client.memory.insert("x", tags="health"),
        client.memory.update(ID, tags="health"),
        client.memory.delete_many(ID),
        client.memory.embed("hello"),
        client.memory.scratchpads.write("a note"),
    ):
        with pytest.raises(TypeError, match="several texts are expected"):
            await call

    assert server.seen == []


async def test_a_memory_is_inserted_with_all_that_is_said_about_it(
    server: Server, client: AsyncSageClient
) -> None:
    server.script(pb.InsertMemoryResponse(memory=memory_pb2.Memory(id=ID, text="a"), memory_token="t"))
    written = await client.memory.insert(
        "a",
        tags={"health"},
        metadata={"k": "v"},
        agent="scout",
        create_time=MAY,
        trust=MemoryTrust.AGENT,
        request_id=OTHER,
    )

    assert (written.memory.id, written.memory.text, written.memory_token) == (ID, "a", "t")
    assert server.seen == [
        pb.InsertMemoryRequest(
            text="a",
            tags=["health"],
            metadata={"k": "v"},
            agent="scout",
            create_time=Timestamp(seconds=int(MAY.timestamp())),
            trust=memory_pb2.MEMORY_TRUST_AGENT,
            request_id=OTHER,
        )
    ]


async def test_many_memories_are_inserted_under_one_request_id(
    server: Server, client: AsyncSageClient
) -> None:
    server.script(pb.BatchInsertMemoriesResponse(memory_ids=[ID, OTHER], memory_token="t"))
    inserted = await client.memory.insert_many(NewMemory(text) for text in "ab")

    assert inserted == sage_client.InsertedMemories((ID, OTHER), "t")
    (request,) = server.seen
    assert list(request.requests) == [pb.InsertMemoryRequest(text="a"), pb.InsertMemoryRequest(text="b")]
    assert UUID(request.request_id).version == 4


WHERE = MemoryFilter(
    sources=(MemorySource.ARCHIVAL,),
    tags=("health",),
    match=TagMatch.ALL,
    agent="scout",
    conversation_id=ID,
    document_id=OTHER,
    after=MAY,
)
FILTER = pb.MemoryFilter(
    sources=[memory_pb2.MEMORY_SOURCE_ARCHIVAL],
    tags=["health"],
    tag_match=memory_pb2.TAG_MATCH_ALL,
    agent="scout",
    conversation_id=ID,
    document_id=OTHER,
    created=memory_pb2.TimeRange(start_time=Timestamp(seconds=int(MAY.timestamp()))),
)


async def test_a_list_keeps_its_filter_from_page_to_page(server: Server, client: AsyncSageClient) -> None:
    server.script(
        pb.ListMemoriesResponse(memories=[memory_pb2.Memory(id="a")], next_page_token="p2"),
        pb.ListMemoriesResponse(memories=[memory_pb2.Memory(id="b")]),
    )

    assert [found.id async for found in client.memory.list(WHERE, page_size=1)] == ["a", "b"]
    assert server.seen == [
        pb.ListMemoriesRequest(page_size=1, filter=FILTER),
        pb.ListMemoriesRequest(page_size=1, page_token="p2", filter=FILTER),
    ]


async def test_other_lists_keep_their_filters_too(server: Server, client: AsyncSageClient) -> None:
    server.script(
        pb.ListBlocksResponse(blocks=[memory_pb2.Block(label="a")], next_page_token="p2"),
        pb.ListBlocksResponse(blocks=[memory_pb2.Block(label="b")]),
        pb.ListBlockRevisionsResponse(revisions=[memory_pb2.BlockRevision(revision=2)], next_page_token="p2"),
        pb.ListBlockRevisionsResponse(revisions=[memory_pb2.BlockRevision(revision=1)]),
        pb.ListDocumentsResponse(documents=[memory_pb2.Document(id="a")], next_page_token="p2"),
        pb.ListDocumentsResponse(documents=[memory_pb2.Document(id="b")]),
        admin_service_pb2.ListDeadJobsResponse(jobs=[admin_pb2.DeadJob(id="8")], next_page_token="p2"),
        admin_service_pb2.ListDeadJobsResponse(jobs=[admin_pb2.DeadJob(id="7")]),
    )
    listed = client.memory.documents.list(
        external_id="x", tags=["t"], agent="scout", statuses=[DocumentStatus.FAILED]
    )

    assert [block.label async for block in client.memory.blocks.list(agent="scout")] == ["a", "b"]
    revisions = client.memory.blocks.revisions("goals", agent="scout")
    assert [revision.revision async for revision in revisions] == [2, 1]
    assert [document.id async for document in listed] == ["a", "b"]
    assert [job.id async for job in client.admin.list_dead_jobs(kind="embed")] == ["8", "7"]
    first: list[Any] = [
        pb.ListBlocksRequest(agent="scout"),
        pb.ListBlockRevisionsRequest(label="goals", agent="scout"),
        pb.ListDocumentsRequest(
            external_id="x", tags=["t"], agent="scout", statuses=[memory_pb2.DOCUMENT_STATUS_FAILED]
        ),
        admin_service_pb2.ListDeadJobsRequest(kind="embed"),
    ]
    assert server.seen[0::2] == first
    for request in first:
        request.page_token = "p2"
    assert server.seen[1::2] == first


async def test_an_update_names_what_is_given_and_nothing_else(
    server: Server, client: AsyncSageClient
) -> None:
    await client.memory.update(ID, tags=[], trust=MemoryTrust.EXTERNAL, etag="e")
    await client.memory.update(ID, text="x", metadata={})
    await client.memory.blocks.update("goals", agent="scout", value="", read_only=False)
    await client.memory.blocks.update("goals", description="d", char_limit=9, etag="e")

    assert server.seen == [
        pb.UpdateMemoryRequest(
            memory_id=ID,
            trust=memory_pb2.MEMORY_TRUST_EXTERNAL,
            update_mask=FieldMask(paths=["tags", "trust"]),
            etag="e",
        ),
        pb.UpdateMemoryRequest(memory_id=ID, text="x", update_mask=FieldMask(paths=["text", "metadata"])),
        pb.UpdateBlockRequest(
            label="goals", agent="scout", update_mask=FieldMask(paths=["value", "read_only"])
        ),
        pb.UpdateBlockRequest(
            label="goals",
            description="d",
            char_limit=9,
            update_mask=FieldMask(paths=["description", "char_limit"]),
            etag="e",
        ),
    ]
    with pytest.raises(sage_client.InvalidArgument):
        await client.memory.update(ID)


async def test_several_memories_are_deleted_by_ids_by_a_filter_or_all(
    server: Server, client: AsyncSageClient
) -> None:
    server.script(
        pb.DeleteMemoriesResponse(deleted_count=1, not_found=[OTHER], memory_token="t1"),
        pb.DeleteMemoriesResponse(deleted_count=7, memory_token="t2"),
        pb.DeleteMemoriesResponse(deleted_count=9, memory_token="t3"),
    )

    assert await client.memory.delete_many([ID, OTHER]) == sage_client.DeletedMemories(1, (OTHER,), "t1")
    assert await client.memory.delete_where(WHERE) == sage_client.DeletedMemories(7, (), "t2")
    assert await client.memory.delete_all() == sage_client.DeletedMemories(9, (), "t3")
    assert server.seen == [
        pb.DeleteMemoriesRequest(ids=pb.MemoryIds(ids=[ID, OTHER])),
        pb.DeleteMemoriesRequest(filter=FILTER),
        pb.DeleteMemoriesRequest(all=True),
    ]
    with pytest.raises(sage_client.InvalidArgument):
        await client.memory.delete_where(MemoryFilter())


async def test_one_deletion_says_what_is_gone(server: Server, client: AsyncSageClient) -> None:
    server.script(
        pb.DeleteMemoryResponse(deleted_count=1, memory_token="t1"),
        pb.DeleteDocumentResponse(deleted_count=5, memory_token="t2"),
        pb.DeleteBlockResponse(deleted_revision_count=4),
        pb.ClearScratchpadResponse(deleted_count=3),
    )

    assert await client.memory.delete(ID, etag="e") == sage_client.DeletedMemories(1, (), "t1")
    assert await client.memory.documents.delete(ID) == sage_client.DeletedMemories(5, (), "t2")
    assert await client.memory.blocks.delete("goals", agent="scout", etag="e") == 4
    assert await client.memory.scratchpads.clear(agent="scout") == 3
    assert server.seen == [
        pb.DeleteMemoryRequest(memory_id=ID, etag="e"),
        pb.DeleteDocumentRequest(document_id=ID),
        pb.DeleteBlockRequest(label="goals", agent="scout", etag="e"),
        pb.ClearScratchpadRequest(agent="scout"),
    ]


async def test_texts_are_embedded_for_a_purpose(server: Server, client: AsyncSageClient) -> None:
    server.script(
        pb.EmbedTextResponse(
            embeddings=[memory_pb2.Embedding(values=[1.0, 0.0]), memory_pb2.Embedding(values=[0.0, -1.0])],
            model="local/m",
            dimensions=2,
            embedding_tokens=6,
        )
    )
    made = await client.memory.embed(["a", "b"], EmbedPurpose.QUERY)
    await client.memory.embed(["c"])

    assert made == sage_client.Embeddings(((1.0, 0.0), (0.0, -1.0)), "local/m", 2, 6)
    assert server.seen == [
        pb.EmbedTextRequest(texts=["a", "b"], purpose=pb.EMBED_PURPOSE_QUERY),
        pb.EmbedTextRequest(texts=["c"], purpose=pb.EMBED_PURPOSE_DOCUMENT),
    ]


async def test_a_block_is_named_by_its_label_and_agent(server: Server, client: AsyncSageClient) -> None:
    server.script(
        pb.CreateBlockResponse(block=memory_pb2.Block(value="created")),
        pb.GetBlockResponse(block=memory_pb2.Block(value="read")),
        pb.RestoreBlockResponse(block=memory_pb2.Block(value="restored")),
    )
    made = [
        await client.memory.blocks.create(
            "goals",
            "Sow.",
            agent="scout",
            description="d",
            char_limit=9,
            read_only=True,
            request_id=ID,
        ),
        await client.memory.blocks.get("goals", agent="scout"),
        await client.memory.blocks.restore("goals", 2, agent="scout", etag="e"),
    ]

    assert [block.value for block in made] == ["created", "read", "restored"]
    assert server.seen == [
        pb.CreateBlockRequest(
            label="goals",
            agent="scout",
            description="d",
            value="Sow.",
            char_limit=9,
            read_only=True,
            request_id=ID,
        ),
        pb.GetBlockRequest(label="goals", agent="scout"),
        pb.RestoreBlockRequest(label="goals", agent="scout", revision=2, etag="e"),
    ]


async def test_a_scratchpad_is_that_of_a_conversation_or_of_an_agent(
    server: Server, client: AsyncSageClient
) -> None:
    server.script(pb.WriteScratchpadResponse(scratchpad=memory_pb2.Scratchpad(items=["a", "b"])))
    written = await client.memory.scratchpads.write(["a", "b"], ID, etag="e")
    await client.memory.scratchpads.get(agent="scout")

    assert written.items == ("a", "b")
    assert server.seen == [
        pb.WriteScratchpadRequest(conversation_id=ID, items=["a", "b"], etag="e"),
        pb.GetScratchpadRequest(agent="scout"),
    ]


ACCEPTED = pb.IngestDocumentResponse(
    accepted=pb.IngestAccepted(
        document=memory_pb2.Document(id=ID, status=memory_pb2.DOCUMENT_STATUS_PROCESSING)
    )
)
PROGRESS = pb.IngestDocumentResponse(
    progress=pb.IngestProgress(stage=pb.INGEST_STAGE_EMBEDDING, chunks_done=1, chunks_total=4)
)
NEWER = pb.IngestDocumentResponse()
DONE = pb.IngestDocumentResponse(
    done=pb.IngestDone(
        document=memory_pb2.Document(id=ID, status=memory_pb2.DOCUMENT_STATUS_READY),
        added_count=4,
        reused_count=3,
        deleted_count=2,
        memory_token="t",
    )
)


async def test_taking_in_a_document_shows_how_far_it_is(server: Server, client: AsyncSageClient) -> None:
    server.script(ACCEPTED, PROGRESS, NEWER, DONE)
    server.fail = [grpc.StatusCode.UNAVAILABLE]
    events = [event async for event in client.memory.documents.ingest(b"Sow beans in May.")]

    accepted, progress, done = events
    assert isinstance(accepted, sage_client.IngestAccepted)
    assert (accepted.document.id, accepted.document.status) == (ID, DocumentStatus.PROCESSING)
    assert progress == sage_client.IngestProgress(sage_client.IngestStage.EMBEDDING, 1, 4)
    assert isinstance(done, sage_client.IngestDone)
    assert done.document.status is DocumentStatus.READY
    assert (done.skipped, done.added_count, done.reused_count, done.deleted_count) == (False, 4, 3, 2)
    assert done.memory_token == "t"
    first, second = server.seen
    assert first == second
    assert UUID(first.request_id).version == 4


async def test_a_file_is_taken_in_and_waited_for(
    server: Server, client: AsyncSageClient, tmp_path: Path
) -> None:
    (tmp_path / "garden.md").write_bytes(b"# Beans")
    server.script(ACCEPTED, PROGRESS, DONE)
    seen: list[sage_client.IngestEvent] = []

    done = await client.memory.documents.add(
        tmp_path / "garden.md",
        media_type="text/markdown",
        title="Garden",
        external_id="garden.md",
        tags=["plants"],
        metadata={"k": "v"},
        agent="scout",
        trust=MemoryTrust.USER,
        request_id=OTHER,
        on_event=seen.append,
    )

    assert (done.document.id, done.added_count) == (ID, 4)
    assert (len(seen), seen[-1]) == (3, done)
    assert server.seen == [
        pb.IngestDocumentRequest(
            content=b"# Beans",
            media_type="text/markdown",
            title="Garden",
            external_id="garden.md",
            tags=["plants"],
            metadata={"k": "v"},
            agent="scout",
            trust=memory_pb2.MEMORY_TRUST_USER,
            request_id=OTHER,
        )
    ]


async def test_a_stream_that_ends_without_its_last_event_is_an_error(
    server: Server, client: AsyncSageClient
) -> None:
    server.script(ACCEPTED, PROGRESS)

    with pytest.raises(sage_client.Internal, match="ended before it was complete"):
        await client.memory.documents.add(b"x")


async def test_text_is_not_mistaken_for_a_path(server: Server, client: AsyncSageClient) -> None:
    with pytest.raises(TypeError):
        client.memory.documents.ingest("Sow beans in May.")  # type: ignore[arg-type]

    assert server.seen == []


async def test_an_operator_sees_how_jobs_are_doing_and_revives_one(
    server: Server, client: AsyncSageClient
) -> None:
    queue = admin_pb2.JobQueueStats(kind="embed", queued=3, running=1, dead=2, lag_seconds=1.5)
    server.script(admin_service_pb2.GetJobStatsResponse(queues=[queue]))

    assert await client.admin.job_stats() == (sage_client.JobQueueStats("embed", 3, 1, 2, 1.5),)
    await client.admin.retry_dead_job("7")
    assert server.seen[1] == admin_service_pb2.RetryDeadJobRequest(job_id="7")


async def test_the_sync_client_does_the_same(server: Server) -> None:
    server.fail = [grpc.StatusCode.UNAVAILABLE]
    server.script(
        pb.SearchMemoriesResponse(
            results=[memory_pb2.SearchResult(memory=memory_pb2.Memory(text="found"))],
            duration=Duration(nanos=2_000_000),
        ),
        pb.ListMemoriesResponse(memories=[memory_pb2.Memory(id="a")], next_page_token="p2"),
        pb.ListMemoriesResponse(memories=[memory_pb2.Memory(id="b")]),
        pb.GetBlockResponse(block=memory_pb2.Block(label="goals")),
        pb.GetScratchpadResponse(scratchpad=memory_pb2.Scratchpad(items=["a"])),
        ACCEPTED,
        DONE,
    )

    def work() -> None:
        with sage_client.connect(server.address, retry=QUICK) as client:
            found = client.memory.search("x", embedding=np.ones(2, dtype=np.float32))
            assert [result.memory.text for result in found.results] == ["found"]
            assert found.duration == timedelta(milliseconds=2)
            assert [found.id for found in client.memory.list(WHERE)] == ["a", "b"]
            assert client.memory.blocks.get("goals").label == "goals"
            assert client.memory.scratchpads.get().items == ("a",)
            assert client.memory.documents.add(b"x").memory_token == "t"
            assert client.admin.job_stats() == ()

    await asyncio.to_thread(work)

    assert server.seen[0] == server.seen[1]


@pytest.mark.parametrize("part", [(), ("blocks",), ("documents",), ("scratchpads",)])
async def test_both_clients_have_the_same_methods(part: tuple[str, ...]) -> None:
    def methods(found: object) -> dict[str, list[str]]:
        for name in part:
            found = getattr(found, name)
        members = inspect.getmembers(found, inspect.ismethod)
        return {name: list(inspect.signature(method).parameters) for name, method in members}

    async with sage_client.connect_async("127.0.0.1:1") as asynchronous:
        with sage_client.connect("127.0.0.1:1") as plain:
            assert methods(plain.memory) == methods(asynchronous.memory)
