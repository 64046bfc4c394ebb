"""Search equals a plain computation over what was written, on one server and on two that share a database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import asyncpg
import numpy as np
import numpy.typing as npt
import pytest

import sage_client
from sage_client import AsyncSageClient
from sage_client.models import memory as wire
from sage_client.models.items import NewItem
from sage_server.domain.memories import Memory, MemoryFilter, MemorySource, Provenance, TagMatch
from sage_server.engine.memory_index.query import IndexQuery
from support.reference_search import Held, check, of_client, passes, reference_search
from support.server import RunningServer, running_server

T = TypeVar("T")
DIMENSIONS = 16
START = datetime(2023, 4, 1, 8, tzinfo=UTC)
WORDS = (
    "garden",
    "tomatoes",
    "Lisbon",
    "violin",
    "marathon",
    "knee",
    "doctor",
    "naïve",
    "東京",
    "cats",
    "ran",
)
TAGS = ("work", "home", "über")
STEPS = (
    "insert",
    "insert",
    "insert",
    "many",
    "many",
    "text",
    "text",
    "tags",
    "delete",
    "ids",
    "where",
    "forget",
    "pause",
)


@dataclass
class Replicas:
    """Two servers on one database, and a client of each, for one user."""

    servers: Sequence[RunningServer]
    clients: Sequence[AsyncSageClient]


@asynccontextmanager
async def replicas(dsn: str, users: Sequence[str], **settings: int) -> AsyncIterator[list[Replicas]]:
    """Two servers, and for each user the clients of both."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                running_server(dsn, embedding="hash", embedding_dimensions=DIMENSIONS, **settings)
            )
            for _ in range(2)
        ]
        yield [
            Replicas(
                servers,
                [
                    await stack.enter_async_context(sage_client.connect_async(one.address, user=user))
                    for one in servers
                ],
            )
            for user in users
        ]


@pytest.fixture
async def pair(dsn: str) -> AsyncIterator[Replicas]:
    async with replicas(dsn, ["maria"]) as (both,):
        yield both


