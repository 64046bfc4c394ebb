"""Core memory blocks through the real client and server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

import sage_client
from sage.v1 import memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client import AsyncSageClient
from sage_client.retry import Repeat
from sage_server.adapters.crypto import CachedKeyRing, KeyWrapping
from sage_server.adapters.postgres.blocks import PostgresBlockStore
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.users import PostgresKeyStore
from sage_server.bootstrap import open_root_keys
from sage_server.domain.blocks import (
    BY_USER,
    Block,
    BlockActor,
    BlockActorKind,
    BlockChange,
    BlockName,
)
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.ids import new_id
from support.server import RunningServer, running_server, test_settings


@dataclass(frozen=True)
class Blocks:
    """The raw methods, sent with the client's credentials and never twice."""

    client: AsyncSageClient

    async def send(self, method: str, request: Any) -> Any:
        stub = getattr(self.client.stubs.memory, method)
        return await self.client.transport.unary(stub, request, repeat=Repeat.IF_REFUSED)

    async def create(self, label: str, **fields: Any) -> memory_pb2.Block:
        created: pb.CreateBlockResponse = await self.send(
            "CreateBlock", pb.CreateBlockRequest(label=label, **fields)
        )
        return created.block

    async def get(self, label: str, agent: str = "") -> memory_pb2.Block:
        found: pb.GetBlockResponse = await self.send("GetBlock", pb.GetBlockRequest(label=label, agent=agent))
        return found.block

    async def update(self, label: str, *, etag: str = "", **fields: Any) -> memory_pb2.Block:
        request = pb.UpdateBlockRequest(label=label, etag=etag, **fields)
        request.update_mask.paths.extend(fields)
        updated: pb.UpdateBlockResponse = await self.send("UpdateBlock", request)
        return updated.block

    async def restore(self, label: str, revision: int, etag: str = "") -> memory_pb2.Block:
        request = pb.RestoreBlockRequest(label=label, revision=revision, etag=etag)
        restored: pb.RestoreBlockResponse = await self.send("RestoreBlock", request)
        return restored.block

    async def delete(self, label: str, etag: str = "") -> int:
        deleted: pb.DeleteBlockResponse = await self.send(
            "DeleteBlock", pb.DeleteBlockRequest(label=label, etag=etag)
        )
        return deleted.deleted_revision_count

    async def list(self, page_size: int = 0) -> Sequence[memory_pb2.Block]:
        """Page by page."""
        found: list[memory_pb2.Block] = []
        request = pb.ListBlocksRequest(page_size=page_size)
        while True:
            page: pb.ListBlocksResponse = await self.send("ListBlocks", request)
            assert len(page.blocks) <= (page_size or 50)
            found += page.blocks
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def revisions(self, label: str, page_size: int = 0) -> Sequence[memory_pb2.BlockRevision]:
        """Page by page."""
        found: list[memory_pb2.BlockRevision] = []
        request = pb.ListBlockRevisionsRequest(label=label, page_size=page_size)
        while True:
            page: pb.ListBlockRevisionsResponse = await self.send("ListBlockRevisions", request)
            found += page.revisions
            request.page_token = page.next_page_token
            if not request.page_token:
                return found


@pytest.fixture
def blocks(client: AsyncSageClient) -> Blocks:
    return Blocks(client)


@asynccontextmanager
async def own_store(server: RunningServer) -> AsyncIterator[PostgresBlockStore]:
    """A store as in a replica that is told nothing: its keys stay as they were when it first read them."""
    database = await Database.open(server.dsn, PoolOptions(1, 4, 10, 10))
    try:
        wrapping = KeyWrapping(open_root_keys(test_settings(server.dsn)))
        keys = CachedKeyRing(PostgresKeyStore(database, server.clock), wrapping, 10)
        yield PostgresBlockStore(database, keys)
    finally:
        await database.close()


def a_block(server: RunningServer, label: str, agent_id: UUID | None = None) -> Block:
    now = server.clock.now()
    return Block(
        new_id(now), label, agent_id, "", "text", 100, read_only=False, created_at=now, updated_at=now
    )


async def user_of(client: AsyncSageClient) -> UUID:
    return UUID((await client.admin.get_user("maria")).id)


