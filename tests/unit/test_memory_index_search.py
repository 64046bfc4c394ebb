"""The index of one user gives what a plain computation gives, whatever happened to it before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.memories import Memory, MemoryFilter, MemorySource, Provenance, TagMatch
from sage_server.engine.memory_index import vectors
from sage_server.engine.memory_index.query import IndexQuery
from sage_server.engine.memory_index.user_index import UserIndex
from sage_server.engine.memory_index.words import Words
from support.reference_search import Held, check, of_index, reference_search

Vector = npt.NDArray[np.float32]
DIMENSIONS = 12
START = datetime(2022, 11, 3, 9, 30, tzinfo=UTC)
_WORDS = """
    garden tomatoes moved Lisbon violin lessons Tuesday marathon knee doctor naïve Straße 東京 émigré
    Anna's don't O\u2019Brien cats cat running runs ran 42 café
"""
WORDS = _WORDS.split()
STEPS = ("one", "one", "few", "many", "replace", "replace", "remove", "remove", "remove", "compact")
EMPTY = ("", "the of it", "!?", "  ")
QUESTIONS = (
    "in May",
    "2023",
    "March 2023",
    "2023-05-17",
    "may",
    "What did Anna say",
    "Ben",
    "Ben Cole's",
    "",
)
AUTHORS = ("Anna", "Ben Cole", "Ben Stone", "")
AGENTS = [UUID(int=n) for n in (1, 2)]
CONVERSATIONS = [UUID(int=n) for n in (11, 12, 13)]
DOCUMENTS = [UUID(int=n) for n in (21, 22)]
TAGS = ("work", "home", "über", "a b")


class World:
    """An index, and what it should hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.index = UserIndex(Words(), DIMENSIONS)
        self.held: dict[UUID, Held] = {}
        self.places: set[tuple[UUID, int, int]] = set()

    def vector(self) -> Vector:
        """A new one, or one that something has already."""
        known = [one.vector for one in self.held.values() if one.vector is not None]
        if known and self.random.random() < 0.1:
            return self.random.choice(known)
        return unit(self.numbers.normal(size=DIMENSIONS))

    def text(self) -> str:
        if self.random.random() < 0.05:
            return self.random.choice(EMPTY)
        return " ".join(self.random.choices((*WORDS, "the", "was"), k=self.random.randint(1, 14)))

    def made(self) -> Held:
        """A memory of any kind."""
        source = self.random.choice(list(MemorySource))
        place = Provenance()
        if source is MemorySource.MESSAGE:
            place = self._free_place()
        elif source is MemorySource.DOCUMENT:
            place = Provenance(document_id=self.random.choice(DOCUMENTS), origin="Anna")
        elif source is MemorySource.SUMMARY:
            place = Provenance(conversation_id=self.random.choice(CONVERSATIONS), item_seq=5)
        # Few different times, so that equal ones occur; pauses on both sides of the limit.
        at = START + timedelta(
            hours=self.random.choice((0, 1, 3, 8, 9, 17)), days=self.random.randint(0, 400)
        )
        memory = Memory(
            id=UUID(int=self.random.getrandbits(128)),
            source=source,
            text=self.text(),
            created_at=at,
            updated_at=at,
            tags=tuple(self.random.sample(TAGS, self.random.randint(0, 3))),
            agent_id=self.random.choice((None, *AGENTS)),
            provenance=place,
        )
        return Held(memory, self.vector() if self.random.random() < 0.9 else None)

    def changed(self, held: Held) -> Held:
        """The same memory with another text, other tags and another vector."""
        memory = held.memory._replace(text=self.text(), tags=(self.random.choice(TAGS),))
        return Held(memory, self.vector() if self.random.random() < 0.8 else None)

    def add(self, new: Sequence[Held]) -> None:
        put(self.index, new)
        self.held |= {one.memory.id: one for one in new}

    def remove(self) -> None:
        memory_id = self.random.choice(list(self.held))
        place = self.held.pop(memory_id).memory.provenance
        self.places -= {(place.conversation_id or AGENTS[0], place.item_seq or 0, place.chunk_index)}
        assert self.index.remove(memory_id)
        assert not self.index.remove(memory_id)

    def step(self) -> None:
        """Something happens."""
        kind = self.random.choice(STEPS)
        if kind == "compact":
            self.index = self.index.compacted()
        elif kind == "replace" and self.held:
            known = self.random.sample(list(self.held.values()), min(len(self.held), 3))
            self.add([self.changed(one) for one in known])
        elif kind == "remove" and self.held:
            self.remove()
        else:
            self.add([self.made() for _ in range({"few": 7, "many": 40}.get(kind, 1))])

    def query(self) -> IndexQuery:
        """Any query."""
        choose = self.random.choice
        words = " ".join(self.random.choices(WORDS, k=self.random.randint(0, 4)))
        return IndexQuery(
            text=f"{words} {choose(QUESTIONS)}".strip(),
            vector=choose((None, self.vector(), self.vector(), self.vector())),
            which=self.filter(),
            top_k=choose((1, 3, 10, 100)),
            vector_weight=choose((0.7, 1.0, 0.0, 0.25)),
            text_weight=choose((0.3, 1.0, 0.5)),
            min_score=choose((None, None, 0.0, 0.4, 1.1)),
            context_evidence=choose((True, True, False)),
        )

    def filter(self) -> MemoryFilter:
        """No condition, one, or several at once."""
        chosen = self.random.sample(list(CONDITIONS), self.random.choice((0, 0, 1, 2, 3)))
        which = MemoryFilter()
        for name in chosen:
            which = replace(which, **self.random.choice(CONDITIONS[name]))  # type: ignore[arg-type]
        return which

    def check(self, query: IndexQuery) -> None:
        found = self.index.search(query)
        expected = reference_search(self.held.values(), query)
        check([of_index(one) for one in found.results], found.candidates, expected, query.top_k)

    def _free_place(self) -> Provenance:
        while True:
            place = (
                self.random.choice(CONVERSATIONS),
                self.random.randint(1, 80),
                self.random.choice((0, 0, 1)),
            )
            if place not in self.places:
                break
        self.places.add(place)
        return Provenance(
            conversation_id=place[0],
            item_seq=place[1],
            chunk_index=place[2],
            origin=self.random.choice(AUTHORS),
        )


