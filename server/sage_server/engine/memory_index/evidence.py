"""What the surroundings of a message say for it: its neighbours, its author, its date, its session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sage_server.domain.memories import Memory, MemorySource
from sage_server.domain.search import Evidence
from sage_server.engine.memory_index.attributes import Attributes
from sage_server.engine.memory_index.dates import NamedDate, named_dates
from sage_server.engine.memory_index.ranking import Scores
from sage_server.engine.memory_index.vectors import Rows

NEIGHBOURS = 0.2
AUTHOR = 0.4
DATE = 0.3
SESSION = 0.6


@dataclass(frozen=True)
class Surroundings:
    """Evidence for every candidate."""

    messages: npt.NDArray[np.bool_]
    neighbours: Scores
    author: Scores
    date: Scores
    session: Scores
    author_name: str
    dates: Sequence[tuple[NamedDate, npt.NDArray[np.bool_]]]

    def added_to(self, hybrid: Scores) -> Scores:
        """The score, with evidence for messages."""
        evidence = self.neighbours + self.author + self.date + self.session
        return hybrid + np.where(self.messages, evidence, 0.0)

    def of(self, at: int, memory: Memory) -> Evidence | None:
        """The evidence for one candidate."""
        if memory.source is not MemorySource.MESSAGE:
            return None
        author, date = float(self.author[at]), float(self.date[at])
        return Evidence(
            neighbours=float(self.neighbours[at]),
            author=author,
            date=date,
            session=float(self.session[at]),
            matched_author=self.author_name if author else "",
            matched_date=next((str(named) for named, fits in self.dates if fits[at]), ""),
        )


def surroundings(attributes: Attributes, text: str, rows: Rows, hybrid: Scores) -> Surroundings | None:
    """Evidence for the candidates, which lie in these rows; None if none of them is a message."""
    if not attributes.messages:
        return None
    messages = attributes.column("source")[rows] == MemorySource.MESSAGE
    if not messages.any():
        return None
    attributes.order()
    of = {name: attributes.column(name)[rows] for name in ("previous", "next", "session", "author", "time")}
    # One place more than there are rows: what has no neighbour points at the end, where there is nothing.
    by_row = np.zeros(len(attributes) + 1)
    by_row[rows[messages]] = hybrid[messages]
    neighbours = NEIGHBOURS * (by_row[of["previous"]] + by_row[of["next"]])
    sessions = np.zeros(attributes.session_count + 1)
    np.maximum.at(sessions, of["session"][messages], hybrid[messages])
    author, name = attributes.authors.named(text)
    said_by = np.where(of["author"] == author, AUTHOR, 0.0)
    date, dates = _dated(named_dates(text), of["time"])
    return Surroundings(
        messages=messages,
        neighbours=neighbours,
        author=said_by,
        date=np.where(date, DATE, 0.0),
        session=SESSION * sessions[of["session"]],
        author_name=name,
        dates=dates,
    )


def _dated(
    dates: Sequence[NamedDate], times: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], Sequence[tuple[NamedDate, npt.NDArray[np.bool_]]]]:
    """Which times fit any of the dates, and which fit each."""
    if not dates:
        return np.zeros(len(times), np.bool_), ()
    months = times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    year, month = months // 12 + 1970, months % 12 + 1
    fits = [(date, _fits(year, date.year) & _fits(month, date.month)) for date in dates]
    return np.logical_or.reduce([mask for _, mask in fits]), fits


def _fits(values: npt.NDArray[np.int64], wanted: int | None) -> npt.NDArray[np.bool_]:
    return np.ones(len(values), np.bool_) if wanted is None else values == wanted
