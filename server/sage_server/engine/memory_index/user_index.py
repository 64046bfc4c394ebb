"""One user's memories, ready to be searched.

    H     = vector_weight * minmax(cosine) + text_weight * minmax(bm25)
    score = H + neighbours + author + date + session        (the last four for messages only)

All that passes the filters is scored, always: an exact scan reads every vector anyway, and then the rest
is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

from sage_server.domain.memories import Memory, MemoryFilter, MemorySource
from sage_server.engine.memory_index.attributes import Attributes
from sage_server.engine.memory_index.dates import NamedDate, named_dates
from sage_server.engine.memory_index.keywords import Keywords
from sage_server.engine.memory_index.vectors import Floats, Rows, Vectors
from sage_server.engine.memory_index.words import Words, words_of
from sage_server.ports.memories import Fill

Scores: TypeAlias = npt.NDArray[np.float64]

TOP_K = 10
VECTOR_WEIGHT = 0.7
TEXT_WEIGHT = 0.3
NEIGHBOURS = 0.2
AUTHOR = 0.4
DATE = 0.3
SESSION = 0.6
_ENTRY_BYTES = 700  # a Memory with its ids, times and place in the tables, beside its text
_FEW_DEAD = 1_000
_MANY = 2_000
_NOBODY = -2  # no row has it


@dataclass(frozen=True)
class IndexQuery:
    """A search."""

    text: str = ""
    vector: Floats | None = None
    """Of the index's model; for `UserIndex.search` of unit length."""
    which: MemoryFilter = field(default_factory=MemoryFilter)
    top_k: int = TOP_K
    vector_weight: float = VECTOR_WEIGHT
    text_weight: float = TEXT_WEIGHT
    min_score: float | None = None
    context_evidence: bool = True


class Evidence(NamedTuple):
    """What a message's surroundings added to its score."""

    neighbours: float
    author: float
    date: float
    session: float
    matched_author: str
    matched_date: str


class Scored(NamedTuple):
    """A memory that was found, with its score explained."""

    memory: Memory
    score: float
    hybrid: float
    vector_score: float | None
    text_score: float
    normalized_vector: float
    normalized_text: float
    matched_terms: Sequence[str]
    evidence: Evidence | None


@dataclass(frozen=True)
class Found:
    """The best, and how many there were to choose from."""

    results: Sequence[Scored]
    candidates: int
    revision: int
    """Of the state that was searched."""


