"""Two things at once: a change of the model beside writes and reads, a new key beside a look by tags. Every
moment is in the test's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import asyncpg
import numpy as np
import pytest

import sage_client
from sage_client import AsyncSageClient, MemoryFilter, NewMemory
from sage_server.adapters.embedding import HashEmbedder
from sage_server.adapters.postgres import memories as statements
from sage_server.adapters.postgres.database import Record, Statement
from sage_server.adapters.postgres.memories import PostgresMemoryStore
from sage_server.adapters.postgres.reembedding import PostgresReembeddingStore
from sage_server.domain.errors import data_loss
from sage_server.domain.memories import Memory, MemorySource
from sage_server.engine import replicas
from sage_server.engine.memory_index.cache import Entry, IndexCache
from sage_server.engine.memory_index.query import IndexQuery
from sage_server.engine.memory_index.user_index import UserIndex
from sage_server.engine.memory_index.words import Words
from sage_server.ports.memories import MemoryBatch, MemoryHead, MemoryStore, Space, Vector
from sage_server.ports.reembedding import NextVector
from support.memory import axis, found, results, texts
from support.server import RunningServer, running_server

SMALL: dict[str, Any] = {"embedding": "hash", "embedding_dimensions": 64}
USER = UUID(int=1)
NOW = datetime(2024, 1, 1, tzinfo=UTC)
OLD, NEW = Space("old/4", 4, 0), Space("new/4", 4, 1)


@asynccontextmanager
async def serving(dsn: str) -> AsyncIterator[tuple[RunningServer, AsyncSageClient]]:
    """A server where nothing happens by itself, and Maria."""
    async with (
        running_server(dsn, **SMALL) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        await server.application.workers.stop()
        yield server, client


async def test_a_change_of_tags_does_not_lose_the_vector_of_the_next_model(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Re-embedding stores a vector after the change has read the vectors that it keeps."""
    async with serving(dsn) as (server, client):
        memory = (await client.memory.insert("tea")).memory
        user_id = UUID((await client.admin.get_user("maria")).id)
        store = server.application.memory.writer._store
        assert isinstance(store, PostgresMemoryStore)
        reembedding = PostgresReembeddingStore(store._database, store._keys)
        old, new = Space("hash/64", 64, 0), Space("hash/128", 128, 1)
        fetchrow, filled = store._database.fetchrow, 0

        async def fetched(statement: Statement, **values: Any) -> Record | None:
            nonlocal filled
            row = await fetchrow(statement, **values)
            if statement is statements._KEPT_VECTORS and not filled:
                for one in (await reembedding.unembedded(user_id, new, 10, UUID(int=0))).rows:
                    assert one.text is not None
                    vector = (await HashEmbedder(128).embed([one.text])).vectors[0]
                    await reembedding.fill(user_id, new, [NextVector(one.id, one.version, vector)])
                    filled += 1
            return row

        monkeypatch.setattr(store._database, "fetchrow", fetched)
        changed = await client.memory.update(memory.id, tags=["drinks"])
        assert (filled, changed.memory.tags) == (1, ("drinks",))
        assert await reembedding.switch(user_id, old, new)
        answer = await client.memory.search("tea", fully_consistent=True)
        assert (answer.embedding_model, answer.results[0].memory.tags) == ("hash/128", ("drinks",))
        assert answer.results[0].vector_score == pytest.approx(1)


def memory_of(number: int) -> Memory:
    return Memory(UUID(int=number), MemorySource.ARCHIVAL, f"garden {number}", NOW, NOW)


