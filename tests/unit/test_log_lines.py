"""Standard error that cannot be written to."""

from __future__ import annotations

import io
import sys

import pytest

from sage_server.adapters.telemetry import LineWriter


class Closed(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_a_closed_stream_loses_lines_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LineWriter()
    monkeypatch.setattr(sys, "stderr", Closed())
    lines.write("lost")
    lines.flush()
    read = io.StringIO()
    monkeypatch.setattr(sys, "stderr", read)
    lines.write("one")
    lines.write("two")
    lines.flush()
    assert read.getvalue() == "one\ntwo\n"
