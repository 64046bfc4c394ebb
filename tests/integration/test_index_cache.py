"""The cache of indexes on real servers: loaded once, kept up to date, dropped without harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import pytest

import sage_client
from sage_client import AsyncSageClient
from sage_client.models.memory import NewMemory
from sage_server.engine.memory_index import cache as caches
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.ports.memories import MemoryHead
from support.server import RunningServer, running_server


@dataclass(frozen=True)
class Side:
    """A server and a client of it."""

    server: RunningServer
    client: AsyncSageClient

    @property
    def indexes(self) -> IndexCache:
        return self.server.application.memory.indexes

    async def found(self, word: str, **demands: object) -> list[str]:
        """The texts with a word, as this server has them."""
        results = await self.client.memory.search(word, vector_weight=0, top_k=100, **demands)  # type: ignore[arg-type]
        return sorted(one.memory.text for one in results.results)


@pytest.fixture
async def sides(dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Side, Side]]:
    """Two servers on one database that learn of each other's writes only if somebody asks."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            server = await stack.enter_async_context(
                running_server(dsn, embedding="hash", embedding_dimensions=16)
            )
            monkeypatch.setattr(server.application.memory.indexes._store, "revisions", _nothing)
            client = await stack.enter_async_context(sage_client.connect_async(server.address, user="maria"))
            found.append(Side(server, client))
        yield found[0], found[1]


async def _nothing(_user_ids: Sequence[UUID]) -> Mapping[UUID, int]:
    return {}


class Brake:
    """Forgets what is loaded, and holds the next load when it has read all; or, early, when it has read the
    rows but not yet asked what changed since."""

    def __init__(self, indexes: IndexCache, monkeypatch: pytest.MonkeyPatch, *, early: bool = False) -> None:
        self._reached = asyncio.Event()
        self.go = asyncio.Event()
        self._heads = 0
        self._early = early
        self._head = indexes._store.head
        indexes.forget_all()
        monkeypatch.setattr(indexes._store, "head", self.head)

    async def reached(self) -> None:
        await asyncio.wait_for(self._reached.wait(), 20)

    async def head(self, user_id: UUID) -> MemoryHead:
        task = asyncio.current_task()
        loading = task is not None and task.get_name() == "load-index"
        self._heads += loading
        stop = loading and self._heads == 2
        if stop and self._early:
            await self._stopped()
        found = await self._head(user_id)
        if stop and not self._early:
            await self._stopped()
        return found

    async def _stopped(self) -> None:
        self._reached.set()
        await asyncio.wait_for(self.go.wait(), 20)


async def test_many_first_searches_load_an_index_once(sides: tuple[Side, Side]) -> None:
    here, there = sides
    await here.client.memory.insert("garden")
    answers = await asyncio.gather(*(there.found("garden") for _ in range(20)))
    assert answers == [["garden"]] * 20
    assert (there.indexes.size.loads, there.indexes.size.indexes) == (1, 1)


async def test_a_search_for_nothing_loads_nothing(sides: tuple[Side, Side]) -> None:
    here, _ = sides
    assert await here.found("garden") == []
    assert (here.indexes.size.loads, here.indexes.size.indexes, here.indexes.size.bytes) == (0, 0, 0)


async def test_own_writes_are_found_at_once_without_a_token(sides: tuple[Side, Side]) -> None:
    here, _ = sides
    memory = here.client.memory
    first = (await memory.insert("garden one")).memory.id
    assert await here.found("garden") == ["garden one"]
    await memory.insert_many([NewMemory(f"garden {n}") for n in range(200)])
    assert len(await here.found("garden")) == 100
    await memory.update(first, text="violin")
    assert await here.found("violin") == ["violin"]
    await memory.update(first, tags=["loud"])
    assert await here.found("violin", tags=["loud"]) == ["violin"]
    await memory.delete(first)
    assert await here.found("violin") == []
    await memory.delete_all()
    assert await here.found("garden") == []


async def test_a_write_after_one_that_was_missed_brings_both(sides: tuple[Side, Side]) -> None:
    here, there = sides
    first = (await here.client.memory.insert("garden one")).memory.id
    assert await there.found("garden") == ["garden one"]
    await here.client.memory.insert("garden two")
    await here.client.memory.delete(first)
    assert await there.found("garden") == ["garden one"]
    await there.client.memory.insert("garden three")
    assert await there.found("garden") == ["garden three", "garden two"]