class OneUser:
    """A store of one user's memories, each with the revision that wrote it. Every memory has a vector in each
    space, along the axis of the space's slot."""

    def __init__(self) -> None:
        self.space = OLD
        self.revision = 1
        self.rows = {1: memory_of(1)}
        self.meanwhile: list[Callable[[], None]] = []
        """Happens in the middle of a read."""

    def write(self) -> None:
        self.revision += 1
        self.rows[self.revision] = memory_of(self.revision)

    def switch(self) -> None:
        self.revision += 1
        self.space = NEW

    def batch(self, space: Space, after: int = 0) -> MemoryBatch:
        def fill(_at: int, room: Vector) -> bool:
            room[:] = np.eye(4, dtype=np.float32)[space.slot]
            return True

        found = {revision: memory for revision, memory in self.rows.items() if revision > after}
        return MemoryBatch(list(found.values()), fill, (), max(found, default=after))

    async def head(self, _user_id: UUID) -> MemoryHead:
        return MemoryHead(self.revision, 0, self.space)

    async def revisions(self, user_ids: Sequence[UUID]) -> Mapping[UUID, int]:
        return dict.fromkeys(user_ids, self.revision)

    async def load(self, _user_id: UUID, space: Space) -> AsyncIterator[MemoryBatch]:
        yield self.batch(space)
        self._happen()

    async def changes(self, _user_id: UUID, space: Space, after: int) -> AsyncIterator[MemoryBatch]:
        self._happen()
        yield self.batch(space, after)

    def _happen(self) -> None:
        while self.meanwhile:
            self.meanwhile.pop(0)()


@pytest.fixture
def store() -> OneUser:
    return OneUser()


@pytest.fixture
def indexes(store: OneUser) -> Iterator[IndexCache]:
    held = IndexCache(cast("MemoryStore", store), 1 << 30)
    yield held
    held.close()


def check_space(entry: Entry | None, space: Space, *numbers: int) -> None:
    """The index is of the space, and every one of its vectors is."""
    assert entry is not None
    assert entry.space == space
    for slot in (OLD.slot, NEW.slot):
        found = entry.index.search(IndexQuery(vector=np.eye(4, dtype=np.float32)[slot]))
        assert sorted(one.memory.id.int for one in found.results) == list(numbers)
        assert {one.vector_score for one in found.results} == {float(slot == space.slot)}


async def test_a_load_that_overlaps_a_switch_ends_in_the_new_space(
    store: OneUser, indexes: IndexCache
) -> None:
    store.meanwhile = [store.switch]
    check_space(await indexes.get(USER), NEW, 1)
    await indexes.follow()
    check_space(await indexes.get(USER, at_least=store.revision), NEW, 1)


@pytest.mark.parametrize("by_follow", [False, True])
async def test_a_catch_up_that_overlaps_a_switch_ends_in_the_new_space(
    store: OneUser, indexes: IndexCache, by_follow: bool
) -> None:
    """Also if a later write is among the changes that it reads."""
    check_space(await indexes.get(USER), OLD, 1)
    store.write()
    store.meanwhile = [store.switch, store.write]
    if by_follow:
        await indexes.follow()
    else:
        await indexes.get(USER, at_least=store.revision)
    assert not store.meanwhile
    check_space(indexes.peek(USER), NEW, 1, 2, 4)
    check_space(await indexes.get(USER, at_least=store.revision), NEW, 1, 2, 4)


async def test_a_write_does_not_enter_an_index_of_another_space(store: OneUser, indexes: IndexCache) -> None:
    """Though it is of the very next revision."""
    before = await indexes.get(USER)
    check_space(before, OLD, 1)
    store.space = NEW
    store.write()
    await indexes.wrote(USER, store.batch(NEW, after=1), NEW)
    check_space(before, OLD, 1)
    check_space(indexes.peek(USER), NEW, 1, 2)


