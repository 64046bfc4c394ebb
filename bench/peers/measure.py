"""Every line of the comparison: a round through each contender, in turn, the order turned round every time,
so that whatever else the machine does meets all of them."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias, TypeVar

from bench.peers.peer import Peer
from bench.peers.workload import Memory, Query, Workload

_T = TypeVar("_T")
Owned: TypeAlias = tuple[str, Memory]
"""A memory and whose it is."""
Timed: TypeAlias = tuple[float, int]
"""Seconds, and how many operations they were."""

K = 10
_ONE_USER = "ada"


@dataclass(frozen=True)
class Size:
    """How much of everything. A round of inserts has 1,000 memories, one of searches or single inserts 20."""

    rounds: int = 10
    per_user: int = 50

    @property
    def memories(self) -> int:
        return 1000 * self.rounds

    @property
    def users(self) -> int:
        return self.memories // self.per_user


@dataclass(frozen=True)
class Line:
    """What is measured: the name in the JSON object, and what one operation is called."""

    key: str
    title: str


BULK = Line("bulk_insert", "bulk insert per memory")
SINGLE = Line("single_insert", "single insert")
SEARCH = Line("search", "search")
TAGGED = Line("tagged_search", "search, 1 % tag")
USERS_INSERT = Line("users_insert", "many users: insert per memory")
USERS_SEARCH = Line("users_search", "many users: first search")
LINES = (BULK, SINGLE, SEARCH, TAGGED, USERS_INSERT, USERS_SEARCH)
SEARCHES = (SEARCH, TAGGED, USERS_SEARCH)


@dataclass
class Measured:
    """What one contender did on one line."""

    rounds: list[Timed] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        """Of one operation: the average of a round, the median of the rounds."""
        return 1000 * statistics.median(seconds / count for seconds, count in self.rounds)

    @property
    def operations(self) -> int:
        return sum(count for _, count in self.rounds)

    @property
    def recall(self) -> float:
        """The share of the exact answer that was found."""
        return statistics.fmean(self.recalls)


Figures: TypeAlias = Mapping[Line, Mapping[str, Measured]]
"""By line and by the key of a contender."""


def measure(peers: Sequence[Peer], workload: Workload, size: Size) -> Figures:
    """Everything, in one run."""
    figures = {line: {peer.key: Measured() for peer in peers} for line in LINES}
    run = _Run(peers, figures)
    one = [(_ONE_USER, memory) for memory in workload.memories(size.memories)]
    run.rounds(BULK, one, 1000, _insert_chunk)
    singles = [(_ONE_USER, memory) for memory in workload.memories(20 * size.rounds)]
    run.rounds(SINGLE, singles, 20, _insert_singles)
    run.settle()
    stored = [memory for _, memory in (*one, *singles)]
    asked = workload.queries(_ONE_USER, stored, 20 * size.rounds, K, words=True)
    probes = workload.queries(_ONE_USER, stored, 100, K, words=False)
    for line, tagged in ((SEARCH, False), (TAGGED, True)):
        run.searches(line, [query for query in asked if bool(query.tag) is tagged])
        run.probe(line, [query for query in probes if bool(query.tag) is tagged])
    many = {f"user-{n}": workload.memories(size.per_user) for n in range(size.users)}
    theirs = [(user, memory) for user, owned in many.items() for memory in owned]
    run.rounds(USERS_INSERT, theirs, 1000, _insert_chunk)
    run.settle()
    run.searches(USERS_SEARCH, _one_each(workload, many, words=True))
    run.probe(USERS_SEARCH, _one_each(workload, many, words=False)[:100])
    return figures


class _Run:
    def __init__(self, peers: Sequence[Peer], figures: Figures) -> None:
        self._peers = list(peers)
        self._figures = figures

    def rounds(
        self, line: Line, work: Sequence[_T], length: int, do: Callable[[Peer, Sequence[_T]], Timed]
    ) -> None:
        """Every contender once a round, with the same part of the work."""
        print(f"measuring {line.title}", file=sys.stderr, flush=True)
        for start in range(0, len(work), length):
            for peer in self._peers:
                self._figures[line][peer.key].rounds.append(do(peer, work[start : start + length]))
            self._peers.reverse()

    def searches(self, line: Line, queries: Sequence[Query]) -> None:
        """A first round warms up and does not count, unless it is each user's first search that counts."""
        if len({query.user for query in queries}) == 1:
            for peer in self._peers:
                _search(peer, queries[:20])
        self.rounds(line, queries, 20, _search)

    def probe(self, line: Line, queries: Sequence[Query]) -> None:
        """How much of the exact answer is found. Untimed."""
        for peer in self._peers:
            for query in queries:
                found = peer.search(query.user, query.text, K, query.tag)
                share = len(query.exact.intersection(found)) / len(query.exact)
                self._figures[line][peer.key].recalls.append(share)

    def settle(self) -> None:
        for peer in self._peers:
            peer.settle()


def _insert_chunk(peer: Peer, memories: Sequence[Owned]) -> Timed:
    timed, rest = memories[: peer.bulk_sample], memories[peer.bulk_sample :]
    by_user = {user: [memory for _, memory in owned] for user, owned in groupby(timed, itemgetter(0))}
    started = time.perf_counter()
    for user, owned in by_user.items():
        peer.insert_many(user, owned)
    seconds = time.perf_counter() - started
    if rest:
        peer.fill(rest)
    return seconds, len(timed)


def _insert_singles(peer: Peer, memories: Sequence[Owned]) -> Timed:
    timed, rest = memories[: peer.single_sample], memories[peer.single_sample :]
    started = time.perf_counter()
    for user, memory in timed:
        peer.insert_one(user, memory)
    seconds = time.perf_counter() - started
    if rest:
        peer.fill(rest)
    return seconds, len(timed)


def _search(peer: Peer, queries: Sequence[Query]) -> Timed:
    started = time.perf_counter()
    for query in queries:
        peer.search(query.user, query.text, K, query.tag)
    return time.perf_counter() - started, len(queries)


def _one_each(workload: Workload, users: Mapping[str, Sequence[Memory]], *, words: bool) -> list[Query]:
    return [workload.queries(user, owned, 1, K, words=words)[0] for user, owned in users.items()]