CONDITIONS: dict[str, list[dict[str, object]]] = {
    "sources": [
        {"sources": frozenset(chosen)} for many in (1, 2) for chosen in combinations(MemorySource, many)
    ],
    "tags": [{"tags": ("work",)}, {"tags": ("nobody",)}, {"tags": ("home", "work", "home")}],
    "all tags": [
        {"tags": ("home", "work"), "match": TagMatch.ALL},
        {"tags": ("über", "nobody"), "match": TagMatch.ALL},
    ],
    "agent": [{"agent_id": agent} for agent in (*AGENTS, UUID(int=99))],
    "owners": [
        {"owners": frozenset(owners)}
        for owners in ((), (None,), AGENTS[:1], (None, AGENTS[0]), (None, *AGENTS), (UUID(int=99),))
    ],
    "conversation": [{"conversation_id": one} for one in (*CONVERSATIONS, UUID(int=99))],
    "document": [{"document_id": one} for one in (*DOCUMENTS, UUID(int=99))],
    "start": [{"start": START + timedelta(days=100)}, {"start": START + timedelta(hours=9, days=30)}],
    "end": [{"end": START + timedelta(days=300)}, {"end": START}],
}


def unit(values: npt.ArrayLike) -> Vector:
    vector = np.asarray(values, np.float64)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def put(index: UserIndex, new: Sequence[Held]) -> None:
    def fill(at: int, room: Vector) -> bool:
        vector = new[at].vector
        if vector is None:
            return False
        room[:] = vector
        return True

    index.add([one.memory for one in new], fill)


