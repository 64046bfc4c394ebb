"""Documents through the real client and server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

import sage_client
from sage.v1 import memory_pb2, memory_service_pb2
from sage_client import AsyncSageClient
from sage_client.models.documents import (
    Document,
    DocumentStatus,
    IngestAccepted,
    IngestDone,
    IngestEvent,
    IngestProgress,
    IngestStage,
)
from sage_client.models.memory import Memory, MemoryFilter, MemorySource, MemoryTrust
from sage_server.domain import documents as domain
from sage_server.services import documents as service
from support.documents import PAGE, pdf
from support.provider import (
    FakeProvider,
    ProviderReply,
    ProviderRequest,
    embeddings_reply,
    hang,
    json_reply,
)
from support.server import ROOT_KEY, RunningServer, child_server, running_server

OAK = "The oak in the garden is two hundred years old."


def story(sentences: int, about: str = "trees", first: int = 0) -> bytes:
    """Distinct sentences of about a hundred characters, six to a chunk."""
    lines = (
        f"Sentence number {number} of this long story about {about} says something that none of the others "
        f"would say."
        for number in range(first, first + sentences)
    )
    return " ".join(lines).encode()


async def rows(server: RunningServer, sql: str, *arguments: Any) -> list[Any]:
    connection = await asyncpg.connect(server.dsn)
    try:
        return await connection.fetch(sql, *arguments)
    finally:
        await connection.close()


async def counts(server: RunningServer) -> tuple[int, int]:
    """Rows of documents, and of memories that can be found."""
    sql = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM memories WHERE state = 0)"
    ((documents, memories),) = await rows(server, sql)
    return documents, memories


async def due_now(server: RunningServer) -> None:
    """Jobs that wait for later are due now."""
    await rows(server, "UPDATE pgqueuer SET execute_after = now() WHERE status = 'queued'")


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again, for half a minute at most."""
    for _ in range(600):
        if await is_so():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came")


async def settled(client: AsyncSageClient, document_id: str) -> Document:
    """The document as soon as it is not being taken in any more."""

    async def is_settled() -> bool:
        found = await client.memory.documents.get(document_id)
        return found.status is not DocumentStatus.PROCESSING

    await until(is_settled)
    return await client.memory.documents.get(document_id)


async def chunks_of(client: AsyncSageClient, document_id: str) -> dict[str, Memory]:
    """By id."""
    found = client.memory.list(MemoryFilter(document_id=document_id))
    return {memory.id: memory async for memory in found}


async def texts_found(client: AsyncSageClient, query: str, **options: Any) -> list[str]:
    found = await client.memory.search(query, sources=[MemorySource.DOCUMENT], **options)
    return [result.memory.text for result in found.results]


@asynccontextmanager
async def provided(dsn: str, provider: FakeProvider) -> AsyncIterator[RunningServer]:
    """A server that embeds with a provider which the test scripts."""
    async with running_server(
        dsn,
        embedding="openai",
        embedding_base_url=provider.url,
        embedding_dimensions=provider.dimensions,
    ) as running:
        yield running


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[AsyncSageClient]:
    async with sage_client.connect_async(address, user="maria") as client:
        yield client


async def asked(provider: FakeProvider) -> None:
    """Wait until the provider was asked for the first time."""

    async def was_asked() -> bool:
        return bool(provider.requests)

    await until(was_asked)


def gated(provider: FakeProvider, gate: asyncio.Event) -> Callable[[ProviderRequest], Any]:
    """A step: the right answer, but not before the gate is open."""

    async def answer(request: ProviderRequest) -> ProviderReply:
        await gate.wait()
        return embeddings_reply(request, provider.dimensions)

    return answer


async def accepted_only(events: AsyncIterator[IngestEvent]) -> Document:
    """Read the first event and hang up."""
    async with contextlib.aclosing(events):  # type: ignore[type-var]
        first = await anext(events)
    assert isinstance(first, IngestAccepted)
    return first.document


def test_the_numbers_are_those_of_the_contract() -> None:
    for status in domain.DocumentStatus:
        assert memory_pb2.DocumentStatus.Value(f"DOCUMENT_STATUS_{status.name}") == int(status)
    for stage in service.IngestStage:
        assert memory_service_pb2.IngestStage.Value(f"INGEST_STAGE_{stage.name}") == int(stage)


