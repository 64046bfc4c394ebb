"""Searches in threads beside writes, with every moment in the test's hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import numpy as np
import pytest

from sage_server.domain.memories import Memory, MemorySource, Provenance
from sage_server.engine import pauses
from sage_server.engine.memory_index import cache as caches
from sage_server.engine.memory_index import user_index
from sage_server.engine.memory_index.cache import Entry, IndexCache
from sage_server.engine.memory_index.query import Found, IndexQuery
from sage_server.engine.memory_index.user_index import UserIndex
from sage_server.engine.memory_index.words import Words
from sage_server.ports.memories import MemoryBatch, MemoryStore, Space, Vector

USER = UUID(int=1)
START = datetime(2024, 1, 1, tzinfo=UTC)


class Brake:
    """Holds searches that run in threads."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.unordered: list[int] = []

    def stopped(self, index: UserIndex, query: IndexQuery) -> Found:
        self.unordered.append(len(index._attributes._unordered))
        self.entered.release()
        assert self.go.wait(30)
        return self.search(index, query)

    search = staticmethod(UserIndex.search)

    async def reached(self) -> None:
        """Wait until a search is inside."""
        assert await asyncio.to_thread(self.entered.acquire, timeout=30)


@pytest.fixture
def brake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brake]:
    """Every search runs in a thread, and stops there."""
    held = Brake()
    monkeypatch.setattr(caches, "_INLINE_WORK", 0)

    def stopped(index: UserIndex, query: IndexQuery) -> Found:
        return held.stopped(index, query)

    monkeypatch.setattr(UserIndex, "search", stopped)
    yield held
    held.go.set()


@pytest.fixture
def indexes() -> Iterator[IndexCache]:
    """A cache that holds an index of messages, and never needs a store."""
    held = IndexCache(cast("MemoryStore", None), 1 << 30)
    index = UserIndex(Words(), 4)
    index.add([message(seq) for seq in (3, 1, 2)], fill)
    held._entries[USER] = Entry(index, Space("test/4", 4))
    yield held
    held.close()


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write adds a hundred memories at a time, and lets others in after each."""
    monkeypatch.setattr(caches, "_PIECE", 100)
    monkeypatch.setattr(pauses, "_TURN", 0)


def message(seq: int) -> Memory:
    at = START + timedelta(minutes=seq)
    place = Provenance(conversation_id=UUID(int=9), item_seq=seq)
    return Memory(UUID(int=seq), MemorySource.MESSAGE, f"garden {seq}", at, at, provenance=place)


def fill(at: int, room: Vector) -> bool:
    room[:] = np.eye(4, dtype=np.float32)[at % 4]
    return True


def batch(revision: int, memories: list[Memory], *removed: int) -> MemoryBatch:
    return MemoryBatch(memories, fill, [UUID(int=one) for one in removed], revision)


def entry_of(indexes: IndexCache) -> Entry:
    entry = indexes.peek(USER)
    assert entry is not None
    return entry


def found_in(answer: list[Found]) -> list[int]:
    return sorted(one.memory.id.int for one in answer[0].results)


async def turns() -> None:
    """Let every task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_write_waits_for_a_search_in_a_thread(indexes: IndexCache, brake: Brake) -> None:
    entry = entry_of(indexes)
    search = asyncio.create_task(indexes.search(entry, [IndexQuery("garden")]))
    await brake.reached()
    write = asyncio.create_task(indexes.wrote(USER, batch(1, [message(4)])))
    await turns()
    assert (write.done(), len(entry.index)) == (False, 3)
    brake.go.set()
    await write
    assert found_in(await search) == [1, 2, 3]
    assert found_in(await indexes.search(entry, [IndexQuery("garden")])) == [1, 2, 3, 4]


async def test_a_caller_who_goes_away_does_not_let_writers_to_its_thread(
    indexes: IndexCache, brake: Brake
) -> None:
    entry = entry_of(indexes)
    search = asyncio.create_task(indexes.search(entry, [IndexQuery("garden")]))
    await brake.reached()
    write = asyncio.create_task(indexes.wrote(USER, batch(1, [message(4)])))
    for _ in range(2):
        search.cancel()
        await turns()
    assert (write.done(), len(entry.index)) == (False, 3)
    brake.go.set()
    await write
    with pytest.raises(asyncio.CancelledError):
        await search
    assert len(entry.index) == 4


async def test_a_search_in_a_thread_finds_messages_in_order_and_only_reads(
    indexes: IndexCache, brake: Brake
) -> None:
    entry = entry_of(indexes)
    assert entry.index._attributes._unordered
    searches = [asyncio.create_task(indexes.search(entry, [IndexQuery("garden")])) for _ in range(2)]
    await brake.reached()
    await brake.reached()
    brake.go.set()
    await asyncio.gather(*searches)
    assert brake.unordered == [0, 0]