async def test_a_block_is_read_as_it_was_created(blocks: Blocks) -> None:
    created = await blocks.create(
        " Human ", description="Who it is", value="Anna 🌱", char_limit=10, read_only=True
    )
    assert (created.label, created.description, created.value) == (" Human ", "Who it is", "Anna 🌱")
    assert (created.char_limit, created.char_count, created.read_only) == (10, 6, True)
    assert (created.revision, created.agent_id) == (1, "")
    assert created.create_time == created.update_time
    assert created.etag
    assert await blocks.get(" Human ") == created


async def test_what_is_left_out_is_empty_and_the_limit_is_5000(blocks: Blocks) -> None:
    created = await blocks.create("goals")
    assert (created.value, created.description, created.read_only) == ("", "", False)
    assert created.char_limit == 5_000


@pytest.mark.parametrize("spelling", ["HUMAN", "  human\t", "\uff28\uff55man", "human\u00a0"])
async def test_a_label_is_compared_without_case_and_space_and_keeps_its_spelling(
    blocks: Blocks, spelling: str
) -> None:
    await blocks.create("Human", value="Anna")
    assert (await blocks.get(spelling)).label == "Human"
    with pytest.raises(sage_client.AlreadyExists) as refused:
        await blocks.create(spelling)
    assert (refused.value.reason, refused.value.metadata) == ("ALREADY_EXISTS", {"resource": "block"})
    assert (await blocks.update(spelling, value="Berta")).label == "Human"
    assert await blocks.delete(spelling) == 2


@pytest.mark.parametrize("method", ["CreateBlock", "GetBlock", "UpdateBlock", "DeleteBlock"])
async def test_a_blank_label_is_refused(blocks: Blocks, method: str) -> None:
    for label in (" ", "\t\n", "\u2003"):
        request = getattr(pb, f"{method}Request")(label=label)
        if method == "UpdateBlock":
            request.update_mask.paths.append("value")
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await blocks.send(method, request)
        assert [violation.field for violation in refused.value.field_violations] == ["label"]


async def test_what_does_not_exist_is_not_found(blocks: Blocks) -> None:
    await blocks.create("human")
    calls = [
        blocks.get("goals"),
        blocks.update("goals", value="x"),
        blocks.restore("goals", 1),
        blocks.delete("goals"),
        blocks.revisions("goals"),
    ]
    for call in calls:
        with pytest.raises(sage_client.NotFound) as refused:
            await call
        assert refused.value.metadata == {"resource": "block"}
    with pytest.raises(sage_client.NotFound) as refused:
        await blocks.restore("human", 2)
    assert refused.value.metadata == {"resource": "revision"}


@pytest.mark.parametrize("agent", ["main", "0193e2a4-7b1c-7c3a-9e58-0123456789ab"])
async def test_an_agent_that_does_not_exist_is_not_found(blocks: Blocks, agent: str) -> None:
    await blocks.create("human")
    update = pb.UpdateBlockRequest(label="human", agent=agent)
    update.update_mask.paths.append("value")
    requests = {
        "CreateBlock": pb.CreateBlockRequest(label="human", agent=agent),
        "GetBlock": pb.GetBlockRequest(label="human", agent=agent),
        "ListBlocks": pb.ListBlocksRequest(agent=agent),
        "UpdateBlock": update,
        "DeleteBlock": pb.DeleteBlockRequest(label="human", agent=agent),
        "ListBlockRevisions": pb.ListBlockRevisionsRequest(label="human", agent=agent),
        "RestoreBlock": pb.RestoreBlockRequest(label="human", agent=agent, revision=1),
    }
    for method, request in requests.items():
        with pytest.raises(sage_client.NotFound) as refused:
            await blocks.send(method, request)
        assert refused.value.metadata == {"resource": "agent"}, method


