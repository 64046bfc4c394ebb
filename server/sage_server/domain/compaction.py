"""Which part of a thread a compaction covers, and how its summary is kept short."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sage_server.domain.chunks import normalised
from sage_server.domain.conversations import Item, ItemKind
from sage_server.domain.summaries import Summary

FEWEST = 4
"""With fewer items without a summary there is nothing to compact."""
FARTHEST = 64
"""How far behind its call an output of a tool may lie and still be kept together with it."""
_CHARS_A_WORD = 12  # of languages that do not put spaces between words
_WORD_END = re.compile(r".*\S(?=\s)", re.DOTALL)


@dataclass(frozen=True)
class Limits:
    """What a compaction must leave alone, and how much it should take."""

    keep: int = 0
    """How many of the newest items stay out."""
    current_turn: UUID | None = None
    """The turn whose input, and all after it, stays out."""
    target: int | None = None
    """About how many tokens should go; None takes all that may."""
    most: int | None = None
    """Tokens that one compaction can take in."""


@dataclass(frozen=True)
class Stretch:
    """Neighbouring items that one summary covers, and the positions between which they lie."""

    items: Sequence[Item]
    from_seq: int
    to_seq: int
    complete: bool
    """Whether nothing is left that may be covered."""


def chosen_stretch(
    items: Sequence[Item], previous: Summary | None, limits: Limits, cost: Callable[[Item], int]
) -> Stretch | None:
    """The oldest of the items without a summary, which must follow `previous` in the order of the thread.

    It begins where the previous summary ends, so that the chain has no gap, and never parts a call of a tool
    from its output. If there is anything to cover it covers something, more than `most` if it must. None if
    there is nothing.
    """
    if len(items) < FEWEST:
        return None
    ends = _ends(items, _free(items, limits))
    if not ends:
        return None
    taken = _taken(items, ends, limits, cost)
    return Stretch(
        items=items[:taken],
        from_seq=items[0].seq if previous is None else previous.to_seq + 1,
        to_seq=items[taken - 1].seq,
        complete=taken == ends[-1],
    )


def shortened(text: str, words: int) -> str:
    """What a model answered as a summary is kept: without odd characters, and cut at the end of a word if it
    has more than twice the words that it should have."""
    text = normalised(text)
    all_words = list(re.finditer(r"\S+", text))
    if len(all_words) > 2 * words:
        text = text[: all_words[2 * words - 1].end()]
    longest = 2 * words * _CHARS_A_WORD
    if len(text) <= longest:
        return text
    whole = _WORD_END.match(text[: longest + 1])
    return text[:longest] if whole is None else whole.group()


def _free(items: Sequence[Item], limits: Limits) -> int:
    """How many of the oldest items may be covered."""
    free = max(0, len(items) - limits.keep)
    if limits.current_turn is not None:
        own = (at for at, item in enumerate(items) if item.turn_id == limits.current_turn)
        free = min(free, next(own, free))
    return free


def _ends(items: Sequence[Item], free: int) -> list[int]:
    """After how many items a stretch may end."""
    joined: set[int] = set()
    waiting: dict[str, list[int]] = {}
    for at, item in enumerate(items):
        call_id = "" if item.tool is None else item.tool.call_id
        if item.kind is ItemKind.TOOL_CALL:
            waiting.setdefault(call_id, []).append(at)
        elif item.kind is ItemKind.TOOL_OUTPUT and (calls := waiting.get(call_id)):
            call = calls.pop() if len(calls) > 1 else calls[0]
            if at - call <= FARTHEST:
                joined.update(range(call + 1, at + 1))
    return [end for end in range(1, free + 1) if end not in joined]


def _taken(items: Sequence[Item], ends: Sequence[int], limits: Limits, cost: Callable[[Item], int]) -> int:
    """The first of the ends at which enough is taken, or the last before it would be too much."""
    taken = tokens = 0
    for end in ends:
        tokens += sum(cost(item) for item in items[taken:end])
        if taken and limits.most is not None and tokens > limits.most:
            return taken
        taken = end
        if limits.target is not None and tokens >= limits.target:
            break
    return taken
