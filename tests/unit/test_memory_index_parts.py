"""The parts of an index: vectors in segments, words in postings, authors by name, and who may be inside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sage_server.engine.memory_index import vectors
from sage_server.engine.memory_index.authors import NOBODY, Authors
from sage_server.engine.memory_index.gate import Gate
from sage_server.engine.memory_index.keywords import Keywords
from sage_server.engine.memory_index.vectors import Vectors
from sage_server.engine.memory_index.words import Words

Matrix = npt.NDArray[np.float32]
TEXTS = st.lists(
    st.lists(st.sampled_from(("ant", "bee", "cat", "dog", "the", "émigré", "東京")), max_size=6).map(" ".join)
)


def rows_of(count: int, dimensions: int) -> Matrix:
    return np.random.default_rng(count).normal(size=(count, dimensions)).astype(np.float32)


def filled(rows: Matrix, sizes: Sequence[int]) -> Vectors:
    """The rows, added in pieces of these sizes."""
    found = Vectors(rows.shape[1])
    done = 0
    for size in sizes:
        for room in found.extend(size):
            room[:] = rows[done : done + len(room)]
            done += len(room)
    assert done == len(rows) == len(found)
    return found


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows of five dimensions a segment."""
    monkeypatch.setattr(vectors, "_SEGMENT_BYTES", 7 * 5 * 4)