async def test_an_update_changes_what_it_names_and_makes_a_revision(blocks: Blocks) -> None:
    first = await blocks.create("human", description="Who", value="Anna", char_limit=10)
    second = await blocks.update("human", value="")
    assert (second.value, second.description, second.char_limit) == ("", "Who", 10)
    assert (second.revision, second.id, second.create_time) == (2, first.id, first.create_time)
    assert second.etag != first.etag
    assert second.update_time.ToDatetime() > first.update_time.ToDatetime()
    third = await blocks.update("human", description="Name", char_limit=0, read_only=True)
    assert (third.description, third.char_limit, third.read_only) == ("Name", 5_000, True)
    # A caller may change a read-only block.
    fourth = await blocks.update("human", value="Berta")
    assert fourth == await blocks.get("human")
    assert [r.value for r in await blocks.revisions("human")] == ["Berta", "", "", "Anna"]


async def test_an_update_that_changes_nothing_makes_no_revision(blocks: Blocks) -> None:
    created = await blocks.create("human", value="Anna", description="Who", read_only=True)
    same = await blocks.update("human", value="Anna", description="Who", char_limit=0, read_only=True)
    assert same == created
    assert len(await blocks.revisions("human")) == 1
    with pytest.raises(sage_client.Aborted):
        await blocks.update("human", etag="v9", value="Anna")


async def test_a_stale_etag_changes_nothing(blocks: Blocks) -> None:
    first = await blocks.create("human", value="Anna")
    second = await blocks.update("human", etag=first.etag, value="Berta")
    for etag in (first.etag, "v2", second.etag.upper(), "x" * 64):
        for call in (
            blocks.update("human", etag=etag, value="Clara"),
            blocks.restore("human", 1, etag),
            blocks.delete("human", etag),
        ):
            with pytest.raises(sage_client.Aborted) as refused:
                await call
            assert (refused.value.reason, refused.value.metadata) == ("ETAG_MISMATCH", {"resource": "block"})
    assert await blocks.get("human") == second
    assert await blocks.delete("human", second.etag) == 2


async def test_an_etag_does_not_fit_another_block_of_the_same_label(blocks: Blocks) -> None:
    old = await blocks.create("human", value="Anna")
    await blocks.delete("human")
    new = await blocks.create("human", value="Berta")
    with pytest.raises(sage_client.Aborted):
        await blocks.delete("human", old.etag)
    assert await blocks.get("human") == new


@pytest.mark.parametrize("character", ["x", "é", "😀"])
async def test_a_value_has_as_many_characters_as_the_limit_and_no_more(
    blocks: Blocks, character: str
) -> None:
    await blocks.create("human", value=character * 4, char_limit=4)
    for call in (
        blocks.update("human", value=character * 5),
        blocks.create("other", value=character * 5, char_limit=4),
    ):
        with pytest.raises(sage_client.FailedPrecondition) as refused:
            await call
        assert refused.value.reason == "BLOCK_LIMIT_EXCEEDED"
        assert refused.value.metadata == {"limit": "4", "length": "5"}
    with pytest.raises(sage_client.FailedPrecondition) as refused:
        await blocks.update("human", char_limit=3)
    assert refused.value.metadata == {"limit": "3", "length": "4"}
    assert (await blocks.get("human")).revision == 1
    both = await blocks.update("human", value=character * 9, char_limit=9)
    assert (both.char_count, both.char_limit) == (9, 9)
    with pytest.raises(sage_client.NotFound):
        await blocks.get("other")


async def test_the_limit_of_5000_holds_where_none_is_named(blocks: Blocks) -> None:
    assert (await blocks.create("long", value="x" * 5_000)).char_count == 5_000
    with pytest.raises(sage_client.FailedPrecondition):
        await blocks.create("longer", value="x" * 5_001)
    await blocks.update("long", char_limit=50_000, value="x" * 50_000)
    with pytest.raises(sage_client.FailedPrecondition) as refused:
        await blocks.update("long", char_limit=0)
    assert refused.value.metadata == {"limit": "5000", "length": "50000"}


async def test_a_user_has_at_most_100_blocks(blocks: Blocks) -> None:
    await asyncio.gather(*(blocks.create(f"block {n}") for n in range(98)))
    answers = await asyncio.gather(*(blocks.create(f"last {n}") for n in range(6)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, sage_client.FailedPrecondition)]
    assert len(refused) == 4
    assert {error.reason for error in refused} == {"LIMIT_REACHED"}
    assert refused[0].metadata == {"resource": "blocks", "limit": "100"}
    with pytest.raises(sage_client.AlreadyExists):
        await blocks.create("block 7")
    await blocks.delete("block 7")
    await blocks.create("block 7 again")
    assert len(await blocks.list(page_size=33)) == 100