@pytest.mark.parametrize(
    ("content", "media_type", "title", "found_by"),
    [
        (OAK.encode(), "text/plain", "", ("oak garden", OAK)),
        ("\ufeffÄpfel und Birnen".encode("utf-8-sig"), "text/plain", "", ("Birnen", "Äpfel und Birnen")),
        (b"# Trees\n\nAn *elm* is tall.", "text/markdown", "", ("elm", "# Trees\n\nAn *elm* is tall.")),
        (PAGE.encode(), "text/html", "Trees & shrubs", ("acorns", "It bears acorns.")),
        (
            pdf("A birch is white.", title="Birches"),
            "application/pdf",
            "Birches",
            ("birch", "A birch is white."),
        ),
    ],
)
async def test_what_a_document_says_is_found(
    client: AsyncSageClient, content: bytes, media_type: str, title: str, found_by: tuple[str, str]
) -> None:
    query, says = found_by
    await client.memory.insert("Something else altogether")
    await client.memory.search("load the index")
    declared = media_type if media_type == "text/markdown" else ""
    done = await client.memory.documents.add(content, media_type=declared, tags=["Wood"])
    document = done.document
    assert (document.media_type, document.title, document.status) == (
        media_type,
        title,
        DocumentStatus.READY,
    )
    assert (document.byte_count, document.chunk_count, document.failure) == (len(content), 1, None)
    assert (done.skipped, done.added_count, done.reused_count, done.deleted_count) == (False, 1, 0, 0)
    found = await client.memory.search(query, at_least_as_fresh=done.memory_token)
    memory = found.results[0].memory
    assert says in memory.text
    assert len(memory.text) == document.char_count
    assert (memory.source, memory.trust, memory.tags) == (
        MemorySource.DOCUMENT,
        MemoryTrust.EXTERNAL,
        ("wood",),
    )
    assert (memory.provenance.document_id, memory.provenance.document_title) == (document.id, title)
    assert await client.memory.documents.get(document.id) == document


async def test_the_stream_says_how_far_it_is(client: AsyncSageClient) -> None:
    events = [
        event
        async for event in client.memory.documents.ingest(
            story(1_200), title="Story", external_id="s", metadata={"a": "b"}, trust=MemoryTrust.USER
        )
    ]
    first, *between, last = events
    assert isinstance(first, IngestAccepted)
    assert isinstance(last, IngestDone)
    assert first.document.status is DocumentStatus.PROCESSING
    assert (first.document.title, first.document.external_id) == ("Story", "s")
    assert (last.document.metadata, last.document.trust) == ({"a": "b"}, MemoryTrust.USER)
    progress = [event for event in between if isinstance(event, IngestProgress)]
    assert len(progress) == len(between)
    stages = list(dict.fromkeys(event.stage for event in progress))
    assert stages == [IngestStage.READING, IngestStage.CHUNKING, IngestStage.EMBEDDING, IngestStage.STORING]
    embedding = [event.chunks_done for event in progress if event.stage is IngestStage.EMBEDDING]
    assert embedding == sorted(embedding)
    assert len(embedding) > 2
    assert embedding[-1] == last.added_count == last.document.chunk_count


async def test_a_title_of_the_callers_wins(client: AsyncSageClient) -> None:
    done = await client.memory.documents.add(PAGE.encode(), title="Mine")
    assert done.document.title == "Mine"


async def test_every_chunk_says_where_it_lies_in_the_text(client: AsyncSageClient) -> None:
    content = story(40)
    done = await client.memory.documents.add(content)
    chunks = sorted(
        (await chunks_of(client, done.document.id)).values(), key=lambda one: one.provenance.chunk_index
    )
    assert len(chunks) == done.document.chunk_count > 5
    for index, memory in enumerate(chunks):
        place = memory.provenance
        assert place.chunk_index == index
        assert content.decode()[place.char_start : place.char_end] == memory.text


@pytest.mark.parametrize("external_id", ["", "notes/a.txt"])
async def test_the_same_document_is_skipped(
    server: RunningServer, client: AsyncSageClient, external_id: str
) -> None:
    first = await client.memory.documents.add(story(20), external_id=external_id, tags=["b", "a"])
    before = await counts(server)
    again = await client.memory.documents.add(story(20), external_id=external_id, tags=["B ", "a"])
    assert again.skipped
    assert again.document == first.document
    assert (again.added_count, again.deleted_count) == (0, 0)
    assert again.reused_count == first.document.chunk_count
    assert await counts(server) == before