@dataclass
class World:
    """What was written for one user through either server, and what must therefore be found."""

    both: Replicas
    seed: int
    padding: str = ""
    held: dict[UUID, Held] = field(default_factory=dict)
    token: str = ""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.numbers = np.random.default_rng(self.seed)

    def text(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 8))) + self.padding

    def vector(self) -> npt.NDArray[np.float32]:
        vector = self.numbers.normal(size=DIMENSIONS)
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    def client(self) -> AsyncSageClient:
        return self.random.choice(self.both.clients)

    def new(self) -> wire.NewMemory:
        at = START + timedelta(hours=self.random.randint(0, 2000))
        tags = self.random.sample(TAGS, self.random.randint(0, 2))
        if self.random.random() < 0.1:
            return wire.NewMemory("?! " + self.padding, create_time=at, tags=tags)
        # Not of length 1: the server makes it so.
        return wire.NewMemory(self.text(), create_time=at, tags=tags, embedding=3 * self.vector())

    def keep(self, memory_id: str, new: wire.NewMemory) -> None:
        assert new.create_time is not None
        memory = Memory(
            id=UUID(memory_id),
            source=MemorySource.ARCHIVAL,
            text=new.text,
            created_at=new.create_time,
            updated_at=new.create_time,
            tags=tuple(new.tags),
        )
        vector = None if new.embedding is None else np.array(new.embedding, np.float32)
        self.held[memory.id] = Held(memory, vector)

    async def step(self) -> None:
        """Something happens on one of the servers."""
        kind = self.random.choice(STEPS)
        if kind == "forget":
            self.random.choice(self.both.servers).application.memory.indexes.forget_all()
        elif kind == "many":
            new = [self.new() for _ in range(self.random.choice((3, 40)))]
            written = await self.client().memory.insert_many(new)
            for memory_id, one in zip(written.ids, new, strict=True):
                self.keep(memory_id, one)
            self.token = written.memory_token
        elif kind in ("text", "tags") and self.held:
            await self.update(kind)
        elif kind in ("delete", "ids", "where") and self.held:
            await self.delete(kind)
        elif kind != "pause":
            one = self.new()
            inserted = await self.client().memory.insert(
                one.text, tags=one.tags, create_time=one.create_time, embedding=one.embedding
            )
            self.keep(inserted.memory.id, one)
            self.token = inserted.memory_token

    async def update(self, kind: str) -> None:
        held = self.random.choice(list(self.held.values()))
        memory, vector = held.memory, held.vector
        if kind == "tags":
            memory = memory._replace(tags=(self.random.choice(TAGS),))
            written = await self.client().memory.update(str(memory.id), tags=memory.tags)
        else:
            memory, vector = memory._replace(text=self.text()), self.vector()
            written = await self.client().memory.update(str(memory.id), text=memory.text, embedding=vector)
        self.held[memory.id] = Held(memory, vector)
        self.token = written.memory_token

    async def delete(self, kind: str) -> None:
        gone = self.random.sample(list(self.held), 1 if kind == "delete" else min(len(self.held), 4))
        if kind == "delete":
            deleted = await self.client().memory.delete(str(gone[0]))
        elif kind == "ids":
            deleted = await self.client().memory.delete_many(str(one) for one in gone)
        else:
            which = MemoryFilter(tags=("home", "work"), match=TagMatch.ALL)
            gone = [key for key, one in self.held.items() if passes(one.memory, which)]
            where = wire.MemoryFilter(tags=which.tags, match=wire.TagMatch.ALL)
            deleted = await self.client().memory.delete_where(where)
        assert deleted.deleted_count == len(gone)
        for one in gone:
            del self.held[one]
        self.token = deleted.memory_token

    def query(self) -> IndexQuery:
        """A query with the vector, or with words alone."""
        choose = self.random.choice
        conditions: list[Mapping[str, object]] = [
            {},
            {},
            {"tags": ("home", "work")},
            {"tags": ("home", "work"), "match": TagMatch.ALL},
            {"start": START + timedelta(hours=500), "end": START + timedelta(hours=1500)},
            {"sources": frozenset({MemorySource.ARCHIVAL})},
            {"sources": frozenset({MemorySource.DOCUMENT})},
        ]
        with_vector = self.random.random() < 0.8
        return IndexQuery(
            text=" ".join(self.random.choices(WORDS, k=2)),
            vector=self.vector() if with_vector else None,
            which=replace(MemoryFilter(), **choose(conditions)),  # type: ignore[arg-type]
            top_k=choose((1, 10, 100)),
            vector_weight=choose((0.7, 0.2)) if with_vector else 0.0,
            text_weight=choose((0.3, 1.0)),
            min_score=choose((None, None, 0.5)),
        )

    async def check(self) -> None:
        """Both servers, with the last token and without one but fully consistent."""
        for client in self.both.clients:
            query = self.query()
            fresh = self.token if self.random.random() < 0.5 else ""
            found = await search(client, query, at_least_as_fresh=fresh, fully_consistent=not fresh)
            expected = reference_search(self.held.values(), query)
            results = [of_client(one) for one in found.results]
            check(results, found.candidate_count, expected, query.top_k)
            for one in found.results:
                memory = self.held[UUID(one.memory.id)].memory
                assert (one.memory.text, sorted(one.memory.tags)) == (memory.text, sorted(memory.tags))


