"""Normal form, chunks, and what bytes are."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sage.v1 import memory_pb2
from sage_server.domain.chunks import Chunk, chunked, distinct, normalised
from sage_server.domain.documents import MEDIA_TYPES, DocumentStatus, detect
from sage_server.domain.errors import Reason, SageError

# Words, long words, sentence ends of several scripts, all kinds of space.
SPACES = (" ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u2028")
WORDS = ("a", "word", "Wörter", "x" * 50, ". ", "! ", '." ', "\u3002", "\U0001f333")
MARKS = ("e\u0301", "\u0301", "\u0316", "\0", "\x1b", "\ufeff", "\ud800")
PIECES = st.sampled_from((*SPACES, *WORDS, *MARKS))
TEXTS = st.one_of(st.lists(PIECES, max_size=400).map("".join), st.text(max_size=400))
SIZES = st.tuples(st.integers(1, 80), st.integers(0, 79)).filter(lambda pair: pair[1] < pair[0])


@given(TEXTS, SIZES)
def test_chunks_are_stretches_of_the_text_without_space_at_the_ends(
    text: str, sizes: tuple[int, int]
) -> None:
    size, overlap = sizes
    chunks = chunked(text, size, overlap)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text == chunk.text.strip()
        assert 0 < len(chunk.text) <= size


@given(TEXTS, SIZES)
def test_every_character_but_space_is_in_a_chunk(text: str, sizes: tuple[int, int]) -> None:
    covered: set[int] = set()
    for chunk in chunked(text, *sizes):
        covered.update(range(chunk.start, chunk.end))
    assert [place for place, char in enumerate(text) if not char.isspace() and place not in covered] == []


@given(TEXTS, SIZES)
def test_every_chunk_begins_and_ends_after_the_one_before(text: str, sizes: tuple[int, int]) -> None:
    size, overlap = sizes
    chunks = chunked(text, size, overlap)
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
        assert before.end - after.start <= overlap


@given(st.lists(st.text("abc", min_size=1, max_size=20), max_size=300))
def test_words_that_fit_are_never_cut(words: list[str]) -> None:
    text = " ".join(words)
    for chunk in chunked(text, 60, 10):
        assert chunk.start == 0 or text[chunk.start - 1] == " "
        assert chunk.end == len(text) or text[chunk.end] == " "


def test_a_chunk_ends_with_a_sentence_if_one_ends_in_its_second_half() -> None:
    sentences = [f"This is sentence number {number} of the text." for number in range(40)]
    chunks = chunked(" ".join(sentences), 200, 50)
    assert all(chunk.text.endswith("of the text.") for chunk in chunks)
    assert all(150 < len(chunk.text) <= 200 for chunk in chunks[:-1])


def test_neighbours_share_about_as_much_as_they_should() -> None:
    text = " ".join(f"w{number}" for number in range(5000))
    chunks = chunked(text)
    shared = [before.end - after.start for before, after in pairwise(chunks)]
    assert len(shared) > 40
    assert all(80 <= overlap <= 96 for overlap in shared)
    assert all(600 <= len(chunk.text) <= 640 for chunk in chunks[:-1])


def test_a_word_without_end_is_cut_where_the_chunk_is_full() -> None:
    chunks = chunked("x" * 2000)
    assert [(chunk.start, chunk.end) for chunk in chunks] == [
        (0, 640),
        (544, 1184),
        (1088, 1728),
        (1632, 2000),
    ]


def test_a_long_gap_has_no_chunk_of_its_own() -> None:
    chunks = chunked("before" + " " * 10_000 + "after")
    assert [chunk.text for chunk in chunks] == ["before", "after"]


@pytest.mark.parametrize("text", ["", " ", "\n\t \u00a0\u2029"])
def test_text_without_words_has_no_chunks(text: str) -> None:
    assert chunked(text) == []


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (10, 10), (10, 11), (10, -1)])
def test_sizes_that_make_no_progress_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        chunked("text", size, overlap)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 3_000_000,
        " " * 3_000_000,
        "a" + "\u0300\u0316" * 1_500_000,
        ".'" * 1_500_000,
        "\n \n" * 1_000_000,
    ],
    ids=["one word", "space", "marks", "sentence ends", "lines"],
)
def test_no_text_takes_more_than_linear_time(text: str) -> None:
    """In quadratic time this would run into the suite's time limit."""
    assert len(chunked(text)) <= len(text) // 500
    assert len(normalised(text)) <= len(text)


@given(TEXTS)
def test_the_normal_form_is_what_it_says(text: str) -> None:
    normal = normalised(text)
    assert normal == unicodedata.normalize("NFC", normal)
    assert normal == normal.strip()
    assert [char for char in normal if unicodedata.category(char) in {"Cc", "Cs"} and char != "\n"] == []
    assert {char for char in normal if char.isspace()} <= {" ", "\n"}
    assert [run for run in ("  ", " \n", "\n ", "\n\n\n") if run in normal] == []


