"""Dates that a question names."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan",
            "february feb",
            "march",
            "april apr",
            "may",
            "june",
            "july",
            "august aug",
            "september sept sep",
            "october oct",
            "november nov",
            "december dec",
        ),
        1,
    )
    for name in names.split()
}
_ISO = re.compile(r"\b((?:19|20)\d\d)-(0[1-9]|1[0-2])(?:-\d\d)?\b")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_NAME = re.compile(r"\b(" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b", re.IGNORECASE)
# Months that are words of their own count only as a date writes them: `in May`, `May 3`, `3 March`.
_AMBIGUOUS = frozenset({"may", "march"})
_BEFORE = re.compile(
    r"(?:\b(?:in|on|of|since|until|till|by|during|before|after|last|next|this|early|late|mid)"
    r"|\d(?:st|nd|rd|th)?)[\s,-]+$",
    re.IGNORECASE,
)
_AFTER = re.compile(r"[\s,]*(?:\d{1,2}(?:st|nd|rd|th)?\b|(?:19|20)\d\d\b)")
_NEAR = 32  # characters around a month that may make it one: no date is written with wider gaps
_MOST = 12


@dataclass(frozen=True)
class NamedDate:
    """A year, a month of any year, or a month of one year. A day is understood as its month: what happens
    on a day is spoken of in the days around it."""

    year: int | None
    month: int | None

    def __str__(self) -> str:
        if self.month is None:
            return f"{self.year:04}"
        return f"--{self.month:02}" if self.year is None else f"{self.year:04}-{self.month:02}"


def named_dates(text: str) -> list[NamedDate]:
    """The dates that a text names. Months take the years that the text names, if it names any.

    More dates than a year has months are none in particular: they would speak for nearly everything, and
    each is compared with every message.
    """
    found = [NamedDate(int(year), int(month)) for year, month in _ISO.findall(text)]
    rest = _ISO.sub(" ", text)
    years: list[int | None] = [int(year) for year in dict.fromkeys(_YEAR.findall(rest))]
    months = dict.fromkeys(
        _MONTHS[match.group().lower()] for match in _NAME.finditer(rest) if _is_month(match)
    )
    if months:
        found += [NamedDate(year, month) for month in months for year in years or [None]]
    else:
        found += [NamedDate(year, None) for year in years]
    distinct = list(dict.fromkeys(found))
    return distinct if len(distinct) <= _MOST else []


def _is_month(match: re.Match[str]) -> bool:
    if match.group().lower() not in _AMBIGUOUS:
        return True
    if not match.group()[0].isupper():
        return False
    text, start, end = match.string, match.start(), match.end()
    before = _BEFORE.search(text, max(0, start - _NEAR), start)
    return bool(before or _AFTER.match(text, end, end + _NEAR))