class UserIndex:
    """Vectors, words and attributes in the same row order. Not safe for use by several threads at once."""

    def __init__(self, words: Words, model: str, dimensions: int) -> None:
        self.model = model
        self.revision = 0
        self._words = words
        self._memories: list[Memory | None] = []
        self._row_of: dict[UUID, int] = {}
        self._vectors = Vectors(dimensions)
        self._keywords = Keywords(words)
        self._attributes = Attributes()
        self._unsettled: list[str] = []
        self._text_bytes = 0
        self._rows: Rows = np.arange(0)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def dimensions(self) -> int:
        """Of the vectors."""
        return self._vectors.dimensions

    @property
    def bytes(self) -> int:
        """Memory that the index takes, about."""
        held = self._vectors.bytes + self._keywords.bytes + self._attributes.bytes
        return held + self._text_bytes + _ENTRY_BYTES * len(self._row_of)

    @property
    def work(self) -> int:
        """How many numbers a search reads."""
        return len(self._vectors) * self.dimensions

    def has_conversation(self, conversation_id: UUID) -> bool:
        """Whether there is a memory of the conversation."""
        return self._attributes.holds("conversation", conversation_id)

    def has_document(self, document_id: UUID) -> bool:
        """Whether there is a memory of the document."""
        return self._attributes.holds("document", document_id)

    def weight(self, word: str) -> float:
        """How much a word of a question says about this user's memories."""
        return self._keywords.weight(word)

    def add(self, memories: Sequence[Memory], fill: Fill, *, settled: bool = True) -> None:
        """Add memories. One that is there already is replaced. If `fill` fails, nothing has changed.

        With `settled` false the words wait for `settle`, and the index must not be used before: a load adds
        all words at once, in a fraction of the time.
        """
        first = len(self._memories)
        embedded = self._filled(len(memories), fill)
        for memory in memories:
            self.remove(memory.id)
        self._unsettled += [memory.text for memory in memories]
        if settled:
            self._add_words()
        self._attributes.add(memories, embedded)
        self._memories.extend(memories)
        self._row_of.update((memory.id, row) for row, memory in enumerate(memories, first))
        self._text_bytes += sum(_text_bytes(memory) for memory in memories)

    def remove(self, memory_id: UUID) -> bool:
        """Forget a memory. False if it is not there."""
        row = self._row_of.pop(memory_id, None)
        if row is None:
            return False
        memory = self._memories[row]
        assert memory is not None
        self._memories[row] = None
        self._vectors.clear(row)
        self._keywords.remove(memory.text)
        self._attributes.clear(row, memory)
        self._text_bytes -= _text_bytes(memory)
        return True

    @property
    def sparse(self) -> bool:
        """Whether enough rows are dead for `compacted` to pay."""
        dead = len(self._memories) - len(self._row_of)
        return dead > _FEW_DEAD and dead * 3 > len(self._row_of)

    def settle(self) -> None:
        """Do now what the next search would do first, so that searches only read."""
        self._add_words()
        self._attributes.order()

    def compacted(self) -> UserIndex:
        """The same without dead rows. Reads only."""
        live = np.flatnonzero(self._attributes.column("live"))
        memories = [memory for memory in self._memories if memory is not None]
        index = UserIndex(self._words, self.model, self.dimensions)
        index.revision = self.revision
        index._memories.extend(memories)
        index._row_of.update((memory.id, row) for row, memory in enumerate(memories))
        index._vectors = self._vectors.only(live)
        index._keywords = self._keywords.only(live)
        index._attributes.add(memories, self._attributes.column("embedded")[live].tolist())
        index._text_bytes = self._text_bytes
        return index

    def search(self, query: IndexQuery) -> Found:
        """The best memories, the best first; equally good ones, the newer first."""
        mask = self._attributes.mask(query.which)
        rows = self._every_row() if mask is None else np.flatnonzero(mask)
        if not len(rows):
            return Found([], 0, self.revision)
        spelled = self._words.spelled(query.text)
        cosine, embedded = self._cosine(query, rows, whole=mask is None)
        bm25 = self._keywords.scores(spelled, mask)
        if mask is not None:
            bm25 = bm25[rows]
        near, said = _Range.of(cosine, embedded), _Range.of(bm25, None)
        hybrid = near.spread(cosine, query.vector_weight)
        if embedded is not None:
            hybrid[~embedded] = 0.0
        hybrid += said.spread(bm25, query.text_weight)
        surroundings = self._surroundings(query, rows, hybrid) if query.context_evidence else None
        score = hybrid if surroundings is None else surroundings.added_to(hybrid)
        best = self._best(query, rows, score)
        matched = self._matched(spelled, rows[best])
        vector_scores, text_scores = cosine[best].tolist(), bm25[best].tolist()
        results = []
        for at, terms, vector_score, text_score in zip(
            best, matched, vector_scores, text_scores, strict=True
        ):
            memory = self._memories[rows[at]]
            assert memory is not None
            has_vector = embedded is None or bool(embedded[at])
            results.append(
                Scored(
                    memory=memory,
                    score=float(score[at]),
                    hybrid=float(hybrid[at]),
                    vector_score=vector_score if has_vector else None,
                    text_score=text_score,
                    normalized_vector=near.place(vector_score) if has_vector else 0.0,
                    normalized_text=said.place(text_score),
                    matched_terms=terms,
                    evidence=None if surroundings is None else surroundings.of(at, memory),
                )
            )
        return Found(results, len(rows), self.revision)

    def _add_words(self) -> None:
        if self._unsettled:
            self._keywords.add(self._unsettled)
            self._unsettled = []

    def _filled(self, count: int, fill: Fill) -> list[bool]:
        """Add vectors; answers with which rows have one."""
        first = len(self._vectors)
        embedded: list[bool] = []
        try:
            for block in self._vectors.extend(count):
                embedded += [fill(len(embedded) + n, out) for n, out in enumerate(block)]
        except BaseException:  # whatever it was, the rows must stay in step
            self._vectors.cut(first)
            raise
        return embedded

    def _every_row(self) -> Rows:
        if len(self._rows) != len(self._memories):
            self._rows = np.arange(len(self._memories))
        return self._rows

    def _cosine(
        self, query: IndexQuery, rows: Rows, *, whole: bool
    ) -> tuple[Floats, npt.NDArray[np.bool_] | None]:
        """The cosine of each candidate, and which of them have a vector; None if all have."""
        if query.vector is None:
            return np.zeros(len(rows), np.float32), np.zeros(len(rows), np.bool_)
        embedded = self._attributes.column("embedded")
        if whole:
            cosine = self._vectors.scores(query.vector)
        elif 4 * len(rows) > len(self._vectors):
            cosine = self._vectors.scores(query.vector)[rows]
            embedded = embedded[rows]
        else:
            cosine = self._vectors.scores_of(query.vector, rows)
            embedded = embedded[rows]
        return cosine, None if embedded.all() else embedded

    def _best(self, query: IndexQuery, rows: Rows, score: Scores) -> list[int]:
        """Which candidates to show, in order. Without vectors, only those that have anything to show for."""
        time = self._attributes.column("time")
        # Both cuts keep all that are as good as the last one in, for the order among equals to decide.
        best = _highest(score, query.top_k)
        if len(best) > query.top_k:
            last_in = score[best].min()
            above, equal = best[score[best] > last_in], best[score[best] == last_in]
            newest = _highest(time[rows[equal]], query.top_k - len(above))
            best = np.concatenate((above, equal[newest]))
        if query.vector is None:
            best = best[score[best] > 0]
        if query.min_score is not None:
            best = best[score[best] >= query.min_score]

        def place(at: int) -> tuple[float, int, int]:
            row = int(rows[at])
            memory = self._memories[row]
            assert memory is not None
            return -float(score[at]), -int(time[row]), -memory.id.int

        return sorted(best.tolist(), key=place)[: query.top_k]

    def _matched(self, spelled: Mapping[str, str], rows: Rows) -> list[list[str]]:
        """For each of the rows, the query's words that it holds, as the query spells them."""
        holding = [(spelling, self._keywords.holding(term, rows)) for term, spelling in spelled.items()]
        return [[spelling for spelling, holds in holding if holds[n]] for n in range(len(rows))]

    def _surroundings(self, query: IndexQuery, rows: Rows, hybrid: Scores) -> _Surroundings | None:
        if not self._attributes.messages:
            return None
        messages = self._attributes.column("source")[rows] == MemorySource.MESSAGE
        if not messages.any():
            return None
        self._attributes.order()
        attributes = {
            name: self._attributes.column(name)[rows]
            for name in ("previous", "next", "session", "author", "time")
        }
        # One place more than there are rows: what has no neighbour points at the end, where there is nothing.
        by_row = np.zeros(len(self._memories) + 1)
        by_row[rows[messages]] = hybrid[messages]
        neighbours = NEIGHBOURS * (by_row[attributes["previous"]] + by_row[attributes["next"]])
        sessions = np.zeros(self._attributes.session_count + 1)
        np.maximum.at(sessions, attributes["session"][messages], hybrid[messages])
        author, name = self._named_author(query.text)
        said_by = np.where(attributes["author"] == author, AUTHOR, 0.0)
        date, dates = _dated(named_dates(query.text), attributes["time"])
        return _Surroundings(
            messages=messages,
            neighbours=neighbours,
            author=said_by,
            date=np.where(date, DATE, 0.0),
            session=SESSION * sessions[attributes["session"]],
            author_name=name,
            dates=dates,
        )

    def _named_author(self, text: str) -> tuple[int, str]:
        """The only known author whom the text names, by all of their name or by a first name that is
        nobody else's."""
        said = _plain_words(text)
        if not said:
            return _NOBODY, ""
        authors = self._attributes.authors()
        first_names = [name.split()[0].casefold() if name.split() else "" for _, name in authors]
        named = []
        for (number, name), first in zip(authors, first_names, strict=True):
            words = _plain_words(name)
            unique = first_names.count(first) == 1
            if words and (words <= said or (unique and first in said)):
                named.append((number, name))
        return named[0] if len(named) == 1 else (_NOBODY, "")