async def test_an_index_that_is_forgotten_meanwhile_still_answers(indexes: IndexCache, brake: Brake) -> None:
    search = asyncio.create_task(indexes.search(entry_of(indexes), [IndexQuery("garden")]))
    await brake.reached()
    indexes.forget_all()
    assert indexes.peek(USER) is None
    brake.go.set()
    assert found_in(await search) == [1, 2, 3]


async def test_a_search_that_waits_for_a_writer_sees_what_was_written(
    indexes: IndexCache, brake: Brake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the writer leaves another object in the index's place."""
    monkeypatch.setattr(user_index, "_FEW_DEAD", 0)
    brake.go.set()
    entry = entry_of(indexes)
    first = entry.index
    writers = [
        asyncio.create_task(indexes.wrote(USER, batch(1, [], 1, 2))),
        asyncio.create_task(indexes.wrote(USER, batch(2, [message(7)]))),
    ]
    await asyncio.sleep(0)
    search = asyncio.create_task(indexes.search(entry, [IndexQuery("garden")]))
    await asyncio.gather(*writers)
    assert entry.index is not first
    assert entry.index.revision == 2
    assert found_in(await search) == [3, 7]


async def test_a_write_whose_caller_goes_away_is_whole_and_may_come_again(
    indexes: IndexCache, pieces: None
) -> None:
    entry = entry_of(indexes)
    many = [message(seq) for seq in range(10, 500)]
    write = asyncio.create_task(indexes.wrote(USER, batch(1, many)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 3 < len(entry.index) < 493
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    assert (len(entry.index), entry.index.revision) == (493, 0)
    await indexes.wrote(USER, batch(1, many))
    assert (len(entry.index), entry.index.revision) == (493, 1)
    found = entry.index.search(IndexQuery("garden", top_k=1000))
    assert found_in([found]) == [1, 2, 3, *range(10, 500)]


async def test_a_batch_that_is_added_in_pieces_appears_to_searches_at_once(
    indexes: IndexCache, pieces: None
) -> None:
    entry = entry_of(indexes)
    query = IndexQuery("garden", top_k=1000)
    write = asyncio.create_task(indexes.wrote(USER, batch(1, [message(n) for n in range(10, 500)], 1)))
    searches = [asyncio.create_task(indexes.search(entry, [query]))]
    await asyncio.sleep(0)
    while not write.done():
        searches.append(asyncio.create_task(indexes.search(entry, [query])))
        await asyncio.sleep(0)
    seen = {tuple(found_in(await search)) for search in searches}
    assert len(searches) > 5
    assert seen <= {(1, 2, 3), (2, 3, *range(10, 500))}


async def test_others_are_served_while_long_texts_come_and_go(indexes: IndexCache, pieces: None) -> None:
    long = [message(seq)._replace(text=f"{seq} " + "some long text " * 6_000) for seq in range(10, 110)]
    assert await turns_of_others(indexes.wrote(USER, batch(1, long))) > 100
    assert await turns_of_others(indexes.wrote(USER, batch(2, [], *range(10, 110)))) > 100
    assert len(entry_of(indexes).index) == 3


async def turns_of_others(work: Coroutine[object, object, None]) -> int:
    """How often something else on the event loop got its turn while the work was done."""
    task, turns = asyncio.create_task(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def test_a_first_write_that_others_overtook_leaves_the_index_to_a_load(indexes: IndexCache) -> None:
    other, space = UUID(int=2), Space("test/4", 4)
    before = indexes.generation
    await indexes.wrote(other, batch(2, [message(5)]))
    await indexes.began(other, batch(1, [message(4)]), space, before)
    assert indexes.peek(other) is None
    await indexes.began(other, batch(1, [message(4)]), space, indexes.generation)
    begun = indexes.peek(other)
    assert begun is not None
    assert (len(begun.index), begun.index.revision) == (1, 1)


async def test_an_index_that_is_being_filled_may_be_evicted(indexes: IndexCache, pieces: None) -> None:
    indexes._budget = 1
    other = UUID(int=2)
    filling = asyncio.create_task(
        indexes.began(
            other,
            batch(1, [message(seq) for seq in range(10, 500)]),
            Space("test/4", 4),
            indexes.generation,
        )
    )
    await asyncio.sleep(0)
    assert indexes.peek(other) is not None
    await indexes.wrote(USER, batch(1, [message(4)]))
    await filling
    assert indexes.size.indexes == 1
    assert len(entry_of(indexes).index) == 4
