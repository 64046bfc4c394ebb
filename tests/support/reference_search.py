"""Search as the contract describes it: plain, slow, with nothing of the index but how words become terms."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from uuid import UUID

import numpy as np
import numpy.typing as npt

from sage_client.models.search import SearchResult
from sage_server.domain.memories import Memory, MemoryFilter, MemorySource, TagMatch
from sage_server.domain.search import Scored
from sage_server.engine.memory_index.query import IndexQuery
from sage_server.engine.memory_index.words import Words

_K1, _B = 1.2, 0.3
_PAUSE = timedelta(hours=8)
_WORDS = Words()
_MONTHS = [datetime(2000, month, 1).strftime("%B") for month in range(1, 13)]


@dataclass(frozen=True)
class Held:
    """A memory that is there, with its vector if it has one."""

    memory: Memory
    vector: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Evidence:
    """What surroundings added."""

    neighbours: float
    author: float
    date: float
    session: float

    @property
    def total(self) -> float:
        return self.neighbours + self.author + self.date + self.session


@dataclass(frozen=True)
class Result:
    """A result, of the reference, the index or a server."""

    id: UUID
    score: float
    hybrid: float
    vector: float | None
    text: float
    normalized_vector: float
    normalized_text: float
    matched: tuple[str, ...]
    evidence: Evidence | None

    @property
    def numbers(self) -> dict[str, float]:
        """All that is compared with a tolerance."""
        found = {
            "score": self.score,
            "hybrid": self.hybrid,
            "vector": 0.0 if self.vector is None else self.vector,
            "text": self.text,
            "normalized_vector": self.normalized_vector,
            "normalized_text": self.normalized_text,
        }
        if self.evidence is not None:
            found |= vars(self.evidence)
        return found


@dataclass(frozen=True)
class Expected:
    """All candidates in order, and which of them a search must and may show."""

    ranked: Sequence[Result]
    memories: Mapping[UUID, Memory]
    least: float | None
    """Shown from this score on; None shows all."""
    above_zero: bool
    """Whether only scores above 0 are shown."""
    slack: float
    """How far a score in single precision may be off."""

    def shown(self, slack: float) -> list[Result]:
        """Those that are shown if every score were lower by `slack`."""
        found = list(self.ranked)
        if self.above_zero:
            found = [one for one in found if one.score > slack]
        if self.least is not None:
            found = [one for one in found if one.score >= self.least + slack]
        return found


def reference_search(held: Iterable[Held], query: IndexQuery) -> Expected:
    """Score everything that passes the filter."""
    everything = list(held)
    candidates = [one for one in everything if passes(one.memory, query.which)]
    cosine = [_cosine(one.vector, query.vector) for one in candidates]
    bm25 = _bm25(query.text, everything, candidates)
    near, said = _minmax(cosine), _minmax(bm25)
    hybrid = {
        one.memory.id: query.vector_weight * near[at] + query.text_weight * said[at]
        for at, one in enumerate(candidates)
    }
    messages = [one.memory for one in everything if one.memory.source is MemorySource.MESSAGE]
    named = _named_author(query.text, {one.provenance.origin for one in messages if one.provenance.origin})
    found = []
    for at, one in enumerate(candidates):
        memory = one.memory
        evidence = None
        if query.context_evidence and memory.source is MemorySource.MESSAGE:
            evidence = _evidence(memory, messages, hybrid, query.text, named)
        found.append(
            Result(
                id=memory.id,
                score=hybrid[memory.id] + (evidence.total if evidence else 0.0),
                hybrid=hybrid[memory.id],
                vector=cosine[at],
                text=bm25[at] or 0.0,
                normalized_vector=near[at],
                normalized_text=said[at],
                matched=_matched(query.text, memory.text),
                evidence=evidence,
            )
        )
    memories = {one.memory.id: one.memory for one in candidates}
    found.sort(key=lambda one: (one.score, memories[one.id].created_at, one.id.int), reverse=True)
    return Expected(found, memories, query.min_score, query.vector is None, _slack(cosine))


def passes(memory: Memory, which: MemoryFilter) -> bool:
    """Whether a filter lets a memory through."""
    tags = [tag in memory.tags for tag in which.tags]
    return (
        (not which.sources or memory.source in which.sources)
        and which.agent_id in (None, memory.agent_id)
        and (which.owners is None or memory.agent_id in which.owners)
        and which.conversation_id in (None, memory.provenance.conversation_id)
        and which.document_id in (None, memory.provenance.document_id)
        and (which.start is None or which.start <= memory.created_at)
        and (which.end is None or memory.created_at < which.end)
        and (not tags or (all(tags) if which.match is TagMatch.ALL else any(tags)))
    )


def check(found: Sequence[Result], candidates: int, expected: Expected, top_k: int) -> None:
    """Fail unless these are the results that the reference expects, with all that is said of each."""
    slack = expected.slack
    assert candidates == len(expected.ranked)
    fewest, most = len(expected.shown(slack)), len(expected.shown(-slack))
    assert min(top_k, fewest) <= len(found) <= min(top_k, most)
    assert len({one.id for one in found}) == len(found)
    by_id = {one.id: one for one in expected.ranked}
    for one in found:
        _check_result(one, by_id[one.id], slack)
    wanted = [by_id[one.id] for one in found]
    for better, worse in pairwise(wanted):
        _check_order(better, worse, expected)
    if wanted:
        left_out = set(by_id) - {one.id for one in wanted}
        if len(found) < top_k:
            left_out &= {one.id for one in expected.shown(slack)}
        for memory_id in left_out:
            _check_order(wanted[-1], by_id[memory_id], expected)


def of_index(scored: Scored) -> Result:
    """A result of the index."""
    seen = scored.evidence
    return Result(
        id=scored.memory.id,
        score=scored.score,
        hybrid=scored.hybrid,
        vector=scored.vector_score,
        text=scored.text_score,
        normalized_vector=scored.normalized_vector,
        normalized_text=scored.normalized_text,
        matched=tuple(scored.matched_terms),
        evidence=None if seen is None else Evidence(seen.neighbours, seen.author, seen.date, seen.session),
    )


def of_client(result: SearchResult) -> Result:
    """A result of a server."""
    seen = result.evidence
    return Result(
        id=UUID(result.memory.id),
        score=result.score,
        hybrid=result.hybrid_score,
        vector=result.vector_score,
        text=result.text_score,
        normalized_vector=result.normalized_vector_score,
        normalized_text=result.normalized_text_score,
        matched=result.matched_terms,
        evidence=None if seen is None else Evidence(seen.neighbours, seen.author, seen.date, seen.session),
    )


def _check_result(found: Result, wanted: Result, slack: float) -> None:
    assert (found.vector is None) == (wanted.vector is None)
    assert found.matched == wanted.matched
    assert (found.evidence is None) == (wanted.evidence is None)
    numbers, others = found.numbers, wanted.numbers
    assert numbers.keys() == others.keys()
    for name, number in numbers.items():
        assert math.isclose(number, others[name], rel_tol=1e-5, abs_tol=slack), (name, number, others[name])


def _check_order(first: Result, second: Result, expected: Expected) -> None:
    assert first.score >= second.score - 2 * expected.slack
    if first.numbers == second.numbers:
        newer, older = expected.memories[first.id], expected.memories[second.id]
        assert (newer.created_at, newer.id.int) > (older.created_at, older.id.int)


def _cosine(vector: npt.NDArray[np.float32] | None, query: npt.NDArray[np.float32] | None) -> float | None:
    if vector is None or query is None:
        return None
    a, b = vector.astype(np.float64), query.astype(np.float64)
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


@cache
def _terms(text: str) -> list[str]:
    return _WORDS.terms(text)


def _bm25(text: str, everything: Sequence[Held], candidates: Sequence[Held]) -> list[float | None]:
    terms = list(dict.fromkeys(_WORDS.terms(text)))
    texts = {one.memory.id: _terms(one.memory.text) for one in everything}
    holding = {term: sum(term in words for words in texts.values()) for term in terms}
    total = sum(map(len, texts.values()))
    mean = total / len(texts) if texts else 0.0
    found: list[float | None] = []
    for one in candidates:
        words = texts[one.memory.id]
        score = 0.0
        for term in terms:
            times = words.count(term)
            if not times:
                continue
            rarity = math.log(1 + (len(texts) - holding[term] + 0.5) / (holding[term] + 0.5))
            score += rarity * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * len(words) / mean))
        found.append(score)
    return found


def _minmax(scores: Sequence[float | None]) -> list[float]:
    present = [score for score in scores if score is not None]
    if not present:
        return [0.0] * len(scores)
    low, high = min(present), max(present)
    if low == high:
        return [0.0 if score is None or high <= 0 else 1.0 for score in scores]
    return [0.0 if score is None else (score - low) / (high - low) for score in scores]


def _slack(cosine: Sequence[float | None]) -> float:
    """Normalising stretches the rounding of single precision by as much as it stretches the scores."""
    present = [score for score in cosine if score is not None]
    spread = max(present) - min(present) if present else 0.0
    return 1e-5 if spread == 0 else 1e-5 + 1e-6 / spread


def _matched(query: str, text: str) -> tuple[str, ...]:
    there = set(_terms(text))
    spelled: dict[str, str] = {}
    for spelling in re.findall(
        r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+(?:['\u2019][^\W_\u4e00-\u9fff]+)*", query
    ):
        for term in _terms(spelling):
            spelled.setdefault(term, spelling)
    return tuple(spelling for term, spelling in spelled.items() if term in there)


def _evidence(
    memory: Memory,
    messages: Sequence[Memory],
    hybrid: Mapping[UUID, float],
    question: str,
    named: str | None,
) -> Evidence:
    thread = [one for one in messages if one.provenance.conversation_id == memory.provenance.conversation_id]
    thread.sort(key=lambda one: (one.provenance.item_seq or 0, one.provenance.chunk_index))
    at = [one.id for one in thread].index(memory.id)
    around = thread[max(0, at - 1) : at] + thread[at + 1 : at + 2]
    first = at
    while first and thread[first].created_at - thread[first - 1].created_at <= _PAUSE:
        first -= 1
    last = at
    while last + 1 < len(thread) and thread[last + 1].created_at - thread[last].created_at <= _PAUSE:
        last += 1
    return Evidence(
        neighbours=0.2 * sum(hybrid.get(one.id, 0.0) for one in around),
        author=0.4 if named is not None and memory.provenance.origin == named else 0.0,
        date=0.3 if _dated(question, memory.created_at) else 0.0,
        session=0.6 * max(hybrid.get(one.id, 0.0) for one in thread[first : last + 1]),
    )


def _named_author(question: str, authors: set[str]) -> str | None:
    said = set(re.sub(r"['\u2019]s\b", "", question.casefold()).replace("?", " ").split())
    named = []
    for author in authors:
        names = author.casefold().split()
        alone = sum(other.casefold().split()[0] == names[0] for other in authors) == 1
        if set(names) <= said or (alone and names[0] in said):
            named.append(author)
    return named[0] if len(named) == 1 else None


def _dated(question: str, at: datetime) -> bool:
    """Reads full month names, years and ISO dates only: what the tests ask with."""
    at = at.astimezone(UTC)
    words = re.findall(r"[A-Za-z]+|\d+(?:-\d+)*", question)
    iso = [word.split("-") for word in words if "-" in word]
    years = [int(word) for word in words if re.fullmatch(r"(19|20)\d\d", word)]
    months = []
    for place, word in enumerate(words):
        before, after = words[place - 1] if place else "", "".join(words[place + 1 : place + 2])
        certain = word not in ("May", "March") or before in ("in", "since") or after.isdigit()
        if word in _MONTHS and certain:
            months.append(_MONTHS.index(word) + 1)
    if any((int(year), int(month)) == (at.year, at.month) for year, month, *_ in iso):
        return True
    if months:
        return at.month in months and (not years or at.year in years)
    return at.year in years