@dataclass(frozen=True)
class _Surroundings:
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


class _Range(NamedTuple):
    """The lowest and the highest score of the candidates, between which the others are placed from 0 to 1."""

    low: float
    high: float

    @classmethod
    def of(cls, scores: Scores | Floats, among: npt.NDArray[np.bool_] | None) -> _Range:
        """The range of those that count."""
        counted = scores if among is None else scores[among]
        return cls(float(counted.min()), float(counted.max())) if len(counted) else cls(0.0, 0.0)

    def spread(self, scores: Scores | Floats, weight: float) -> Scores:
        """The place of each score, times a weight."""
        if self.high == self.low:
            return np.full(len(scores), weight * self.place(self.high))
        spread = np.subtract(scores, self.low, dtype=np.float64)
        spread *= weight / (self.high - self.low)
        return spread

    def place(self, score: float) -> float:
        """The place of one score. Equal ones are at 1 if above 0."""
        if self.high == self.low:
            return 1.0 if self.high > 0 else 0.0
        return (score - self.low) / (self.high - self.low)


def _highest(values: npt.NDArray[np.float64] | npt.NDArray[np.int64], count: int) -> Rows:
    """Where the highest values are, and all that equal the last of them."""
    if len(values) <= count:
        return np.arange(len(values))
    if len(values) <= _MANY:
        return _cut(values, count)
    # The last one in among some is a lower bound for all, and a cheap one.
    some = values[:: len(values) // (_MANY // 4)]
    above = np.flatnonzero(values >= np.partition(some, -count)[-count])
    return above[_highest(values[above], count)] if len(above) < len(values) else _cut(values, count)


def _cut(values: npt.NDArray[np.float64] | npt.NDArray[np.int64], count: int) -> Rows:
    return np.flatnonzero(values >= np.partition(values, -count)[-count])


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


def _plain_words(text: str) -> set[str]:
    """Words as they are compared with names: without case and possessive."""
    return {word.casefold().removesuffix("'s") for word in words_of(text)}


def _text_bytes(memory: Memory) -> int:
    # A string of ASCII takes a byte a character, others up to four.
    text = memory.text
    return 49 + len(text) * (1 if text.isascii() else 2)