@pytest.mark.parametrize(
    "sizes", [[40], [1] * 40, [3, 37], [6, 1, 1, 32], [7, 7, 26], [16, 8, 16], [0, 39, 0, 1], [13, 1, 26]]
)
@pytest.mark.parametrize("rows_a_segment", [1, 7, 1000])
def test_vectors_keep_every_row_however_they_come(
    sizes: list[int], rows_a_segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "_SEGMENT_BYTES", rows_a_segment * 5 * 4)
    rows = rows_of(40, 5)
    query = rows_of(1, 5)[0]
    found = filled(rows, sizes)
    np.testing.assert_allclose(found.scores(query), rows @ query, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small_segments")
def test_scores_of_some_rows_are_those_of_all() -> None:
    rows, query = rows_of(40, 5), rows_of(1, 5)[0]
    found = filled(rows, [11, 29])
    everything = found.scores(query)
    for some in ([], [0], [39], [6, 7], [0, 13, 14, 27, 39], range(40), range(7, 14)):
        chosen = np.array(list(some), np.int64)
        np.testing.assert_allclose(found.scores_of(query, chosen), everything[chosen], rtol=1e-6)


@pytest.mark.usefixtures("small_segments")
def test_a_cleared_row_scores_nothing_and_its_neighbours_stay() -> None:
    rows, query = rows_of(20, 5), rows_of(1, 5)[0]
    found = filled(rows, [20])
    for row in (0, 7, 19):
        found.clear(row)
        rows[row] = 0
    np.testing.assert_allclose(found.scores(query), rows @ query, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small_segments")
def test_only_some_rows_are_numbered_anew() -> None:
    rows, query = rows_of(40, 5), rows_of(1, 5)[0]
    chosen = np.array([0, 1, 8, 20, 21, 22, 23, 24, 25, 39])
    kept = filled(rows, [40]).only(chosen)
    assert len(kept) == len(chosen)
    np.testing.assert_allclose(kept.scores(query), rows[chosen] @ query, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("left", [0, 3, 7, 9, 14, 20])
def test_rows_that_are_taken_back_leave_room_of_zeros(left: int) -> None:
    rows, query = rows_of(20, 5), rows_of(1, 5)[0]
    found = filled(rows, [20])
    found.cut(left)
    assert len(found) == left
    added = [room for room in found.extend(16) if np.any(room)]
    assert added == []
    expected = np.concatenate((rows[:left] @ query, np.zeros(16)))
    np.testing.assert_allclose(found.scores(query), expected, rtol=1e-5, atol=1e-6)


def state(keywords: Keywords, terms: Sequence[str]) -> tuple[list[float], list[float]]:
    return keywords.scores(terms).tolist(), [keywords.rarity(term) for term in terms]


TERMS = Words().terms("ant bee cat dog émigré 東京 nobody")


@given(TEXTS)
def test_words_added_one_by_one_count_as_those_added_together(texts: list[str]) -> None:
    texts = (texts * 40)[: max(len(texts), 33)] if texts else [""] * 33
    words = Words()
    together, single = Keywords(words), Keywords(words)
    together.add(texts)
    for text in texts:
        single.add([text])
    assert state(together, TERMS) == state(single, TERMS)
    assert together.bytes > 0


@given(TEXTS, TEXTS)
def test_removed_words_leave_the_statistics_as_they_were(texts: list[str], others: list[str]) -> None:
    words = Words()
    keywords, expected = Keywords(words), Keywords(words)
    keywords.add([*texts, *others])
    expected.add(texts)
    for text in others:
        keywords.remove(text)
    scores, rarities = state(keywords, TERMS)
    wanted, wanted_rarities = state(expected, TERMS)
    assert rarities == wanted_rarities
    assert scores[: len(texts)] == wanted
    compact = keywords.only(np.arange(len(texts)))
    assert state(compact, TERMS) == (wanted, wanted_rarities)


def test_a_word_weighs_what_its_rarity_says_and_a_stop_word_nothing() -> None:
    keywords = Keywords(Words())
    keywords.add(["cats", "the dog", "dogs"])
    assert keywords.weight("the") == 0.0
    assert keywords.weight("Cat") > keywords.weight("DOG") > 0.0
    assert keywords.weight("unheard") > keywords.weight("cat")


async def test_a_writer_waits_for_readers_and_keeps_new_ones_out() -> None:
    gate = Gate()
    events: list[str] = []
    leave = asyncio.Event()

    async def read(name: str, until: asyncio.Event | None) -> None:
        async with gate.reading():
            events.append(f"{name} in")
            if until is not None:
                await until.wait()
            events.append(f"{name} out")

    async def write() -> None:
        async with gate.writing():
            events.append("writer in")
            await asyncio.sleep(0)
            events.append("writer out")

    first, second = asyncio.create_task(read("first", leave)), asyncio.create_task(read("second", leave))
    await _settled()
    assert events == ["first in", "second in"]
    writer = asyncio.create_task(write())
    await _settled()
    late = asyncio.create_task(read("late", None))
    await _settled()
    assert events == ["first in", "second in"]
    leave.set()
    await asyncio.gather(first, second, writer, late)
    assert events[4:] == ["writer in", "writer out", "late in", "late out"]


async def test_a_writer_who_gives_up_lets_readers_in_again() -> None:
    gate = Gate()
    async with gate.reading():
        writer = asyncio.create_task(gate.writing().__aenter__())
        await _settled()
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        async with gate.reading():
            pass
    async with gate.writing():
        pass


async def _settled() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_first_name_counts_while_nobody_else_who_is_there_has_it() -> None:
    authors = Authors()
    cole, stone = authors.spoke("Ben Cole"), authors.spoke("Ben Stone")
    assert authors.named("What did Ben say?") == (NOBODY, "")
    assert authors.named("What did Ben Cole say?") == (cole, "Ben Cole")
    authors.withdrew(stone)
    assert authors.named("What did Ben's dog do?") == (cole, "Ben Cole")
    assert authors.named("What did Ben Stone say?") == (cole, "Ben Cole")
    assert authors.spoke("Ben Stone") == stone
    assert authors.named("What did Ben say?") == (NOBODY, "")


def test_naming_one_of_many_authors_takes_no_more_than_linear_time() -> None:
    """In quadratic time this would run into the suite's time limit."""
    authors = Authors()
    numbers = [authors.spoke(f"user{number} Smith") for number in range(150_000)]
    assert authors.named("What did Smith say?") == (NOBODY, "")
    assert authors.named("What did user777 say?") == (numbers[777], "user777 Smith")
