"""Choosing what to quote from what was found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from sage_server.adapters.offline_model.prompt_reading import CoreBlock, json_lines
from sage_server.adapters.offline_model.sentences import Kind, read_sentences, split_sentences

_MOST = 3
_LONGEST = 300
_WORD = re.compile(r"[^\W_]+")
_OWN_LINE = re.compile(r"(\d{4}-\d\d-\d\d), the user: (.+)")
_PERSONA = "persona"
_TELLS_NOTHING = frozenset({Kind.QUESTION, Kind.OVERVIEW, Kind.FORGET, Kind.ABOUT_MODEL, Kind.SMALL_TALK})
_STOP_WORDS = """
    a about all am an and any are as at be been but by can could did do does for from had has have he her his
    how i if in is it its know many me mine much my no not of on or our ours remember s said say says she
    should so some t tell than that the their them then there they this to told us was we were what when where
    which who whom whose why will with would you your
"""
_STOP = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True)
class Quote:
    """Words from memory. `place` is where they are from; `date` is empty if it is not known."""

    date: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{', '.join(part for part in (self.date, self.place) if part)}: “{self.text}”"


@dataclass(frozen=True)
class Found:
    """What there is to quote; `close` says whether it has words of the question."""

    quotes: Sequence[Quote]
    close: bool


def noted_line(today: str, text: str) -> str:
    """A line of core memory with a statement of the user's."""
    return f"{today}, the user: {text}" if today else f"The user: {text}"


def block_quotes(blocks: Iterable[CoreBlock]) -> list[Quote]:
    """Every line of core memory that is about the user, the newest of a block first."""
    quotes: list[Quote] = []
    for block in blocks:
        if block.label == _PERSONA:
            continue
        for line in reversed(block.value.splitlines()):
            own = _OWN_LINE.fullmatch(line.strip())
            date, text = own.groups() if own else ("", line.strip())
            if text:
                quotes.append(Quote(date, f"core memory ({block.label})", text))
    return quotes


def search_quotes(output: str) -> list[Quote]:
    """What a search found, as its tool told it: after a title one memory a line. What agents said is left
    out: it may be no more than an earlier quotation."""
    return [
        Quote(str(one.get("time", ""))[:10], _place(one), str(one.get("text", "")))
        for one in json_lines(output.split("\n")[1:])
        if (one.get("source"), one.get("trust")) != ("message", "agent")
    ]


def chosen(question: str, candidates: Iterable[Quote]) -> Found:
    """The sentences that have most words of the question; or else the first: searches know meaning too."""
    wanted = _stems(question)
    told: dict[str, tuple[int, Quote]] = {}
    for quote in candidates:
        score, text = _best_part(quote.text, wanted)
        if text:
            told.setdefault(" ".join(_WORD.findall(text.casefold())), (score, _cut(quote, text)))
    best = max((score for score, _ in told.values()), default=0)
    if not best:
        return Found([quote for _, quote in islice(told.values(), 1)], close=False)
    ranked = sorted(told.values(), key=lambda one: -one[0])
    return Found([quote for score, quote in ranked if 2 * score > best][:_MOST], close=True)


def _best_part(text: str, wanted: frozenset[str]) -> tuple[int, str]:
    """The sentence with most of these words, and how many. Questions and headings tell nothing."""
    parts = [part for part in split_sentences(text) if not part.startswith("#") and not _asks(part)]
    scored = [(len(wanted & _stems(part)), part) for part in parts]
    return max(scored, key=lambda one: one[0], default=(0, ""))


def _asks(part: str) -> bool:
    return all(one.kind in _TELLS_NOTHING for one in read_sentences(part))


def _cut(quote: Quote, text: str) -> Quote:
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()}…"
    return Quote(quote.date, quote.place, short)


def _place(one: dict[str, object]) -> str:
    match one.get("source"):
        case "document":
            return f"document “{one['title']}”" if one.get("title") else "a document"
        case "message":
            return "a message"
        case "summary":
            return "a summary"
        case _:
            return "archival memory"


def _stems(text: str) -> frozenset[str]:
    words = _WORD.findall(text.casefold())
    return frozenset(_stem(word) for word in words if word not in _STOP)


def _stem(word: str) -> str:
    for suffix in ("ing", "ed", "es", "s"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word.removesuffix(suffix)
            break
    return word.removesuffix("e") if len(word) > 3 else word