async def test_external_ids_are_compared_to_the_letter(client: AsyncSageClient) -> None:
    ids = {
        (await client.memory.documents.add(OAK.encode(), external_id=external_id)).document.id
        for external_id in ("A.txt", "a.txt", " a.txt", "")
    }
    assert len(ids) == 4


async def test_the_same_document_is_skipped_after_the_key_was_rotated(
    server: RunningServer, client: AsyncSageClient
) -> None:
    named = await client.memory.documents.add(OAK.encode(), external_id="oak", tags=["wood"])
    await client.memory.documents.add(b"Without a name")
    await client.admin.rotate_user_key("maria")
    assert (await client.memory.documents.add(OAK.encode(), external_id="oak", tags=["wood"])).skipped
    assert (await client.memory.documents.add(b"Without a name")).skipped
    assert [one.id async for one in client.memory.documents.list(external_id="oak")] == [named.document.id]
    assert [one.id async for one in client.memory.documents.list(tags=["wood"])] == [named.document.id]


async def test_changed_content_replaces_the_old(server: RunningServer, client: AsyncSageClient) -> None:
    first = await client.memory.documents.add(story(60), external_id="story")
    before = await chunks_of(client, first.document.id)
    await client.memory.search("load the index")
    changed = story(40) + b" " + story(30, "whales", 100)
    second = await client.memory.documents.add(changed, external_id="story")
    after = await chunks_of(client, first.document.id)
    assert second.document.id == first.document.id
    assert second.document.create_time == first.document.create_time
    assert second.document.update_time > first.document.update_time
    assert not second.skipped
    assert second.reused_count == len(before.keys() & after.keys()) > 3
    assert second.added_count == len(after.keys() - before.keys()) > 3
    assert second.deleted_count == len(before.keys() - after.keys()) > 1
    assert second.document.chunk_count == len(after) == second.added_count + second.reused_count
    for kept in before.keys() & after.keys():
        assert after[kept] == before[kept]
    assert await counts(server) == (1, len(after))
    assert "number 55 " not in " ".join(await texts_found(client, "sentence number 55 trees", top_k=50))
    assert "whales" in (await texts_found(client, "whales"))[0]


async def test_another_replica_finds_the_new_version_only(dsn: str) -> None:
    async with running_server(dsn) as one, running_server(dsn) as other:
        async with connected(one.address) as here, connected(other.address) as there:
            await here.memory.documents.add(b"Whales sing at night.", external_id="a")
            assert await texts_found(there, "whales", fully_consistent=True) == ["Whales sing at night."]
            done = await here.memory.documents.add(b"Whales sing at dawn.", external_id="a")
            found = await texts_found(there, "whales", at_least_as_fresh=done.memory_token)
            assert found == ["Whales sing at dawn."]


async def test_a_new_title_tags_and_trust_need_no_new_vectors(dsn: str) -> None:
    async with (
        FakeProvider.running() as provider,
        provided(dsn, provider) as server,
        connected(server.address) as client,
    ):
        first = await client.memory.documents.add(story(20), external_id="s", title="Old", tags=["a"])
        await client.memory.search("story")
        asked = len(provider.requests)
        second = await client.memory.documents.add(
            story(20), external_id="s", title="New", tags=["b"], trust=MemoryTrust.USER
        )
        assert len(provider.requests) == asked
        count = first.document.chunk_count
        assert (second.skipped, second.added_count, second.reused_count, second.deleted_count) == (
            False,
            0,
            count,
            0,
        )
        found = (await client.memory.search("story", tags=["b"], top_k=50)).results
        assert len(found) == count
        assert {one.memory.provenance.document_title for one in found} == {"New"}
        assert {one.memory.trust for one in found} == {MemoryTrust.USER}
        assert all(one.vector_score is not None for one in found)
        assert not (await client.memory.search("story", tags=["a"])).results