async def test_revisions_are_listed_newest_first_and_in_pages(blocks: Blocks) -> None:
    created = await blocks.create("human", value="1", description="d", char_limit=7)
    for n in range(2, 8):
        await blocks.update("human", value=str(n))
    listed = await blocks.revisions("human", page_size=3)
    assert [(r.revision, r.value) for r in listed] == [(n, str(n)) for n in range(7, 0, -1)]
    first = listed[-1]
    assert (first.block_id, first.description, first.char_limit) == (created.id, "d", 7)
    assert (first.actor, first.agent_id, first.turn_id) == (memory_pb2.BLOCK_ACTOR_USER, "", "")
    assert (first.restored_revision, first.create_time) == (0, created.create_time)
    assert len(await blocks.revisions("human", page_size=7)) == 7


async def test_a_restoration_brings_everything_back_as_a_new_revision(blocks: Blocks) -> None:
    first = await blocks.create("human", value="Anna Maria", description="Who", char_limit=10)
    await blocks.update("human", value="B", description="", char_limit=1, read_only=True)
    restored = await blocks.restore("HUMAN", 1)
    assert (restored.value, restored.description) == ("Anna Maria", "Who")
    assert (restored.char_limit, restored.read_only, restored.revision) == (10, False, 3)
    assert restored.etag not in {"", first.etag}
    again = await blocks.restore("human", 3, restored.etag)
    assert (again.value, again.revision) == ("Anna Maria", 4)
    assert [r.restored_revision for r in await blocks.revisions("human")] == [3, 1, 0, 0]
    assert await blocks.get("human") == again


async def test_a_deleted_block_is_gone_with_its_revisions(blocks: Blocks, server: RunningServer) -> None:
    await blocks.create("human", value="Anna")
    await blocks.update("human", value="Berta")
    await blocks.create("kept")
    assert await blocks.delete("human") == 2
    with pytest.raises(sage_client.NotFound):
        await blocks.delete("human")
    database = await asyncpg.connect(server.dsn)
    assert await database.fetchval("SELECT count(*) FROM block_revisions") == 1
    await database.close()
    afresh = await blocks.create("human")
    assert (afresh.revision, afresh.value) == (1, "")
    assert len(await blocks.revisions("human")) == 1


async def test_shared_blocks_come_first_and_each_group_by_creation(
    blocks: Blocks, server: RunningServer
) -> None:
    created = [await blocks.create(f"block {n}") for n in range(7)]
    database = await asyncpg.connect(server.dsn)
    for n, agent in ((0, uuid4()), (3, uuid4()), (4, uuid4())):
        await database.execute("UPDATE memory_blocks SET agent_id = $2 WHERE id = $1", created[n].id, agent)
    await database.close()
    for page_size in (0, 1, 2, 3, 4, 7):
        listed = await blocks.list(page_size)
        assert [block.label for block in listed] == [f"block {n}" for n in (1, 2, 5, 6, 0, 3, 4)]
    assert [bool(block.agent_id) for block in listed] == [False] * 4 + [True] * 3


async def test_blocks_of_agents_have_a_space_of_labels_each(
    blocks: Blocks, server: RunningServer, client: AsyncSageClient
) -> None:
    await blocks.create("human", value="shared")
    user_id, mine, theirs = await user_of(client), uuid4(), uuid4()
    turn = uuid4()
    agent = BlockActor(BlockActorKind.AGENT, mine, turn)
    async with own_store(server) as store:
        for agent_id in (mine, theirs):
            await store.create(user_id, a_block(server, "human", agent_id), BY_USER, None)
        with pytest.raises(SageError) as refused:
            await store.create(user_id, a_block(server, "Human", mine), BY_USER, None)
        assert refused.value.reason is Reason.ALREADY_EXISTS
        name, now = BlockName("human", mine), server.clock.now()
        await store.update(user_id, name, BlockChange(value="mine"), etag="", actor=agent, now=now)
        page = await store.revisions(user_id, name, 10, None)
        assert [revision.actor for revision in page.rows] == [agent, BY_USER]
        seen = await store.list(user_id, agent_id=mine, size=10, after=None)
        assert [(block.agent_id, block.value) for block in seen.rows] == [(None, "shared"), (mine, "mine")]
        first = await store.list(user_id, agent_id=mine, size=1, after=None)
        assert first.next is not None
        rest = await store.list(user_id, agent_id=mine, size=1, after=first.next)
        assert ([block.value for block in rest.rows], rest.next) == (["mine"], None)
    assert (await blocks.get("human")).value == "shared"
    assert len(await blocks.list()) == 3


