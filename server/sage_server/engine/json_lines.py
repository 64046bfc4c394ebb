"""Text that somebody wrote, as data for a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

_LINE_ENDS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}


def json_line(value: Mapping[str, object] | Sequence[str]) -> str:
    """JSON on one line, whatever is in it: no text can look like the beginning of another."""
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)