async def search(
    client: AsyncSageClient,
    query: IndexQuery,
    *,
    at_least_as_fresh: str = "",
    fully_consistent: bool = False,
) -> sage_client.models.search.SearchResults:
    """A query of the index as a call."""
    which = query.which
    return await client.memory.search(
        query.text,
        embedding=query.vector,
        sources=[wire.MemorySource(source.name.lower()) for source in which.sources],
        tags=which.tags,
        match=wire.TagMatch.ALL if which.match is TagMatch.ALL else wire.TagMatch.ANY,
        conversation_id="" if which.conversation_id is None else str(which.conversation_id),
        after=which.start,
        before=which.end,
        top_k=query.top_k,
        vector_weight=query.vector_weight,
        text_weight=query.text_weight,
        min_score=query.min_score,
        context_evidence=query.context_evidence,
        at_least_as_fresh=at_least_as_fresh,
        fully_consistent=fully_consistent,
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_both_servers_find_what_a_plain_computation_finds(pair: Replicas, seed: int) -> None:
    world = World(pair, seed)
    for _ in range(60):
        await world.step()
        await world.check()
    assert len(world.held) > 50


async def test_evicted_indexes_come_back_as_they_should_be(dsn: str) -> None:
    async with replicas(dsn, ["maria", "anna", "ben"], index_megabytes=1) as users:
        # Beside the words a memory brings enough for two users not to fit into a megabyte.
        worlds = [World(both, seed, "." * 90_000) for seed, both in enumerate(users)]
        for _ in range(12):
            for world in worlds:
                await world.step()
            for world in worlds:
                await world.check()
        sizes = [server.application.memory.indexes.size for server in users[0].servers]
    assert all(size.evictions > 3 for size in sizes)
    assert all(size.loads > 3 for size in sizes)


async def test_messages_are_found_with_their_surroundings_on_both_servers(pair: Replicas) -> None:
    client = pair.clients[0]
    texts = [f"{word} {other}" for word in WORDS[:6] for other in WORDS[4:8]]
    threads = [(await client.conversations.create()).id for _ in range(2)]
    for thread in threads:
        items = [
            NewItem.user(text, author=author, create_time=START + timedelta(hours=at * at))
            for at, (text, author) in enumerate(zip(texts, ("Anna Berg", "Ben", "") * 8, strict=False))
        ]
        await client.conversations.append(thread, items)
    held = await _listed(client, 2 * len(texts))
    for index, thread_id in enumerate((UUID(threads[0]), UUID(threads[1]), None)):
        which = MemoryFilter(conversation_id=thread_id)
        query = IndexQuery("Anna's garden in April 2023", held[index].vector, which, top_k=100)
        expected = reference_search(held, query)
        for one in pair.clients:
            found = await search(one, query, fully_consistent=True)
            check([of_client(result) for result in found.results], found.candidate_count, expected, 100)
    await client.conversations.delete(threads[0])
    left = [one for one in held if one.memory.provenance.conversation_id != UUID(threads[0])]
    query = IndexQuery("Ben's garden in 2023", held[0].vector, top_k=100)
    for one in pair.clients:
        found = await search(one, query, fully_consistent=True)
        expected = reference_search(left, query)
        check([of_client(result) for result in found.results], found.candidate_count, expected, 100)


async def soon(look: Callable[[], Awaitable[T | None]]) -> T:
    """What a look gives as soon as it gives anything."""
    async with asyncio.timeout(20):
        while True:
            found = await look()
            if found is not None:
                return found
            await asyncio.sleep(0.05)


async def _listed(client: AsyncSageClient, count: int) -> list[Held]:
    """All memories with their vectors, as soon as there are so many."""

    async def there() -> list[wire.Memory] | None:
        found = [one async for one in client.memory.list()]
        return found if len(found) == count else None

    held = []
    for one in await soon(there):
        vector = (await client.memory.embed([one.text])).vectors[0]
        place = Provenance(
            conversation_id=UUID(one.provenance.conversation_id),
            item_seq=one.provenance.item_seq,
            origin=one.provenance.author,
        )
        memory = Memory(
            UUID(one.id), MemorySource.MESSAGE, one.text, one.create_time, one.create_time, provenance=place
        )
        held.append(Held(memory, np.array(vector, np.float32)))
    return held


@pytest.mark.parametrize("match", TagMatch)
async def test_tags_filter_lists_and_searches_alike(pair: Replicas, match: TagMatch) -> None:
    world = World(pair, 5)
    wanted = [("work",), ("work", "home"), ("home", "über", "home"), ("work", "home", "über"), ("nobody",)]
    tags = [(), ("work",), ("home",), ("über",), ("work", "home"), ("home", "über"), ("work", "home", "über")]
    for chosen in tags:
        one = replace(world.new(), tags=chosen)
        inserted = await world.client().memory.insert(one.text, tags=[tag.upper() for tag in chosen])
        world.keep(inserted.memory.id, replace(one, create_time=inserted.memory.create_time))
    for asked in wanted:
        which = MemoryFilter(tags=asked, match=match)
        expected = {str(key) for key, one in world.held.items() if passes(one.memory, which)}
        by_client = wire.TagMatch[match.name]
        for client in pair.clients:
            listed = client.memory.list(wire.MemoryFilter(tags=asked, match=by_client))
            assert {one.id async for one in listed} == expected
            query = IndexQuery("x", world.vector(), which, top_k=100)
            found = await search(client, query, fully_consistent=True)
            assert {one.memory.id for one in found.results} == expected


async def test_without_weights_the_documented_ones_count(pair: Replicas) -> None:
    world = World(pair, 6)
    for _ in range(10):
        one = world.new()
        inserted = await pair.clients[0].memory.insert(
            one.text, create_time=one.create_time, embedding=one.embedding
        )
        world.keep(inserted.memory.id, replace(one, tags=()))
    vector = world.vector()
    found = await pair.clients[0].memory.search("garden cats", embedding=vector)
    query = IndexQuery("garden cats", vector, vector_weight=0.7, text_weight=0.3, context_evidence=False)
    expected = reference_search(world.held.values(), query)
    check([of_client(one) for one in found.results], found.candidate_count, expected, 10)
    assert [one.rank for one in found.results] == list(range(1, 11))


async def test_a_token_that_is_not_the_users_is_refused(dsn: str) -> None:
    async with replicas(dsn, ["maria", "anna"]) as (maria, anna):
        token = (await maria.clients[0].memory.insert("garden")).memory_token
        await anna.clients[0].memory.insert("garden")
        altered = token[:-6] + ("A" if token[-6] != "A" else "B") + token[-5:]
        for client, wrong in (
            (anna.clients[0], token),
            (maria.clients[0], altered),
            (maria.clients[1], altered),
            (maria.clients[0], "garbage"),
            (maria.clients[0], "é"),
        ):
            with pytest.raises(sage_client.InvalidArgument) as refused:
                await client.memory.search("garden", at_least_as_fresh=wrong)
            assert refused.value.reason == "MEMORY_TOKEN_INVALID"
        found = await maria.clients[1].memory.search("garden", at_least_as_fresh=token)
        assert len(found.results) == 1


async def test_a_token_from_a_time_that_the_database_does_not_know_is_refused(pair: Replicas) -> None:
    await pair.clients[0].memory.insert("garden")
    token = (await pair.clients[0].memory.insert("garden")).memory_token
    connection = await asyncpg.connect(pair.servers[0].dsn)
    await connection.execute("UPDATE heads SET memory_revision = 1 WHERE memory_revision = 2")
    await connection.close()
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await pair.clients[1].memory.search("garden", at_least_as_fresh=token)
    assert refused.value.reason == "MEMORY_TOKEN_INVALID"


async def test_what_a_search_saw_the_other_server_sees_with_its_token(pair: Replicas) -> None:
    here, there = pair.clients
    await there.memory.search("garden")
    written = await here.memory.insert("garden")
    seen = await here.memory.search("garden")
    assert [one.memory.id for one in seen.results] == [written.memory.id]
    again = await there.memory.search("garden", at_least_as_fresh=seen.memory_token)
    assert [one.memory.id for one in again.results] == [written.memory.id]


async def test_every_acknowledged_write_is_seen_on_the_other_server(pair: Replicas) -> None:
    gone: dict[str, str] = {}
    first = (await pair.clients[0].memory.insert("first")).memory_token
    done = asyncio.Event()

    async def sees(client: AsyncSageClient, word: str, token: str) -> list[str]:
        found = await client.memory.search(word, vector_weight=0, at_least_as_fresh=token)
        return [one.memory.id for one in found.results]

    async def write(number: int) -> None:
        here, there = pair.clients if number % 2 else pair.clients[::-1]
        for turn in range(5):
            old, new = f"old{number}x{turn}", f"new{number}x{turn}"
            inserted = await here.memory.insert(f"common {old}")
            memory_id = inserted.memory.id
            assert await sees(there, old, inserted.memory_token) == [memory_id]
            updated = await there.memory.update(memory_id, text=f"common {new}")
            assert await sees(here, old, updated.memory_token) == []
            assert await sees(here, new, updated.memory_token) == [memory_id]
            if turn % 2:
                deleted = await here.memory.delete(memory_id)
                gone[memory_id] = deleted.memory_token
                assert await sees(there, new, deleted.memory_token) == []

    async def read(client: AsyncSageClient) -> int:
        turns = 0
        known: set[str] = set()
        while not done.is_set():
            # Once this server was asked with the token of a deletion, the memory must never come back.
            memory_id, token = next((one for one in gone.items() if one[0] not in known), ("", first))
            known.add(memory_id)
            found = await client.memory.search("common", vector_weight=0, top_k=100, at_least_as_fresh=token)
            assert known.isdisjoint(one.memory.id for one in found.results)
            turns += 1
        return turns

    readers = [asyncio.create_task(read(client)) for client in (*pair.clients, *pair.clients)]
    try:
        await asyncio.gather(*(write(number) for number in range(8)))
    finally:
        done.set()
        turns = await asyncio.gather(*readers)
    assert min(turns) > 0
    for client in pair.clients:
        found = await client.memory.search("common", vector_weight=0, top_k=100, fully_consistent=True)
        assert len(found.results) == 8 * 3
        assert gone.keys().isdisjoint(one.memory.id for one in found.results)


async def test_without_a_token_the_other_server_sees_a_write_soon(pair: Replicas) -> None:
    here, there = pair.clients
    first = (await here.memory.insert("garden")).memory.id
    assert len((await there.memory.search("garden")).results) == 1
    second = (await here.memory.insert("garden")).memory.id
    await here.memory.delete(first)

    async def seen() -> bool | None:
        found = await there.memory.search("garden")
        return [one.memory.id for one in found.results] == [second] or None

    await soon(seen)