async def test_new_metadata_leave_the_chunks_alone(server: RunningServer, client: AsyncSageClient) -> None:
    first = await client.memory.documents.add(story(20), external_id="s", metadata={"v": "1"})
    before = await chunks_of(client, first.document.id)
    second = await client.memory.documents.add(story(20), external_id="s", metadata={"v": "2"})
    assert (second.skipped, second.document.metadata) == (False, {"v": "2"})
    assert second.reused_count == len(before)
    assert await chunks_of(client, first.document.id) == before


async def test_a_document_whose_memories_are_all_gone_is_taken_in_again(client: AsyncSageClient) -> None:
    first = await client.memory.documents.add(OAK.encode())
    await client.memory.delete_all()
    again = await client.memory.documents.add(OAK.encode())
    assert (again.skipped, again.added_count, again.document.id) == (False, 1, first.document.id)
    assert await texts_found(client, "oak") == [OAK]


async def test_a_text_that_repeats_itself_is_kept_once(client: AsyncSageClient) -> None:
    done = await client.memory.documents.add(b"x" * 640 * 10)
    chunks = await chunks_of(client, done.document.id)
    assert done.document.chunk_count == len(chunks) == len({one.text for one in chunks.values()}) == 2


async def test_a_document_of_many_batches_is_stored_and_replaced_whole(
    server: RunningServer, client: AsyncSageClient
) -> None:
    first = await client.memory.documents.add(story(13_000), external_id="big")
    assert first.added_count == first.document.chunk_count > 2_000
    assert await counts(server) == (1, first.added_count)
    assert "number 12999 " in (await texts_found(client, "sentence number 12999"))[0]
    second = await client.memory.documents.add(story(13_001), external_id="big", title="Now with a title")
    assert second.reused_count >= first.document.chunk_count - 2
    assert await counts(server) == (1, second.document.chunk_count)
    ((revisions,),) = await rows(server, "SELECT count(DISTINCT revision) FROM memories WHERE state = 0")
    assert revisions == 1


async def test_deleting_a_document_deletes_its_chunks(server: RunningServer, client: AsyncSageClient) -> None:
    kept = await client.memory.documents.add(b"Whales sing.")
    gone = await client.memory.documents.add(story(20))
    assert await texts_found(client, "story about trees")
    deleted = await client.memory.documents.delete(gone.document.id)
    assert deleted.deleted_count == gone.document.chunk_count
    assert await texts_found(client, "story about trees", at_least_as_fresh=deleted.memory_token) == [
        "Whales sing."
    ]
    assert await counts(server) == (1, 1)
    for call in (client.memory.documents.get, client.memory.documents.delete):
        with pytest.raises(sage_client.NotFound) as refused:
            await call(gone.document.id)
        assert refused.value.metadata == {"resource": "document"}
    assert [one.id async for one in client.memory.documents.list()] == [kept.document.id]
    assert not (await client.memory.documents.add(story(20))).skipped


@pytest.mark.parametrize("loaded", [True, False])
async def test_a_deleted_document_in_a_filter_is_not_found(
    server: RunningServer, client: AsyncSageClient, loaded: bool
) -> None:
    """Whether or not this replica has an index that knew it."""
    kept = await client.memory.documents.add(b"Whales sing.")
    gone = await client.memory.documents.add(OAK.encode())
    assert await texts_found(client, "oak", document_id=gone.document.id) == [OAK]
    await client.memory.documents.delete(gone.document.id)
    if not loaded:
        server.application.memory.indexes.forget_all()
    with pytest.raises(sage_client.NotFound) as refused:
        await client.memory.search("oak", document_id=gone.document.id)
    assert refused.value.metadata == {"resource": "document"}
    assert await texts_found(client, "oak", document_id=kept.document.id) == ["Whales sing."]


async def test_documents_are_listed_the_newest_first_by_pages_and_filters(client: AsyncSageClient) -> None:
    documents = client.memory.documents
    made = [
        (await documents.add(f"Text {n}".encode(), external_id=f"x{n}", tags=[f"t{n % 2}", f"u{n}"])).document
        for n in range(5)
    ]
    newest_first = [one.id for one in reversed(made)]
    assert [one.id async for one in documents.list(page_size=2)] == newest_first
    assert [one async for one in documents.list(external_id="x3")] == [made[3]]
    assert [one async for one in documents.list(external_id="X3")] == []
    assert [one.id async for one in documents.list(tags=["T1"], page_size=1)] == [made[3].id, made[1].id]
    assert [one.id async for one in documents.list(tags=["u0", "u4"])] == [made[4].id, made[0].id]
    assert len([one async for one in documents.list(statuses=[DocumentStatus.READY])]) == 5
    failed = [DocumentStatus.PROCESSING, DocumentStatus.FAILED]
    assert [one async for one in documents.list(statuses=failed)] == []
    token = (await documents.list_page(page_size=2)).next_page_token
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await documents.list_page(page_size=2, page_token=token, tags=["t1"])
    assert refused.value.reason == "INVALID_PAGE_TOKEN"


