"""The work: memories, queries, and the exact answers. The same for everybody, from a fixed seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float32]

DIMENSIONS = 384
_SEED = 20
_TOPICS = 200
_SPREAD = 1.0
"""Length of what a memory adds to its topic, relative to the topic: a cosine of about 0.5 within a topic."""
_TAGS = 100
_WORDS = 5000
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u")]


@dataclass(frozen=True)
class Memory:
    """A text with its tag. Its vector is the embedder's business."""

    text: str
    tag: str


@dataclass(frozen=True)
class Query:
    """What is asked, and the exact answer by vectors alone."""

    user: str
    text: str
    tag: str
    exact: frozenset[str]


class Embedder:
    """A stub: a vector that was made with the workload, or for any other text one from its hash. It costs as
    much as looking it up, for everybody."""

    def __init__(self) -> None:
        self._known: dict[str, Matrix] = {}

    def learn(self, texts: Sequence[str], vectors: Matrix) -> None:
        """These texts have these vectors."""
        self._known.update(zip(texts, vectors, strict=True))

    def vector(self, text: str) -> Matrix:
        """Of length 1."""
        known = self._known.get(text)
        if known is None:
            seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
            known = self._known[text] = _unit(np.random.default_rng(seed).standard_normal((1, DIMENSIONS)))[0]
        return known

    def values(self, text: str) -> list[float]:
        """The same as a list."""
        values: list[float] = self.vector(text).tolist()
        return values

    def matrix(self, texts: Sequence[str]) -> Matrix:
        """Vectors of several texts, one a row."""
        return np.stack([self.vector(text) for text in texts])


class Workload:
    """Makes memories and queries. Vectors come in topics, as those of a model do: with vectors that are far
    from each other in every direction an HNSW index would look worse than it is."""

    def __init__(self) -> None:
        self.embedder = Embedder()
        self._random = np.random.default_rng(_SEED)
        self._topics = _unit(self._random.standard_normal((_TOPICS, DIMENSIONS)))
        self._words = self._vocabulary()
        # Few words are frequent and most are rare, as in any language.
        weights = 1 / np.arange(10, len(self._words) + 10)
        self._weights = weights / weights.sum()
        self._made = 0

    def memories(self, count: int) -> list[Memory]:
        """New memories with texts that do not repeat. Each tag is on one of 100."""
        memories = []
        words = self._random.choice(self._words, (count, 14), p=self._weights)
        for row in words:
            self._made += 1
            memories.append(Memory(f"{' '.join(row)} {self._made}.", f"tag-{self._made % _TAGS}"))
        topics = self._topics[self._random.integers(0, _TOPICS, count)]
        self.embedder.learn([memory.text for memory in memories], self._near(topics))
        return memories

    def queries(
        self, user: str, memories: Sequence[Memory], count: int, k: int, *, words: bool
    ) -> list[Query]:
        """Questions near a memory of the user's, each once without and once with a tag.

        With `words` they share some with it, as questions do. Without, none of their words occurs anywhere:
        a hybrid search then ranks by vectors alone too, and the exact answer holds for everybody.
        """
        places = self._random.integers(0, len(memories), count)
        targets = [memories[place] for place in places]
        texts = [self._question(target, number, words) for number, target in enumerate(targets)]
        vectors = self._near(self.embedder.matrix([target.text for target in targets]))
        self.embedder.learn(texts, vectors)
        everything = self.embedder.matrix([memory.text for memory in memories])
        tags = np.array([memory.tag for memory in memories])
        queries = []
        for text, vector in zip(texts, vectors, strict=True):
            tag = f"tag-{self._random.integers(0, _TAGS)}"
            queries += [
                Query(user, text, "", _exact(memories, everything, vector, k)),
                Query(user, text, tag, _exact(memories, everything, vector, k, tags == tag)),
            ]
        return queries

    def _question(self, target: Memory, number: int, words: bool) -> str:
        if not words:
            return f"xq{number}x xw{self._random.integers(0, 1 << 40)}x"
        return " ".join(self._random.choice(target.text.split()[:-1], 5, replace=False))

    def _near(self, vectors: Matrix) -> Matrix:
        return _unit(vectors + _SPREAD * _unit(self._random.standard_normal(vectors.shape)))

    def _vocabulary(self) -> list[str]:
        words: dict[str, None] = {}
        while len(words) < _WORDS:
            syllables = self._random.choice(_SYLLABLES, int(self._random.integers(2, 5)))
            words["".join(syllables)] = None
        return list(words)


def _exact(
    memories: Sequence[Memory], vectors: Matrix, query: Matrix, k: int, mask: NDArray[np.bool_] | None = None
) -> frozenset[str]:
    scores = vectors @ query
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    best = np.argsort(-scores)[: k if mask is None else min(k, int(mask.sum()))]
    return frozenset(memories[place].text for place in best)


def _unit(vectors: NDArray[np.floating]) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Matrix = (vectors / lengths).astype(np.float32)
    return unit
