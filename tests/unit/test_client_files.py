from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sage_client.files import PIECE_BYTES, WholeFile, pieces

LINES = st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=20)


@given(
    lines=LINES,
    last=st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")),
    limit=st.integers(1, 40),
)
def test_pieces_lose_nothing_and_are_cut_between_lines(lines: list[bytes], last: bytes, limit: int) -> None:
    source = b"".join([*lines, last])
    cut = list(pieces(source, limit))

    assert b"".join(piece.jsonl for piece in cut) == source
    line = 1
    for piece in cut:
        assert len(piece.jsonl) <= limit or piece.line_count == 1
        assert piece.first_line == line
        assert piece.jsonl.endswith(b"\n") or piece is cut[-1]
        line += piece.line_count
    assert line - 1 == len(lines) + bool(last)


def test_pieces_are_as_large_as_the_limit_allows() -> None:
    assert [piece.jsonl for piece in pieces(b"aa\nbb\ncc\n", 6)] == [b"aa\nbb\n", b"cc\n"]
    assert [piece.jsonl for piece in pieces(b"aa\nbb\ncc\n", 5)] == [b"aa\n", b"bb\n", b"cc\n"]


def test_a_file_is_cut_like_bytes(tmp_path: Path) -> None:
    source = (b"x" * 1_000_000 + b"\n") * 9
    path = tmp_path / "export.jsonl"
    path.write_bytes(source)

    cut = list(pieces(path))

    assert cut == list(pieces(source)) == list(pieces(str(path)))
    assert [piece.line_count for piece in cut] == [4, 4, 1]
    assert all(len(piece.jsonl) <= PIECE_BYTES for piece in cut)


def test_an_empty_source_has_no_piece() -> None:
    assert list(pieces(b"")) == []


def test_a_file_appears_when_it_is_complete_and_only_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    with WholeFile(path) as file:
        file.write(b"a\n")
        assert not path.exists()
        file.write(b"b\n")

    assert path.read_bytes() == b"a\nb\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_an_earlier_export_left_behind_does_not_open_the_next_one_to_others(tmp_path: Path) -> None:
    path, left = tmp_path / "export.jsonl", tmp_path / "export.jsonl.part"
    left.write_bytes(b"half")
    left.chmod(0o644)
    with WholeFile(path) as file:
        file.write(b"new")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert left.read_bytes() == b"half"


def test_a_failure_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_bytes(b"old")

    def fail() -> None:
        with WholeFile(path) as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