@pytest.mark.parametrize("method", ["add", "list_page"])
async def test_an_agent_that_does_not_exist_is_not_found(
    server: RunningServer, client: AsyncSageClient, method: str
) -> None:
    content = (b"text",) if method == "add" else ()
    with pytest.raises(sage_client.NotFound) as refused:
        await getattr(client.memory.documents, method)(*content, agent="nobody")
    assert refused.value.metadata == {"resource": "agent"}
    assert await counts(server) == (0, 0)


async def test_a_repeat_with_the_same_request_id_gets_the_same_document(
    server: RunningServer, client: AsyncSageClient
) -> None:
    request_id = str(uuid4())
    first = await client.memory.documents.add(OAK.encode(), external_id="a", request_id=request_id)
    await client.memory.documents.add(b"Other content", external_id="a")
    again = await client.memory.documents.add(OAK.encode(), external_id="a", request_id=request_id)
    assert again.document.id == first.document.id
    assert await texts_found(client, "content") == ["Other content"]
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.documents.add(OAK.encode(), external_id="b", request_id=request_id)
    assert refused.value.reason == "REQUEST_ID_REUSED"
    assert await counts(server) == (1, 1)


async def test_a_late_repeat_does_not_bring_a_deleted_document_back(
    server: RunningServer, client: AsyncSageClient
) -> None:
    request_id = str(uuid4())
    done = await client.memory.documents.add(OAK.encode(), request_id=request_id)
    await client.memory.documents.delete(done.document.id)
    with pytest.raises(sage_client.NotFound) as refused:
        await client.memory.documents.add(OAK.encode(), request_id=request_id)
    assert refused.value.metadata == {"resource": "document"}
    assert await counts(server) == (0, 0)


async def test_a_request_id_of_a_skipped_document_is_used(client: AsyncSageClient) -> None:
    request_id = str(uuid4())
    await client.memory.documents.add(OAK.encode())
    assert (await client.memory.documents.add(OAK.encode(), request_id=request_id)).skipped
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.memory.documents.add(b"Another", request_id=request_id)
    assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_repeats_at_once_make_one_document(server: RunningServer, client: AsyncSageClient) -> None:
    request_id = str(uuid4())
    adding = (client.memory.documents.add(story(30), request_id=request_id) for _ in range(6))
    done = await asyncio.gather(*adding)
    assert len({one.document.id for one in done}) == 1
    assert await counts(server) == (1, done[0].document.chunk_count)


@pytest.mark.parametrize("external_id", ["", "same"])
async def test_the_same_document_at_once_is_one(
    server: RunningServer, client: AsyncSageClient, external_id: str
) -> None:
    adding = (client.memory.documents.add(story(30), external_id=external_id) for _ in range(6))
    done = await asyncio.gather(*adding)
    assert len({one.document.id for one in done}) == 1
    assert await counts(server) == (1, done[0].document.chunk_count)


async def test_different_contents_of_one_document_at_once_leave_one_of_them(dsn: str) -> None:
    async with running_server(dsn) as one, running_server(dsn) as other:
        async with connected(one.address) as here, connected(other.address) as there:
            done = await asyncio.gather(
                *(
                    client.memory.documents.add(story(30, f"topic{n}{client is here}"), external_id="same")
                    for n in range(3)
                    for client in (here, there)
                )
            )
            assert len({one.document.id for one in done}) == 1
            assert {one.document.status for one in done} == {DocumentStatus.READY}
            document = await here.memory.documents.get(done[0].document.id)
            chunks = await chunks_of(here, document.id)
            assert document.status is DocumentStatus.READY
            assert len(chunks) == document.chunk_count
            topics = {word for memory in chunks.values() for word in memory.text.split() if "topic" in word}
            assert len(topics) == 1
            assert await counts(one) == (1, len(chunks))


