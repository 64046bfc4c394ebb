"""An incremental BM25 index."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sage_server.engine.memory_index.words import END, Words

Mask: TypeAlias = npt.NDArray[np.bool_]
K1 = 1.2
B = 0.3
_MOST = 255
_NO_TERM, _NEXT_ROW = -1, -2
_POSTING_BYTES = 64 + 32  # an empty array, and its place in the dictionary


class Keywords:
    """Which rows hold which terms, and how often. Document frequencies are of the rows that are there now.

    A posting is one number, `row * 256 + occurrences`; a term's postings lie one after the other, so adding
    appends and a search reads them in one go. A removed row's postings stay until the owner builds anew.
    """

    def __init__(self, words: Words) -> None:
        self._words = words
        self._postings: dict[str, array[int]] = {}
        self._frequency: Counter[str] = Counter()
        self._lengths = np.zeros(0, np.float32)
        self._rows = 0
        self._live = 0
        self._total_length = 0
        self._posting_count = 0
        self._term_bytes = 0

    @property
    def bytes(self) -> int:
        """Memory that the postings take, about."""
        per_term = len(self._postings) * _POSTING_BYTES + self._term_bytes
        return per_term + 4 * self._posting_count + self._lengths.nbytes

    def add(self, texts: Sequence[str]) -> None:
        """Add rows, one for each text."""
        if len(texts) > 32:
            self._add_many(texts)
            return
        self._reserve(len(texts))
        for text in texts:
            terms = self._words.terms(text)
            counts = Counter(terms)
            base = self._rows << 8
            for term, count in counts.items():
                self._posting(term).append(base | min(count, _MOST))
            self._frequency.update(counts.keys())
            self._posting_count += len(counts)
            self._lengths[self._rows] = len(terms)
            self._total_length += len(terms)
            self._rows += 1
            self._live += 1

    def remove(self, text: str) -> None:
        """Take a row with this text out of the statistics."""
        terms = self._words.terms(text)
        self._frequency.subtract(set(terms))
        self._total_length -= len(terms)
        self._live -= 1

    def rarity(self, term: str) -> float:
        """The inverse document frequency of a term."""
        frequency = self._frequency.get(term, 0)
        return math.log(1 + (self._live - frequency + 0.5) / (frequency + 0.5))

    def weight(self, word: str) -> float:
        """How much a word of a question says: nothing for the stop list, else how rare it is. What an
        embedding model takes for one word may be several here: the rarest counts."""
        return max(map(self.rarity, self._words.terms(word.lower())), default=0.0)

    def postings(self, terms: Iterable[str]) -> int:
        """How many postings `scores` reads for these terms."""
        return sum(len(self._postings.get(term, ())) for term in terms)

    def scores(self, terms: Iterable[str], among: Mask | None = None) -> npt.NDArray[np.float64]:
        """The BM25 score of every row for distinct terms; with `among`, of those rows alone.

        Without it removed rows have scores too; nobody may look.
        """
        found = [(term, postings) for term in terms if (postings := self._postings.get(term))]
        if not found or not self._total_length:
            return np.zeros(self._rows)
        packed = np.concatenate([np.frombuffer(postings, np.uint32) for _, postings in found])
        rarity = np.repeat([self.rarity(term) for term, _ in found], [len(rows) for _, rows in found])
        rows = packed >> 8
        if among is not None:
            here = among[rows]
            packed, rarity, rows = packed[here], rarity[here], rows[here]
        counts = packed & _MOST
        per_word = K1 * B * self._live / self._total_length
        norm = self._lengths[rows] * np.float32(per_word) + np.float32(K1 * (1 - B))
        rarity *= counts * (K1 + 1) / (counts + norm)
        return np.bincount(rows, rarity, self._rows).astype(np.float64, copy=False)

    def holding(self, term: str, rows: npt.NDArray[np.int64]) -> list[bool]:
        """Which of these rows hold a term."""
        postings = self._postings.get(term)
        if not postings:
            return [False] * len(rows)
        packed = np.frombuffer(postings, np.uint32)
        # Rows come in ascending order, so a row's posting is the first that is not below it.
        at = np.searchsorted(packed, (rows << 8).astype(np.uint32))
        found: list[bool] = (packed[np.minimum(at, len(packed) - 1)] >> 8 == rows).tolist()
        return found

    def only(self, rows: npt.NDArray[np.int64]) -> Keywords:
        """These rows alone, in ascending order, numbered anew. The others were removed before."""
        numbers = np.full(self._rows, -1, np.int64)
        numbers[rows] = np.arange(len(rows))
        kept = Keywords(self._words)
        for term, postings in self._postings.items():
            packed = np.frombuffer(postings, np.uint32)
            moved = numbers[packed >> 8]
            here = moved >= 0
            left = (moved[here] << 8 | packed[here] & _MOST).astype(np.uint32)
            if len(left):
                kept._posting(term).frombytes(left.tobytes())
                kept._frequency[term] = len(left)
                kept._posting_count += len(left)
        kept._lengths = self._lengths[rows]
        kept._rows = kept._live = len(rows)
        kept._total_length = self._total_length
        return kept

    def _posting(self, term: str) -> array[int]:
        found = self._postings.get(term)
        if found is None:
            found = self._postings[term] = array("I")
            self._term_bytes += 49 + len(term)
        return found

    def _reserve(self, count: int) -> None:
        needed = self._rows + count
        if needed > len(self._lengths):
            grown = np.zeros(max(needed, len(self._lengths) * 3 // 2), np.float32)
            grown[: self._rows] = self._lengths[: self._rows]
            self._lengths = grown

    def _add_many(self, texts: Sequence[str]) -> None:
        """As `add`, with sorting instead of a step a word: the load of a whole index comes through here."""
        self._reserve(len(texts))
        words = self._words.stream(texts)
        numbers: dict[str, int] = {}
        number_of = {}
        for word in dict.fromkeys(words):
            term = "" if word == END else self._words.streamed(word)
            number_of[word] = numbers.setdefault(term, len(numbers)) if term else _NO_TERM
        number_of[END] = _NEXT_ROW
        flat = np.fromiter(map(number_of.__getitem__, words), np.int32, len(words))
        rows = np.cumsum(flat == _NEXT_ROW)[flat >= 0]
        flat = flat[flat >= 0]
        lengths = np.bincount(rows, minlength=len(texts))
        # Rows ascend already, so that a stable sort by term is enough; of short numbers it is the fastest.
        order = np.argsort(flat.astype(np.uint16) if len(numbers) <= 1 << 16 else flat, kind="stable")
        keys = (flat.astype(np.int64) << 32 | rows + self._rows)[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.minimum(np.diff(first, append=len(keys)), _MOST)
        distinct = keys[first]
        packed = ((distinct & 0xFFFFFFFF) << 8 | counts).astype(np.uint32)
        cuts = np.searchsorted(distinct >> 32, np.arange(len(numbers) + 1)).tolist()
        data = packed.tobytes()
        for term, place in numbers.items():
            self._posting(term).frombytes(data[4 * cuts[place] : 4 * cuts[place + 1]])
            self._frequency[term] += cuts[place + 1] - cuts[place]
        self._posting_count += len(packed)
        self._lengths[self._rows : self._rows + len(texts)] = lengths
        self._total_length += int(lengths.sum())
        self._rows += len(texts)
        self._live += len(texts)