@given(TEXTS)
def test_the_normal_form_of_the_normal_form_is_itself(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


@given(st.lists(st.text("abcäöü.,;", min_size=1), max_size=30))
def test_the_normal_form_keeps_the_words(words: list[str]) -> None:
    assert normalised(" \t\r\n ".join(words)).split("\n") == (words or [""])


def test_the_normal_form_of_a_text() -> None:
    assert normalised("\ufeff\tCafe\u0301  au \u00a0lait\r\n \r\n\r\n\r\nso\xadft\x07 end\r") == (
        "Caf\u00e9 au lait\n\nsoft end"
    )


def test_marks_beyond_reason_are_left_out() -> None:
    assert len(normalised("q" + "\u0316" * 5000 + "!")) == 32
    assert normalised("\u2500" * 5000) == "\u2500" * 5000


def test_a_repeat_extends_the_first_of_its_kind() -> None:
    chunks = [
        Chunk(0, 0, 5, "aaaaa"),
        Chunk(1, 6, 11, "bbbbb"),
        Chunk(2, 12, 17, "aaaaa"),
        Chunk(3, 18, 19, "c"),
    ]
    assert distinct(chunks) == [Chunk(0, 0, 17, "aaaaa"), Chunk(1, 6, 11, "bbbbb"), Chunk(2, 18, 19, "c")]


@given(TEXTS, SIZES)
def test_distinct_chunks_are_all_texts_once(text: str, sizes: tuple[int, int]) -> None:
    chunks = chunked(text, *sizes)
    kept = distinct(chunks)
    assert [chunk.text for chunk in kept] == list(dict.fromkeys(chunk.text for chunk in chunks))
    assert [chunk.index for chunk in kept] == list(range(len(kept)))
    for chunk in kept:
        places = [(other.start, other.end) for other in chunks if other.text == chunk.text]
        assert (chunk.start, chunk.end) == (min(places)[0], max(places)[1])


@pytest.mark.parametrize(
    ("content", "declared", "found"),
    [
        (b"some words", "", "text/plain"),
        (b"# Title\n\nwords", "", "text/plain"),
        (b"# Title\n\nwords", "text/markdown", "text/markdown"),
        (b"words", "text/plain; charset=utf-8", "text/plain"),
        (b"words", "application/json", "text/plain"),
        (b"%PDF-1.7\n", "", "application/pdf"),
        (b"\n\n%PDF-1.7\n", "application/pdf", "application/pdf"),
        (b"junk of a gateway\n%PDF-1.4\n1 0 obj\nendobj\n", "", "application/pdf"),
        (b"A PDF begins with %PDF-1.7 and a line end.", "", "text/plain"),
        (b"<!DOCTYPE html><p>x", "", "text/html"),
        (b"\xef\xbb\xbf  <HTML lang=en>", "", "text/html"),
        (b"<!-- note -->\n<?xml version='1.0'?><html>", "", "text/html"),
        ("<html><p>x".encode("utf-16"), "", "text/html"),
        (b"<p>A fragment</p>\n", "", "text/html"),
        (b"<p align=center>logo</p>\n\n# Readme\n\nwords", "", "text/plain"),
        (b"a < b and b > c", "", "text/plain"),
        (b"just words", "text/html", "text/html"),
        (b"<html>as source</html>", "text/plain", "text/plain"),
        ("words".encode("utf-16"), "", "text/plain"),
        (b"the ftyp box of a GIF89a", "", "text/plain"),
        (b"GIF89a is a format of images.", "", "text/plain"),
        (b"\x1b[1mbold\x1b[0m words", "", "text/plain"),
    ],
)
def test_the_media_type_is_found_in_the_content(content: bytes, declared: str, found: str) -> None:
    assert detect(content, declared) == found


@given(
    st.one_of(
        st.binary(max_size=2000),
        st.tuples(st.sampled_from([b"%PDF-", b"<", b"PK\3\4"]), st.binary()).map(b"".join),
    ),
    st.sampled_from(["", "text/anything", *sorted(MEDIA_TYPES)]),
)
def test_whatever_the_bytes_are_they_are_a_media_type_or_refused(content: bytes, declared: str) -> None:
    found: str | Reason
    try:
        found = detect(content, declared)
    except SageError as error:
        found = error.reason
    assert found in {*MEDIA_TYPES, Reason.DOCUMENT_TYPE_UNSUPPORTED, Reason.DOCUMENT_UNREADABLE}


def test_the_statuses_of_a_document_are_those_of_the_contract() -> None:
    numbers = {f"DOCUMENT_STATUS_{status.name}": status.value for status in DocumentStatus}
    assert {"DOCUMENT_STATUS_UNSPECIFIED": 0, **numbers} == dict(memory_pb2.DocumentStatus.items())
