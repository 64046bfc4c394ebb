"""Whether somebody asked for something in their own words."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_SHORTEST = 4
"""Shorter words are mostly grammar."""
_STEM = 5
"""Words that begin alike count as one: `garden`, `gardening`."""
_SHARE = 0.5


def is_grounded(wanted: str, message: str) -> bool:
    """Whether at least half of the words that carry something of what is wanted are in the message.

    A plain comparison of words, on purpose: whoever wrote a page cannot talk it round.
    """
    words = _stems(wanted)
    return bool(words) and len(words & _stems(message)) >= _SHARE * len(words)


def _stems(text: str) -> set[str]:
    return {word[:_STEM] for word in _WORD.findall(text.casefold()) if len(word) >= _SHORTEST}