def said(text: str, number: int, **changes: object) -> Memory:
    at = START + timedelta(minutes=number)
    memory = Memory(UUID(int=number), MemorySource.ARCHIVAL, text, at, at)
    return memory._replace(**changes)  # type: ignore[arg-type]


def texts(index: UserIndex, **query: object) -> list[str]:
    asked = IndexQuery(**query)  # type: ignore[arg-type]
    return [one.memory.text for one in index.search(asked).results]


@pytest.mark.parametrize("seed", range(12))
def test_search_equals_brute_force_after_any_inserts_updates_deletes_and_compactions(seed: int) -> None:
    world = World(seed)
    for _ in range(40):
        world.step()
        for _ in range(2):
            world.check(world.query())
    assert len(world.index) == len(world.held)


@pytest.mark.parametrize("seed", [100, 101])
def test_vectors_in_many_segments_give_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_SEGMENT_BYTES", 5 * 4 * DIMENSIONS)
    world = World(seed)
    for _ in range(30):
        world.step()
        world.check(world.query())


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_filter_lets_through_what_it_names_and_nothing_else(name: str) -> None:
    world = World(7)
    world.add([world.made() for _ in range(150)])
    for _ in range(20):
        world.remove()
    vector = world.vector()
    for condition in CONDITIONS[name]:
        which = replace(MemoryFilter(), **condition)  # type: ignore[arg-type]
        for text in ("garden cat", ""):
            world.check(IndexQuery(text, vector, which, top_k=100))


def test_messages_that_come_in_any_order_have_the_neighbours_of_their_positions() -> None:
    world = World(3)
    messages = [
        one for one in (world.made() for _ in range(400)) if one.memory.source is MemorySource.MESSAGE
    ]
    query = IndexQuery("Anna's garden in May", world.vector(), top_k=100)
    for start in range(0, len(messages), 9):
        world.add(messages[start : start + 9])
        world.check(query)
    in_order = sorted(messages, key=lambda one: one.memory.provenance[:3:2])
    again = World(4)
    again.add(in_order)
    again.check(query)
    assert len(messages) > 60


def test_an_index_without_memories_finds_nothing() -> None:
    world = World(1)
    world.check(IndexQuery("garden", world.vector()))
    world.add([world.made()])
    world.remove()
    world.check(IndexQuery("garden", world.vector()))
    assert world.index.search(IndexQuery("garden")).candidates == 0


@pytest.mark.parametrize(("direction", "normalized"), [(1, 1.0), (-1, 0.0)])
def test_one_memory_alone_is_as_near_as_can_be_or_not_at_all(direction: int, normalized: float) -> None:
    world = World(1)
    vector = world.vector()
    world.add([Held(said("garden", 1), vector)])
    world.check(IndexQuery("garden", direction * vector))
    (result,) = world.index.search(IndexQuery("garden", direction * vector)).results
    assert (result.normalized_vector, result.normalized_text) == (normalized, 1.0)


def test_without_a_query_vector_only_what_has_a_word_is_found() -> None:
    world = World(1)
    world.add([Held(said("garden", 1), world.vector()), Held(said("violin", 2), world.vector())])
    assert texts(world.index, text="garden") == ["garden"]
    assert texts(world.index, text="nothing of it") == []
    assert world.index.search(IndexQuery("nothing of it")).candidates == 2


def test_a_memory_without_a_vector_is_found_by_its_words_alone() -> None:
    world = World(1)
    vector = world.vector()
    near, far = Held(said("violin", 1), vector), Held(said("lessons", 2), unit(-vector + 0.1))
    world.add([near, far, Held(said("garden", 3))])
    query = IndexQuery("garden", vector, vector_weight=0.2, text_weight=0.8)
    world.check(query)
    first = world.index.search(query).results[0]
    assert (first.memory.text, first.vector_score, first.normalized_vector) == ("garden", None, 0.0)
    assert first.score == pytest.approx(0.8)