async def test_a_document_is_taken_in_although_the_caller_hangs_up(dsn: str) -> None:
    gate = asyncio.Event()
    async with (
        FakeProvider.running() as provider,
        provided(dsn, provider) as server,
        connected(server.address) as client,
    ):
        provider.script(gated(provider, gate))
        document = await accepted_only(client.memory.documents.ingest(OAK.encode(), external_id="oak"))
        assert document.status is DocumentStatus.PROCESSING
        assert await counts(server) == (1, 0)
        gate.set()
        ready = await settled(client, document.id)
        assert (ready.status, ready.chunk_count) == (DocumentStatus.READY, 1)
        assert await texts_found(client, "oak") == [OAK]
        ((text,),) = await rows(server, "SELECT content_enc FROM documents")
        assert text is None


async def test_a_repeat_after_a_broken_stream_waits_for_the_document(dsn: str) -> None:
    gate = asyncio.Event()
    async with (
        FakeProvider.running() as provider,
        provided(dsn, provider) as server,
        connected(server.address) as client,
    ):
        provider.script(gated(provider, gate))
        request_id = str(uuid4())
        documents = client.memory.documents
        document = await accepted_only(documents.ingest(OAK.encode(), request_id=request_id))
        again = documents.ingest(OAK.encode(), request_id=request_id)
        first = await anext(again)
        assert isinstance(first, IngestAccepted)
        assert first.document == document
        gate.set()
        *_, done = [event async for event in again]
        assert isinstance(done, IngestDone)
        assert (done.document.id, done.added_count) == (document.id, 1)
        assert len(provider.requests) == 1


async def test_two_replicas_at_one_document_store_it_once(dsn: str) -> None:
    gate = asyncio.Event()
    request_id = str(uuid4())
    async with (
        FakeProvider.running() as provider,
        provided(dsn, provider) as one,
        provided(dsn, provider) as other,
        connected(one.address) as here,
        connected(other.address) as there,
    ):
        provider.script(gated(provider, gate))
        slow = here.memory.documents.ingest(OAK.encode(), request_id=request_id)
        await anext(slow)
        await asked(provider)
        quick = await there.memory.documents.add(OAK.encode(), request_id=request_id)
        assert (quick.document.status, quick.added_count) == (DocumentStatus.READY, 1)
        gate.set()
        *_, done = [event async for event in slow]
        assert isinstance(done, IngestDone)
        assert (done.document, done.added_count, done.reused_count) == (quick.document, 0, 1)
        assert await counts(one) == (1, 1)
        assert await texts_found(here, "oak", at_least_as_fresh=done.memory_token) == [OAK]


async def test_the_old_version_is_found_until_the_new_one_is_ready(dsn: str) -> None:
    gate = asyncio.Event()
    async with (
        FakeProvider.running() as provider,
        provided(dsn, provider) as server,
        connected(server.address) as client,
    ):
        first = await client.memory.documents.add(b"Whales sing at night.", external_id="w")
        provider.script(gated(provider, gate))
        await accepted_only(client.memory.documents.ingest(b"Whales sing at dawn.", external_id="w"))
        assert await texts_found(client, "", embedding=[1.0] * 8) == ["Whales sing at night."]
        under_way = await client.memory.documents.get(first.document.id)
        assert (under_way.status, under_way.chunk_count) == (DocumentStatus.PROCESSING, 1)
        gate.set()
        await settled(client, first.document.id)
        assert await texts_found(client, "", embedding=[1.0] * 8) == ["Whales sing at dawn."]


async def test_a_document_that_is_deleted_on_its_way_stays_deleted(dsn: str) -> None:
    gate = asyncio.Event()
    async with (
        FakeProvider.running() as provider,
        provided(dsn, provider) as server,
        connected(server.address) as client,
    ):
        provider.script(gated(provider, gate))
        events = client.memory.documents.ingest(OAK.encode())
        first = await anext(events)
        assert isinstance(first, IngestAccepted)
        assert (await client.memory.documents.delete(first.document.id)).deleted_count == 0
        gate.set()
        with pytest.raises(sage_client.NotFound):
            _ = [event async for event in events]
        assert await counts(server) == (0, 0)


