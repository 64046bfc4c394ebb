"""Which part of a thread a compaction covers, and what is kept of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sage_server.domain.compaction import FARTHEST, FEWEST, Limits, Stretch, chosen_stretch, shortened
from sage_server.domain.conversations import Item, ItemKind, ToolInvocation
from sage_server.domain.summaries import Summary

NOW = datetime(2024, 1, 1, tzinfo=UTC)
THREAD = UUID(int=1)
TURN = UUID(int=2)
KINDS = {"u": ItemKind.USER, "a": ItemKind.ASSISTANT, "c": ItemKind.TOOL_CALL, "o": ItemKind.TOOL_OUTPUT}


def item(seq: int, what: str = "u", tokens: int = 10, turn: UUID | None = None) -> Item:
    """`what` is a kind, and for tools the id of the call: `c1` is answered by `o1`."""
    kind = KINDS[what[0]]
    tool = (
        ToolInvocation(what[1:], "tool", "{}") if kind in (ItemKind.TOOL_CALL, ItemKind.TOOL_OUTPUT) else None
    )
    return Item(UUID(int=seq), THREAD, seq, kind, "text", "", tokens, NOW, tool=tool, turn_id=turn)


def thread(*whats: str, first: int = 1) -> list[Item]:
    return [item(seq, what) for seq, what in enumerate(whats, first)]


def summary(to_seq: int) -> Summary:
    return Summary(UUID(int=9), THREAD, 1, to_seq, to_seq, "before", 2, 1, NOW)


def choose(items: Sequence[Item], previous: Summary | None = None, **limits: object) -> Stretch | None:
    return chosen_stretch(items, previous, Limits(**limits), lambda one: one.token_count)  # type: ignore[arg-type]


def covered(items: Sequence[Item], previous: Summary | None = None, **limits: object) -> int:
    """How many items are covered."""
    stretch = choose(items, previous, **limits)
    return 0 if stretch is None else len(stretch.items)


def test_all_but_the_newest_is_covered() -> None:
    stretch = choose(thread(*"uauaua"), keep=2)
    assert stretch is not None
    assert [one.seq for one in stretch.items] == [1, 2, 3, 4]
    assert (stretch.from_seq, stretch.to_seq, stretch.complete) == (1, 4, True)
    assert covered(thread(*"uauaua"), keep=6) == covered(thread(*"uauaua"), keep=7) == 0


def test_fewer_than_four_are_left_alone() -> None:
    assert [covered(thread(*"u" * count)) for count in range(6)] == [0, 0, 0, 0, 4, 5]


def test_a_stretch_continues_where_the_previous_summary_ends() -> None:
    """Although the items that follow it are gone."""
    stretch = choose(thread(*"uaua", first=8), summary(5))
    assert stretch is not None
    assert (stretch.from_seq, stretch.to_seq) == (6, 11)
    first = choose(thread(*"uaua", first=8))
    assert first is not None
    assert first.from_seq == 8


def test_no_more_goes_than_has_to() -> None:
    items = thread(*"uauaua")
    assert [covered(items, target=tokens) for tokens in (1, 10, 11, 30, 1000)] == [1, 1, 2, 3, 6]
    stretch = choose(items, target=11)
    assert stretch is not None
    assert not stretch.complete


def test_no_more_is_taken_than_can_be_read_but_something_always_is() -> None:
    items = thread(*"uauaua")
    assert [covered(items, most=tokens) for tokens in (0, 5, 10, 29, 30, 1000)] == [1, 1, 1, 2, 3, 6]


def test_the_current_turn_and_all_after_it_is_left_alone() -> None:
    items = [*thread(*"uaua"), item(5, turn=TURN), item(6), item(7, "a", turn=TURN)]
    assert covered(items, current_turn=TURN) == 4
    assert covered(items, current_turn=TURN, keep=5) == 2
    assert covered(items[4:], current_turn=TURN) == 0
    assert covered(items, current_turn=UUID(int=3)) == 7


@pytest.mark.parametrize(
    ("whats", "keep", "expected"),
    [
        ("u c1 o1 a", 1, 3),
        ("u c1 o1 a", 2, 1),
        ("c1 o1 u a", 3, 0),
        ("u c1 c2 o1 o2 a", 2, 1),
        ("u c1 c2 o2 o1 a", 2, 1),
        ("u c1 u o1 a", 2, 1),
        ("u c c o o a", 2, 1),
        ("u c1 a u c1 o1 a", 3, 4),
        ("u c1 o1 o1 a", 2, 1),
        ("u c1 a u", 2, 2),
        ("u o1 a u", 2, 2),
    ],
)
def test_a_call_stays_with_its_output(whats: str, keep: int, expected: int) -> None:
    assert covered(thread(*whats.split()), keep=keep) == expected


def test_an_output_that_comes_too_late_holds_nothing_up() -> None:
    late = thread("c1", *"u" * FARTHEST, "o1")
    assert covered(late, keep=1) == FARTHEST + 1
    assert covered(thread("c1", *"u" * (FARTHEST - 1), "o1"), keep=1) == 0


WHATS = st.lists(st.sampled_from(["u", "a", "c1", "c2", "c", "o1", "o2", "o"]), max_size=30)
MAYBE = st.none() | st.integers(0, 200)


LIMITS = st.builds(Limits, st.integers(0, 40), st.just(TURN), MAYBE, MAYBE)


@given(WHATS, LIMITS, st.integers(0, 5), st.none() | st.integers(0, 29))
def test_a_stretch_is_the_oldest_part_and_parts_nothing(
    whats: list[str], limits: Limits, before: int, own: int | None
) -> None:
    items = [
        item(seq, what, turn=TURN if seq - before - 1 == own else None)
        for seq, what in enumerate(whats, before + 1)
    ]
    previous = summary(before) if before else None
    stretch = chosen_stretch(items, previous, limits, lambda one: one.token_count)
    free = min(len(items) - limits.keep, len(items) if own is None else own)
    if stretch is None:
        joined = "c" in "".join(whats) and "o" in "".join(whats)
        assert len(items) < FEWEST or free <= 0 or joined
        return
    count = len(stretch.items)
    assert 1 <= count <= free
    assert list(stretch.items) == items[:count]
    assert stretch.from_seq == before + 1
    assert stretch.to_seq == items[count - 1].seq
    for at, what in enumerate(whats[:count]):
        answers = [later for later in range(at + 1, len(whats)) if whats[later] == "o" + what[1:]]
        again = [later for later in range(at + 1, len(whats)) if whats[later] == what]
        if what[0] == "c" and answers and (not again or answers[0] < again[0]):
            assert answers[0] < count
    if not stretch.complete:
        assert limits.target is not None or limits.most is not None


def test_a_summary_that_is_too_long_is_cut_at_a_word() -> None:
    words = [f"word{n}" for n in range(50)]
    assert shortened(" ".join(words[:20]), 10) == " ".join(words[:20])
    assert shortened(" ".join(words), 10) == " ".join(words[:20])
    assert shortened("long" * 100 + " end", 5) == ("long" * 100)[:120]
    assert shortened("日本語" * 100, 5) == ("日本語" * 100)[:120]
    assert shortened("short " + "x" * 200, 5) == "short"


def test_an_answer_is_kept_without_odd_characters() -> None:
    assert shortened("  \n one\0\ud800 two\r\n\r\n\r\n\r\nthree\t ", 10) == "one two\n\nthree"
    assert shortened(" \n\t ", 10) == ""


@given(
    st.text(st.characters(blacklist_categories=["Cs"]) | st.sampled_from([" ", "\n", "a"])), st.integers(1, 5)
)
def test_whatever_a_model_says_becomes_a_short_text_that_can_be_stored(text: str, words: int) -> None:
    kept = shortened(text, words)
    kept.encode()
    assert "\0" not in kept
    assert len(kept.split()) <= 2 * words
    assert len(kept) <= 24 * words
    assert kept == kept.strip()
