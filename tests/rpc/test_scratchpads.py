"""Scratchpads through the real client and server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

import sage_client
from sage.v1 import memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client import AsyncSageClient
from sage_client.retry import Repeat
from support.server import RunningServer, running_server


@dataclass(frozen=True)
class Notes:
    """The raw methods, sent with the client's credentials and never twice."""

    client: AsyncSageClient

    async def send(self, method: str, request: Any) -> Any:
        stub = getattr(self.client.stubs.memory, method)
        return await self.client.transport.unary(stub, request, repeat=Repeat.IF_REFUSED)

    async def get(self, thread: str) -> memory_pb2.Scratchpad:
        found: pb.GetScratchpadResponse = await self.send(
            "GetScratchpad", pb.GetScratchpadRequest(conversation_id=thread)
        )
        return found.scratchpad

    async def write(self, thread: str, items: Sequence[str], etag: str = "") -> memory_pb2.Scratchpad:
        request = pb.WriteScratchpadRequest(conversation_id=thread, items=items, etag=etag)
        written: pb.WriteScratchpadResponse = await self.send("WriteScratchpad", request)
        return written.scratchpad

    async def clear(self, thread: str) -> int:
        cleared: pb.ClearScratchpadResponse = await self.send(
            "ClearScratchpad", pb.ClearScratchpadRequest(conversation_id=thread)
        )
        return cleared.deleted_count


@pytest.fixture
def notes(client: AsyncSageClient) -> Notes:
    return Notes(client)


async def assert_missing(notes: Notes, thread: str) -> None:
    for call in (notes.get(thread), notes.write(thread, ["x"]), notes.clear(thread)):
        with pytest.raises(sage_client.NotFound) as refused:
            await call
        assert refused.value.metadata == {"resource": "conversation"}


async def test_a_scratchpad_that_was_never_written_is_empty(notes: Notes) -> None:
    thread = await notes.client.conversations.create("Thread", private=True)
    empty = await notes.get(thread.id)
    assert empty == memory_pb2.Scratchpad(conversation_id=thread.id)
    assert not empty.HasField("update_time")
    assert await notes.clear(thread.id) == 0
    assert await notes.get(thread.id) == empty


async def test_a_write_replaces_all_notes(notes: Notes) -> None:
    thread = await notes.client.conversations.create("Thread")
    first = await notes.write(thread.id, ["buy beans 🌱", "call Anna"])
    assert (list(first.items), first.agent_id) == (["buy beans 🌱", "call Anna"], "")
    assert first.etag
    assert await notes.get(thread.id) == first
    second = await notes.write(thread.id, ["sow"])
    assert list(second.items) == ["sow"]
    assert second.etag not in {"", first.etag}
    assert second.update_time.ToDatetime() > first.update_time.ToDatetime()
    assert await notes.get(thread.id) == second
    other = await notes.client.conversations.create("Other")
    assert list((await notes.get(other.id)).items) == []


async def test_a_stale_etag_changes_nothing(notes: Notes) -> None:
    thread = await notes.client.conversations.create("Thread")
    with pytest.raises(sage_client.Aborted):
        await notes.write(thread.id, ["x"], "v1")
    first = await notes.write(thread.id, ["one"])
    second = await notes.write(thread.id, ["two"], first.etag)
    for etag in (first.etag, "v99", second.etag.upper(), "x" * 64):
        with pytest.raises(sage_client.Aborted) as refused:
            await notes.write(thread.id, ["three"], etag)
        assert refused.value.reason == "ETAG_MISMATCH"
        assert refused.value.metadata == {"resource": "scratchpad"}
    assert await notes.get(thread.id) == second


async def test_a_cleared_scratchpad_is_empty_and_no_older_etag_fits_it(notes: Notes) -> None:
    thread = await notes.client.conversations.create("Thread")
    written = await notes.write(thread.id, ["one", "two", "three"])
    assert await notes.clear(thread.id) == 3
    assert await notes.clear(thread.id) == 0
    cleared = await notes.get(thread.id)
    assert list(cleared.items) == []
    assert cleared.etag not in {"", written.etag}
    await notes.write(thread.id, ["four"])
    with pytest.raises(sage_client.Aborted):
        await notes.write(thread.id, ["five"], written.etag)


async def test_the_notes_have_their_limits(notes: Notes) -> None:
    thread = await notes.client.conversations.create("Thread")
    most = ["é" * 240] * 32
    assert list((await notes.write(thread.id, most)).items) == most
    for bad in ([*most, "x"], ["é" * 241], [""], ["a\0b"]):
        with pytest.raises(sage_client.InvalidArgument):
            await notes.write(thread.id, bad)
    assert list((await notes.get(thread.id)).items) == most
    assert list((await notes.write(thread.id, [])).items) == []


