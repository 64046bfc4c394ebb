"""What the embedders share about texts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

WORD = re.compile(r"\w+")


class EmbedderError(Exception):
    """A model cannot be loaded. The message is for the person who configured it."""


def is_blank(text: str) -> bool:
    """Whether there is nothing to embed: no model says anything useful of spaces."""
    return not text or text.isspace()


def parts(sizes: Sequence[int], most: int, total: int) -> Iterator[slice]:
    """Consecutive stretches of at most `most` entries whose sizes add up to at most `total`.

    An entry that is larger than that by itself gets a stretch of its own.
    """
    start = held = 0
    for position, size in enumerate(sizes):
        if position > start and (position - start == most or held + size > total):
            yield slice(start, position)
            start, held = position, 0
        held += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def load_tokenizer(file: Path) -> Tokenizer:
    """A tokenizer that neither pads nor cuts, runs on the calling thread, and keeps no text."""
    # The library reads this at its first batch, and would otherwise take every core for each.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # Its cache of texts that it has seen would outlive the erasure of whoever wrote them.
    resize_cache = getattr(tokenizer.model, "_resize_cache", None)
    if resize_cache is not None:  # not every kind has one
        resize_cache(0)
    return tokenizer
