"""How texts become terms, and which dates a question names."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sage_server.engine.memory_index.dates import named_dates
from sage_server.engine.memory_index.words import Words, words_of


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Anna's garden", ["anna", "garden"]),
        ("Anna\u2019s garden", ["anna", "garden"]),
        ("cats and CATS, a cat", ["cat", "cat", "cat"]),
        ("running runs run", ["run", "run", "run"]),
        ("What did she do with it?", []),
        ("It's what's his", []),
        ("e-mail snake_case", ["e", "mail", "snake", "case"]),
        ("in 2023, 42 times", ["2023", "42", "time"]),
        ("", []),
        ("... !? \n", []),
        ("ÜBER naïve", ["über", "naïv"]),
        ("東京タワーに行く 我的猫", ["東", "京", "タワー", "に", "行", "く", "我", "的", "猫"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("한국어는 재미있다", ["한국어는", "재미있다"]),
    ],
)
def test_terms_are_stems_without_case_possessive_and_stop_words(text: str, terms: list[str]) -> None:
    assert Words().terms(text) == terms


@pytest.mark.parametrize("word", ["don't", "o'brien", "l'eau"])
def test_both_apostrophes_make_the_same_term_inside_a_word(word: str) -> None:
    curly = word.replace("'", "\u2019")
    assert Words().terms(word) == Words().terms(curly)
    assert len(Words().terms(word)) == 1
    assert words_of(curly) == [word]


def test_an_apostrophe_at_the_edge_is_no_part_of_a_word() -> None:
    assert words_of("'quoted' the boys' club") == ["quoted", "the", "boys", "club"]


def test_a_term_goes_with_the_first_word_that_it_stands_for() -> None:
    spelled = Words().spelled("Where are Anna\u2019s CATS, the cat and anna")
    assert spelled == {"anna": "Anna\u2019s", "cat": "CATS"}


@pytest.mark.parametrize(
    ("text", "other"),
    [("Käse", "Ka\u0308se"), ("finance", "\ufb01nance"), ("ABC 1", "\uff21\uff22\uff23 \uff11")],
)
def test_one_way_to_write_a_character_is_as_good_as_another(text: str, other: str) -> None:
    assert Words().terms(other) == Words().terms(text)
    assert Words().stream([other]) == Words().stream([text])


@given(st.text())
@example("\u0130stanbul")
@example("\u0391\u03a3.\u0391")
def test_the_distinct_terms_of_any_text_are_those_that_it_spells(text: str) -> None:
    words = Words()
    assert list(words.spelled(text)) == list(dict.fromkeys(words.terms(text)))


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("What happened in May?", ["--05"]),
        ("May I ask who may come?", []),
        ("They may march on", []),
        ("on May 3", ["--05"]),
        ("the 3rd of March", ["--03"]),
        ("3 March", ["--03"]),
        ("March 2023", ["2023-03"]),
        ("the March of time", []),
        ("May 2022 or June 2023", ["2022-05", "2023-05", "2022-06", "2023-06"]),
        ("2023-05-17", ["2023-05"]),
        ("since 2023-05 and in 2021", ["2023-05", "2021"]),
        ("2023-13-01", ["2023"]),
        ("in 2023", ["2023"]),
        ("year 1800 or 20231", []),
        ("last december", ["--12"]),
        ("Sept or SEP", ["--09"]),
        ("Augustus", []),
        ("", []),
    ],
)
def test_dates_are_read_as_a_question_writes_them(text: str, dates: list[str]) -> None:
    assert [str(date) for date in named_dates(text)] == dates


@pytest.mark.parametrize(
    ("count", "dates"),
    [(12, [f"2023-{month:02}" for month in range(1, 13)]), (13, [])],
    ids=["a year", "more"],
)
def test_more_dates_than_a_year_has_months_are_none_in_particular(count: int, dates: list[str]) -> None:
    text = " ".join(f"{2023 + month // 12}-{month % 12 + 1:02}" for month in range(count))
    assert [str(date) for date in named_dates(text)] == dates


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("May " * 500_000, []),
        ("in May " * 300_000, ["--05"]),
        ("May" + " " * 2_000_000, []),
        ("1900 " * 400_000, ["1900"]),
    ],
    ids=["months", "months of dates", "space", "years"],
)
def test_no_text_takes_more_than_linear_time(text: str, dates: list[str]) -> None:
    """In quadratic time this would run into the suite's time limit."""
    assert [str(date) for date in named_dates(text)] == dates


def test_dates_that_are_named_again_and_again_take_no_memory() -> None:
    tracemalloc.start()
    try:
        assert [str(date) for date in named_dates("jan 1999 " * 1_000)] == ["1999-01"]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