async def test_of_ten_creations_of_one_label_one_wins(server: RunningServer) -> None:
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
    ):
        answers = await asyncio.gather(
            *(Blocks(c).create("Human" if n % 2 else "human ") for n in range(5) for c in (here, there)),
            return_exceptions=True,
        )
        won = [answer for answer in answers if isinstance(answer, memory_pb2.Block)]
        assert len(won) == 1
        assert sum(isinstance(answer, sage_client.AlreadyExists) for answer in answers) == 9
        assert await Blocks(there).list() == won


async def test_twenty_concurrent_updates_make_revisions_without_a_gap(server: RunningServer) -> None:
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
    ):
        await Blocks(here).create("human", value="0")
        updated = await asyncio.gather(
            *(Blocks(here if n % 2 else there).update("human", value=str(n)) for n in range(1, 21))
        )
        assert sorted(block.revision for block in updated) == list(range(2, 22))
        listed = await Blocks(there).revisions("human")
        assert [revision.revision for revision in listed] == list(range(21, 0, -1))
        assert {revision.revision: revision.value for revision in listed} == {
            block.revision: block.value for block in updated
        } | {1: "0"}
        assert (await Blocks(here).get("human")).value == listed[0].value


async def test_of_concurrent_updates_with_one_etag_one_wins(blocks: Blocks) -> None:
    created = await blocks.create("human", value="0")
    answers = await asyncio.gather(
        *(blocks.update("human", etag=created.etag, value=str(n)) for n in range(1, 9)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, memory_pb2.Block) for answer in answers) == 1
    assert sum(isinstance(answer, sage_client.Aborted) for answer in answers) == 7
    assert (await blocks.get("human")).revision == 2


async def test_a_request_id_creates_once_however_often_and_wherever_it_is_sent(
    server: RunningServer,
) -> None:
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
    ):
        request_id = str(uuid4())
        fields = {"value": "Anna", "description": "Who", "char_limit": 9, "request_id": request_id}
        created = await asyncio.gather(
            *(Blocks(c).create("Human", **fields) for c in (here, there, here, there, here))
        )
        assert all(block == created[0] for block in created)
        await Blocks(here).update("human", value="Berta")
        assert await Blocks(there).create("Human", **fields) == created[0]
        await Blocks(here).delete("human")
        assert await Blocks(there).create("Human", **fields) == created[0]
        assert await Blocks(here).list() == []
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await Blocks(here).create("Human", **fields | {"value": "Clara"})
        assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_a_refused_creation_leaves_its_request_id_free(blocks: Blocks) -> None:
    await blocks.create("human")
    request_id = str(uuid4())
    with pytest.raises(sage_client.AlreadyExists):
        await blocks.create("human", value="Anna", request_id=request_id)
    await blocks.delete("human")
    assert (await blocks.create("human", value="Anna", request_id=request_id)).value == "Anna"


async def test_blocks_and_revisions_outlive_a_restart(dsn: str) -> None:
    async with running_server(dsn) as first, sage_client.connect_async(first.address, user="maria") as client:
        await Blocks(client).create("human", value="Anna")
        current = await Blocks(client).update("human", value="Berta")
        revisions = await Blocks(client).revisions("human")
    async with running_server(dsn) as again, sage_client.connect_async(again.address, user="maria") as client:
        assert await Blocks(client).get("human") == current
        assert await Blocks(client).revisions("human") == revisions
        assert (await Blocks(client).restore("human", 1)).value == "Anna"