async def test_another_replica_finishes_what_a_dead_server_has_accepted(dsn: str) -> None:
    async with FakeProvider.running() as provider:
        provider.script(hang)
        settings = {
            "database_url": dsn,
            "root_key": ROOT_KEY,
            "embedding": "openai",
            "embedding_base_url": provider.url,
            "embedding_dimensions": str(provider.dimensions),
        }
        async with child_server(**settings) as child, connected(child.address) as client:
            document = await accepted_only(client.memory.documents.ingest(OAK.encode(), title="Oak"))
            await asked(provider)
            child.send(signal.SIGKILL)
            await child.ended()
        async with provided(dsn, provider) as server, connected(server.address) as client:
            assert (await client.memory.documents.get(document.id)).status is DocumentStatus.PROCESSING
            await due_now(server)
            ready = await settled(client, document.id)
            assert (ready.status, ready.title, ready.chunk_count) == (DocumentStatus.READY, "Oak", 1)
            assert await texts_found(client, "oak") == [OAK]


async def test_a_server_that_stops_leaves_the_rest_to_the_job(dsn: str) -> None:
    async with FakeProvider.running() as provider:
        provider.script(hang)
        async with provided(dsn, provider) as server, connected(server.address) as client:
            document = await accepted_only(client.memory.documents.ingest(OAK.encode()))
            await asked(provider)
        async with provided(dsn, provider) as server, connected(server.address) as client:
            await due_now(server)
            assert (await settled(client, document.id)).status is DocumentStatus.READY


async def test_a_job_for_a_document_that_is_ready_or_gone_does_nothing(
    server: RunningServer, client: AsyncSageClient
) -> None:
    await client.memory.documents.add(OAK.encode())
    gone = await client.memory.documents.add(b"Another")
    await client.memory.documents.delete(gone.document.id)
    ((before,),) = await rows(server, "SELECT memory_revision FROM heads ORDER BY 1 DESC LIMIT 1")
    await due_now(server)

    async def is_through() -> bool:
        return not await rows(server, "SELECT id FROM pgqueuer")

    await until(is_through)
    ((after,),) = await rows(server, "SELECT memory_revision FROM heads ORDER BY 1 DESC LIMIT 1")
    assert after == before
    assert await counts(server) == (1, 1)


async def test_a_provider_that_is_away_is_unavailable_and_the_job_goes_on(dsn: str) -> None:
    refused = json_reply({"error": {"message": "no"}}, status=401)
    async with (
        FakeProvider.running() as provider,
        provided(dsn, provider) as server,
        connected(server.address) as client,
    ):
        await client.memory.documents.add(b"Whales sing at night.", external_id="w")
        provider.script(refused)
        events = client.memory.documents.ingest(b"Whales sing at dawn.", external_id="w")
        first = await anext(events)
        assert isinstance(first, IngestAccepted)
        with pytest.raises(sage_client.Unavailable) as raised:
            _ = [event async for event in events]
        assert raised.value.reason == "EMBEDDING_UNAVAILABLE"
        document = await client.memory.documents.get(first.document.id)
        assert (document.status, document.failure) == (DocumentStatus.PROCESSING, None)
        await due_now(server)
        assert (await settled(client, document.id)).status is DocumentStatus.READY
        assert await texts_found(client, "whales") == ["Whales sing at dawn."]


async def test_a_document_that_cannot_be_taken_in_has_failed_and_can_be_given_again(
    server: RunningServer, client: AsyncSageClient
) -> None:
    first = await client.memory.documents.add(OAK.encode(), external_id="oak")
    await rows(server, "UPDATE memories SET content_enc = set_byte(content_enc, 20, 1)")
    with pytest.raises(sage_client.DataLoss):
        await client.memory.documents.add(b"An elm.", external_id="oak")
    failed = await client.memory.documents.get(first.document.id)
    assert (failed.status, failed.failure) == (DocumentStatus.FAILED, "DATA_LOSS")
    ((text,),) = await rows(server, "SELECT content_enc FROM documents")
    assert text is None
    await client.memory.delete_all()
    again = await client.memory.documents.add(b"An elm.", external_id="oak")
    assert (again.document.status, again.document.failure) == (DocumentStatus.READY, None)
    assert await texts_found(client, "elm") == ["An elm."]