def test_among_equals_the_newer_is_first_and_then_the_higher_id() -> None:
    index = UserIndex(Words(), DIMENSIONS)
    vector = World(1).vector()
    at = [START, START + timedelta(days=1), START + timedelta(days=2)]
    rows = [(5, at[0]), (9, at[1]), (2, at[2]), (7, at[1]), (1, at[0]), (8, at[1])]
    put(index, [Held(said("same", number, created_at=when), vector) for number, when in rows])
    order = [2, 9, 8, 7, 5, 1]
    for top_k in range(1, 7):
        found = index.search(IndexQuery("same", vector, top_k=top_k)).results
        assert [one.memory.id.int for one in found] == order[:top_k]
        assert {one.score for one in found} == {1.0}


def test_only_the_weights_make_the_documented_sum() -> None:
    index = UserIndex(Words(), DIMENSIONS)
    axes = np.eye(DIMENSIONS)
    put(
        index,
        [
            Held(said("garden garden violin", 1), unit(axes[0])),
            Held(said("garden", 2), unit(axes[0] + axes[1])),
            Held(said("violin", 3), unit(axes[1])),
        ],
    )
    query = IndexQuery("garden", unit(axes[0]), vector_weight=0.6, text_weight=0.4)
    found = {one.memory.id.int: one for one in index.search(query).results}
    rarity = np.log(1 + 1.5 / 2.5)
    by_words = [rarity * n * 2.2 / (n + 1.2 * (0.7 + 0.3 * long / (5 / 3))) for n, long in ((2, 3), (1, 1))]
    assert found[1].text_score == pytest.approx(by_words[0])
    assert found[2].text_score == pytest.approx(by_words[1])
    assert found[1].vector_score == pytest.approx(1.0)
    assert found[2].vector_score == pytest.approx(0.5**0.5)
    assert found[1].score == pytest.approx(0.6 + 0.4 * by_words[0] / max(by_words))
    assert found[2].score == pytest.approx(0.6 * 0.5**0.5 + 0.4 * by_words[1] / max(by_words))
    assert found[3].score == 0.0


def test_evidence_says_which_author_and_date_were_understood() -> None:
    index = UserIndex(Words(), DIMENSIONS)
    place = Provenance(conversation_id=CONVERSATIONS[0], item_seq=1, origin="Anna Berg")
    may = datetime(2023, 5, 17, tzinfo=UTC)
    message = said("garden", 1, source=MemorySource.MESSAGE, provenance=place, created_at=may)
    put(index, [Held(message), Held(said("garden", 2))])
    found = index.search(IndexQuery("What about Anna's garden in May 2023?")).results
    evidence = found[0].evidence
    assert evidence is not None
    assert (evidence.matched_author, evidence.matched_date) == ("Anna Berg", "2023-05")
    assert found[0].score == pytest.approx(0.3 + 0.4 + 0.3 + 0.6 * 0.3)
    assert found[1].evidence is None
    plain = index.search(IndexQuery("What about Anna's garden in May 2023?", context_evidence=False)).results
    assert [(one.score, one.evidence) for one in plain] == [(0.3, None), (0.3, None)]


def test_a_text_that_does_not_open_leaves_the_index_as_it_was() -> None:
    world = World(5)
    world.add([world.made() for _ in range(20)])
    known = next(iter(world.held.values())).memory

    def fails(at: int, room: Vector) -> bool:
        room[:] = 1.0
        if at == 2:
            raise SageError(Reason.DATA_LOSS, "A stored row does not open.")
        return True

    with pytest.raises(SageError):
        world.index.add([known, said("lost", 1), said("lost", 2)], fails)
    vector = world.vector()
    world.check(IndexQuery("garden lost", vector, top_k=100))
    world.add([world.made() for _ in range(40)])
    world.check(IndexQuery("garden lost", vector, top_k=100))


def test_what_an_index_takes_grows_and_shrinks_with_what_is_in_it() -> None:
    world = World(6)
    empty = world.index.bytes
    world.add([world.made() for _ in range(200)])
    full = world.index.bytes
    while len(world.held) > 5:
        world.remove()
    assert empty < world.index.compacted().bytes < full / 4