async def test_a_block_is_found_before_during_and_after_a_rotation(
    blocks: Blocks, server: RunningServer, client: AsyncSageClient
) -> None:
    await blocks.create("Human", value="Anna")
    await blocks.create("goals", value="none")
    await client.admin.rotate_user_key("maria")
    # Under way: the rows are still sealed with the older key.
    assert (await blocks.get("human")).value == "Anna"
    with pytest.raises(sage_client.AlreadyExists):
        await blocks.create("human")
    await blocks.update("goals", value="some")
    await blocks.create("new", value="sealed with the newer key")
    with pytest.raises(sage_client.AlreadyExists):
        await blocks.create("NEW")
    assert await server.application.rotation.reseal_pending() == 0
    assert (await client.admin.get_user("maria")).key_rotation_pending is False
    assert [block.value for block in await blocks.list()] == ["Anna", "some", "sealed with the newer key"]
    for label in ("human", "goals", "new"):
        with pytest.raises(sage_client.AlreadyExists):
            await blocks.create(label)
    assert [revision.value for revision in await blocks.revisions("goals")] == ["some", "none"]
    assert (await blocks.restore("goals", 1)).value == "none"


@pytest.mark.parametrize("finished", [False, True])
async def test_a_replica_that_missed_a_rotation_finds_the_block_and_makes_no_second_one(
    blocks: Blocks, server: RunningServer, client: AsyncSageClient, *, finished: bool
) -> None:
    await blocks.create("human", value="Anna")
    user_id = await user_of(client)
    name = BlockName("human")
    async with own_store(server) as reader, own_store(server) as writer, own_store(server) as changer:
        for store in (reader, writer, changer):
            assert (await store.get(user_id, name)).value == "Anna"
        await client.admin.rotate_user_key("maria")
        # The block has the newer key. The older one is gone, or still there for its first revision.
        if finished:
            assert await server.application.rotation.reseal_pending() == 0
        else:
            await blocks.update("human", description="Who")
        with pytest.raises(SageError) as refused:
            await writer.create(user_id, a_block(server, "human"), BY_USER, None)
        assert refused.value.reason is Reason.ALREADY_EXISTS
        assert (await reader.get(user_id, name)).value == "Anna"
        await changer.update(
            user_id, name, BlockChange(value="Berta"), etag="", actor=BY_USER, now=server.clock.now()
        )
        await writer.create(user_id, a_block(server, "goals"), BY_USER, None)
    assert [block.value for block in await blocks.list()] == ["Berta", "text"]


async def test_rotations_while_blocks_are_changed_lose_nothing(
    blocks: Blocks, server: RunningServer, client: AsyncSageClient
) -> None:
    await blocks.create("human", value="0")

    async def change(start: int) -> None:
        for n in range(start, start + 10):
            await blocks.update("human", value=str(n))

    async def rotate() -> None:
        for _ in range(2):
            await client.admin.rotate_user_key("maria")
            await server.application.rotation.reseal_pending()

    await asyncio.gather(change(100), change(200), rotate())
    assert await server.application.rotation.reseal_pending() == 0
    listed = await blocks.revisions("human")
    assert [revision.revision for revision in listed] == list(range(21, 0, -1))
    expected = {str(n) for n in (0, *range(100, 110), *range(200, 210))}
    assert {revision.value for revision in listed} == expected
    assert (await blocks.get("HUMAN")).value == listed[0].value


async def test_a_page_token_goes_with_its_block(blocks: Blocks) -> None:
    for label in ("human", "goals"):
        await blocks.create(label, value="1")
        await blocks.update(label, value="2")
    request = pb.ListBlockRevisionsRequest(label="human", page_size=1)
    page = await blocks.send("ListBlockRevisions", request)
    request.page_token, request.label = page.next_page_token, "goals"
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await blocks.send("ListBlockRevisions", request)
    assert refused.value.reason == "INVALID_PAGE_TOKEN"


def test_actors_have_the_numbers_of_the_contract() -> None:
    theirs = {name.removeprefix("BLOCK_ACTOR_"): number for name, number in memory_pb2.BlockActor.items()}
    assert {kind.name: int(kind) for kind in BlockActorKind} | {"UNSPECIFIED": 0} == theirs