async def test_only_a_living_thread_of_the_user_has_notes(notes: Notes, server: RunningServer) -> None:
    await assert_missing(notes, str(uuid4()))
    async with sage_client.connect_async(server.address, user="otto") as other:
        foreign = await other.conversations.create("Foreign")
        await Notes(other).write(foreign.id, ["mine"])
        await assert_missing(notes, foreign.id)
        assert list((await Notes(other).get(foreign.id)).items) == ["mine"]
    thread = await notes.client.conversations.create("Thread")
    written = await notes.write(thread.id, ["kept"])
    await notes.client.conversations.delete(thread.id)
    await assert_missing(notes, thread.id)
    with pytest.raises(sage_client.NotFound):
        await notes.write(thread.id, ["x"], written.etag)
    await notes.client.conversations.undelete(thread.id)
    assert await notes.get(thread.id) == written


async def test_an_agents_own_thread_is_not_found_by_its_conversation(
    notes: Notes, server: RunningServer
) -> None:
    thread = await notes.client.conversations.create("Thread")
    await notes.write(thread.id, ["x"])
    database = await asyncpg.connect(server.dsn)
    await database.execute("UPDATE conversations SET kind = 2 WHERE id = $1", thread.id)
    await database.close()
    await assert_missing(notes, thread.id)


@pytest.mark.parametrize("agent", ["", "main", "helper", "0193e2a4-7b1c-7c3a-9e58-0123456789ab"])
async def test_an_agent_that_does_not_exist_is_not_found(notes: Notes, agent: str) -> None:
    for method in ("GetScratchpad", "WriteScratchpad", "ClearScratchpad"):
        with pytest.raises(sage_client.NotFound) as refused:
            await notes.send(method, getattr(pb, f"{method}Request")(agent=agent))
        assert refused.value.metadata == {"resource": "agent"}
    # The agent counts only without a conversation.
    thread = await notes.client.conversations.create("Thread")
    request = pb.GetScratchpadRequest(conversation_id=thread.id, agent=agent)
    assert (await notes.send("GetScratchpad", request)).scratchpad.conversation_id == thread.id


async def test_concurrent_writes_are_each_a_version(notes: Notes) -> None:
    thread = await notes.client.conversations.create("Thread")
    written = await asyncio.gather(*(notes.write(thread.id, [str(n)]) for n in range(16)))
    assert len({scratchpad.etag for scratchpad in written}) == 16
    assert await notes.get(thread.id) in written
    etag = (await notes.get(thread.id)).etag
    answers = await asyncio.gather(
        *(notes.write(thread.id, [str(n)], etag) for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(answer, memory_pb2.Scratchpad) for answer in answers) == 1
    assert sum(isinstance(answer, sage_client.Aborted) for answer in answers) == 7


async def test_concurrent_clears_count_each_note_once(notes: Notes) -> None:
    thread = await notes.client.conversations.create("Thread")
    await notes.write(thread.id, ["one", "two"])
    counts = await asyncio.gather(*(notes.clear(thread.id) for _ in range(6)))
    assert sorted(counts) == [0, 0, 0, 0, 0, 2]


async def test_notes_outlive_a_restart_and_a_rotation(dsn: str) -> None:
    async with running_server(dsn) as first, sage_client.connect_async(first.address, user="maria") as client:
        thread = (await client.conversations.create("Thread")).id
        written = await Notes(client).write(thread, ["one"])
        await client.admin.rotate_user_key("maria")
        assert await Notes(client).get(thread) == written
        assert await first.application.rotation.reseal_pending() == 0
    async with running_server(dsn) as again, sage_client.connect_async(again.address, user="maria") as client:
        assert await Notes(client).get(thread) == written
        assert list((await Notes(client).write(thread, ["two"], written.etag)).items) == ["two"]


async def test_notes_go_with_their_thread(dsn: str) -> None:
    async with (
        running_server(dsn, deleted_days=30) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        thread = await client.conversations.create("Thread")
        await Notes(client).write(thread.id, ["one"])
        await client.conversations.delete(thread.id)
        server.clock.advance(timedelta(days=31))
        assert await server.application.retention.run() > 0
    database = await asyncpg.connect(dsn)
    assert await database.fetchval("SELECT count(*) FROM scratchpads") == 0
    await database.close()