async def test_a_write_during_the_load_is_in_the_index_when_it_is_acknowledged(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = sides
    await here.client.memory.insert("garden one")
    brake = Brake(here.indexes, monkeypatch)
    search = asyncio.create_task(here.found("garden"))
    await brake.reached()
    write = asyncio.create_task(here.client.memory.insert("garden two"))
    await _committed(here, 2)
    brake.go.set()
    await write
    assert await here.found("garden") == ["garden one", "garden two"]
    assert "garden one" in await search


async def test_what_changes_while_rows_are_read_is_in_the_index_that_they_become(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = sides
    first = (await here.client.memory.insert("garden one")).memory.id
    second = (await here.client.memory.insert("garden two")).memory.id
    brake = Brake(there.indexes, monkeypatch, early=True)
    search = asyncio.create_task(there.found("garden"))
    await brake.reached()
    await here.client.memory.delete(first)
    await here.client.memory.update(second, text="garden second")
    await here.client.memory.insert("garden three")
    brake.go.set()
    assert await search == ["garden second", "garden three"]
    assert await there.found("garden", fully_consistent=True) == ["garden second", "garden three"]


async def test_a_load_that_missed_what_a_token_demands_is_brought_up_to_date(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = sides
    await here.client.memory.insert("garden one")
    brake = Brake(there.indexes, monkeypatch)
    first = asyncio.create_task(there.found("garden"))
    await brake.reached()
    token = (await here.client.memory.insert("garden two")).memory_token
    second = asyncio.create_task(there.found("garden", at_least_as_fresh=token))
    await asyncio.sleep(0)
    brake.go.set()
    assert await second == ["garden one", "garden two"]
    assert "garden one" in await first


@pytest.mark.parametrize("forget", [IndexCache.forget_all, lambda one: one.forget(next(iter(one._loading)))])
async def test_what_is_forgotten_while_it_loads_does_not_stay(
    sides: tuple[Side, Side],
    monkeypatch: pytest.MonkeyPatch,
    forget: Callable[[IndexCache], None],
) -> None:
    here, _ = sides
    await here.client.memory.insert("garden")
    brake = Brake(here.indexes, monkeypatch)
    search = asyncio.create_task(here.found("garden"))
    await brake.reached()
    forget(here.indexes)
    brake.go.set()
    assert await search == ["garden"]
    assert here.indexes.size.indexes == 0
    assert await here.found("garden") == ["garden"]
    assert here.indexes.size.indexes == 1


async def test_a_write_beside_a_forgotten_load_and_its_successor_is_found(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that was forgotten does not stand in for the one that took its place."""
    here, _ = sides
    await here.client.memory.insert("garden one")
    old = Brake(here.indexes, monkeypatch)
    first = asyncio.create_task(here.found("garden"))
    await old.reached()
    write = asyncio.create_task(here.client.memory.insert("garden two"))
    new = Brake(here.indexes, monkeypatch)
    second = asyncio.create_task(here.found("garden"))
    await new.reached()
    await _committed(here, 2)
    old.go.set()
    await first
    new.go.set()
    await write
    assert await here.found("garden") == ["garden one", "garden two"]
    await second


async def _committed(side: Side, count: int) -> None:
    """Wait until so many memories are stored."""
    connection = await asyncpg.connect(side.server.dsn)
    try:
        async with asyncio.timeout(20):
            while await connection.fetchval("SELECT count(*) FROM memories") != count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def test_who_missed_deletions_that_left_no_trace_reads_everything_again(
    sides: tuple[Side, Side],
) -> None:
    here, there = sides
    first = (await here.client.memory.insert("garden one")).memory.id
    await here.client.memory.insert("garden two")
    assert await there.found("garden") == ["garden one", "garden two"]
    await here.client.memory.delete(first)
    connection = await asyncpg.connect(here.server.dsn)
    await connection.execute("DELETE FROM memories WHERE id = $1", UUID(first))
    await connection.execute("UPDATE heads SET pruned_revision = memory_revision WHERE memory_revision > 0")
    await connection.close()
    assert await there.found("garden", fully_consistent=True) == ["garden two"]
    assert there.indexes.size.loads == 2


async def test_large_searches_beside_writes_fail_nobody_and_end_right(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "_INLINE_WORK", 0)
    here, there = sides
    await here.client.memory.insert_many([NewMemory(f"garden start {n}") for n in range(300)])
    thread = (await here.client.conversations.create()).id
    done = asyncio.Event()

    async def write(side: Side, name: str) -> None:
        for turn in range(8):
            new = [NewMemory(f"{name} turn{turn} piece{n}") for n in range(20)]
            ids = (await side.client.memory.insert_many(new)).ids
            await side.client.conversations.append(
                thread, [sage_client.NewItem.user(f"garden said {name} {turn}", author=name)]
            )
            await side.client.memory.delete_many(ids[1:])

    async def read(side: Side) -> int:
        turns = 0
        while not done.is_set():
            found = await side.client.memory.search("Anna's garden turn3", fully_consistent=turns % 3 == 0)
            assert len(found.results) == 10
            turns += 1
        return turns

    readers = [asyncio.create_task(read(side)) for side in (here, there, here, there)]
    try:
        await asyncio.gather(write(here, "anna"), write(there, "ben"), write(here, "carl"))
    finally:
        done.set()
        turns = await asyncio.gather(*readers)
    assert min(turns) > 0
    expected = sorted(f"{name} turn{turn} piece0" for name in ("anna", "ben", "carl") for turn in range(8))
    for side in sides:
        assert await side.found("piece0", fully_consistent=True) == expected
        assert await side.found("piece1", fully_consistent=True) == []


async def test_evictions_beside_searches_break_none(dsn: str) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            running_server(dsn, embedding="hash", embedding_dimensions=16, index_megabytes=1)
        )
        names = [f"user{number}" for number in range(6)]
        clients = [
            await stack.enter_async_context(sage_client.connect_async(server.address, user=name))
            for name in names
        ]
        for name, client in zip(names, clients, strict=True):
            new = [NewMemory(f"garden {name} {n} " + "." * 90_000) for n in range(6)]
            await client.memory.insert_many(new)

        async def read(name: str, client: AsyncSageClient) -> None:
            for turn in range(6):
                found = await client.memory.search("garden", vector_weight=0, top_k=100)
                assert len(found.results) == 6 + turn
                assert all(name in one.memory.text for one in found.results)
                await client.memory.insert(f"garden {name} more")

        await asyncio.gather(*(read(*pair) for pair in zip(names, clients, strict=True)))
        size = server.application.memory.indexes.size
    assert size.evictions > 6
    assert size.indexes < 6