@pytest.mark.parametrize("loaded", [False, True])
async def test_vectors_checked_for_one_space_are_refused_in_another(
    dsn: str, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    async with serving(dsn) as (server, client):
        await client.memory.insert("here before")
        memory, connection = server.application.memory, await asyncpg.connect(dsn)
        space = memory.writer.space

        async def switched(user_id: UUID) -> Space:
            """The model changes when the vectors have been checked."""
            answer = await space(user_id)
            await connection.execute(
                "UPDATE heads SET embedding_model = 'hash/128', dimensions = 128, vector_slot = 1,"
                " memory_revision = memory_revision + 1 WHERE user_id = $1 AND vector_slot = 0",
                user_id,
            )
            return answer

        if not loaded:
            memory.indexes.forget_all()
        monkeypatch.setattr(memory.writer, "space", switched)
        with pytest.raises(sage_client.FailedPrecondition) as refused:
            await client.memory.insert_many(
                [NewMemory("given", embedding=axis(1, dimensions=64)), NewMemory("made")]
            )
        assert refused.value.reason == "EMBEDDING_MODEL_MISMATCH"
        await connection.close()
        monkeypatch.undo()
        assert await texts(client) == await found(client, "before") == ["here before"]


@pytest.mark.parametrize("fault", [ValueError(), data_loss("memories", "vector_0_enc"), KeyboardInterrupt()])
def test_a_vector_that_cannot_be_filled_leaves_the_index_in_step(fault: BaseException) -> None:
    index = UserIndex(Words(), 4)

    def fill(at: int, room: Vector) -> bool:
        room[:] = np.eye(4, dtype=np.float32)[at]
        return True

    def fail(at: int, room: Vector) -> bool:
        if at:
            raise fault
        return fill(at, room)

    index.add([memory_of(1)], fill)
    with pytest.raises(type(fault)):
        index.add([memory_of(2), memory_of(3)], fail)
    index.add([memory_of(4), memory_of(5)], fill)
    answer = index.search(IndexQuery(vector=np.eye(4, dtype=np.float32)[1]))
    assert {one.memory.id.int: one.vector_score for one in answer.results} == {1: 0, 4: 0, 5: 1}


async def test_a_vector_of_another_length_is_data_loss_and_not_a_crash(dsn: str) -> None:
    async with serving(dsn) as (server, client):
        await client.memory.insert("a fact")
        connection = await asyncpg.connect(dsn)
        await connection.execute("UPDATE heads SET embedding_model = 'hash/32', dimensions = 32")
        await connection.close()
        server.application.memory.indexes.forget_all()
        with pytest.raises(sage_client.DataLoss):
            await results(client, "fact")


async def seen_by(client: AsyncSageClient, look: str) -> int:
    """How many a look by labels finds."""
    documents, tagged = client.memory.documents, MemoryFilter(tags=["x"])
    if look == "delete":
        return (await client.memory.delete_where(tagged)).deleted_count
    if look == "list":
        return len(await texts(client, tagged))
    if look == "documents by tag":
        return len([one async for one in documents.list(tags=["x"])])
    return len([one async for one in documents.list(external_id="doc")])


@pytest.mark.parametrize(
    ("look", "expected"),
    [("delete", 3), ("list", 3), ("documents by tag", 1), ("documents by external id", 1)],
)
async def test_rows_under_a_newer_key_are_seen_at_once(
    dsn: str, monkeypatch: pytest.MonkeyPatch, look: str, expected: int
) -> None:
    """On a replica that has not heard of the key: the look is the first that it does since."""
    monkeypatch.setattr(replicas, "_CONFIRM_WITHIN", 0.0)
    async with serving(dsn) as (_, here), serving(dsn) as (_, there):
        await here.memory.insert("one", tags=["x"])
        await here.memory.insert("other", tags=["y"])
        assert await seen_by(there, "list") == 1
        assert await here.admin.rotate_user_key("maria") == 2
        await here.memory.insert("two", tags=["x"])
        await here.memory.documents.add(b"three", external_id="doc", tags=["x"])
        assert await seen_by(there, look) == expected
        left = ["other"] if look == "delete" else ["one", "other", "three", "two"]
        assert sorted(await texts(here)) == left


@pytest.mark.parametrize("everybody", [False, True])
async def test_words_that_were_learnt_go_with_the_user(indexes: IndexCache, everybody: bool) -> None:
    entry = await indexes.get(USER)
    assert entry is not None
    await indexes.search(entry, [IndexQuery("hunter2")])
    assert {"garden", "hunter2"} <= indexes._words._terms.keys()
    if everybody:
        indexes.forget_all()
    else:
        indexes.forget(USER)
    assert not indexes._words._terms


def test_what_is_too_long_for_a_word_is_not_kept() -> None:
    words = Words()
    long = "abcdef01" * 1000
    assert words.terms(f"short {long} {long}") == ["short", long, long]
    assert list(words._terms) == ["short"]
