"""The child process that parses what may be hostile: `python -m sage_server.adapters.documents.child`.

The content comes on stdin, the answer goes to stdout: one line of JSON, then the text in UTF-8. A process
that ends without a whole answer says that the content is damaged. What it prints otherwise goes nowhere.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from collections.abc import Callable
from typing import TypeAlias

from sage_server.adapters.documents.extraction import Extracted, Limits, Refused, extract_text
from sage_server.domain.documents import HTML, PDF

if sys.platform != "win32":
    import resource

Extract: TypeAlias = Callable[[bytes, Limits], Extracted]


def main() -> None:
    """Read the content, write the answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--media-type", required=True)
    for name in ("chars", "pages", "memory", "seconds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asked = parser.parse_args()
    _confine(asked.memory, asked.seconds)
    # pypdf quotes the file in its warnings.
    logging.disable(logging.CRITICAL)
    content = sys.stdin.buffer.read()
    header: dict[str, str | int]
    try:
        answer = _extract(asked.media_type)(content, Limits(asked.chars, asked.pages))
    except Refused as refused:
        header, body = {"refusal": refused.refusal.value}, b""
    else:
        body = answer.text.encode()
        header = {"title": answer.title, "bytes": len(body)}
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n" + body)


def _confine(memory: int, seconds: int) -> None:
    """Give up what parsing does not need: memory and time beyond the limits, files, core dumps."""
    if sys.platform == "win32":
        return
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        # Not every system knows every limit, and a stricter one may hold already.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))


def _extract(media_type: str) -> Extract:
    """The parser of the media type. Only that one is imported, since a start costs every document."""
    if media_type == PDF:
        from sage_server.adapters.documents.pdf_text import extract_pdf  # noqa: PLC0415

        return extract_pdf
    if media_type == HTML:
        from sage_server.adapters.documents.html_text import extract_html  # noqa: PLC0415

        return extract_html
    return extract_text


if __name__ == "__main__":
    main()
