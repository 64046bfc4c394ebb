"""A model without a table: words hashed to dimensions. For tests, and where no model may be used."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from sage_server.adapters.embedding.texts import WORD
from sage_server.ports.embedding import Embedded, Vectors, WordWeight, unit

_INLINE_WORDS = 500


class HashEmbedder:
    """Signed feature hashing of lower-cased words: texts are alike as far as they share words.

    The same text gives the same vector in every process and version. Should the words of a text cancel each
    other out, its first word stands alone.
    """

    def __init__(self, dimensions: int = 256) -> None:
        self._dimensions = dimensions

    @property
    def model(self) -> str:
        """See Embedder."""
        return f"hash/{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """See Embedder."""
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """See Embedder."""
        return await self._embed([[(word, 1.0) for word in WORD.findall(text)] for text in texts])

    async def embed_queries(self, texts: Sequence[str], weight: WordWeight) -> Embedded:
        """See Embedder."""
        return await self._embed([_weighted(WORD.findall(text), weight) for text in texts])

    async def _embed(self, texts: Sequence[Sequence[tuple[str, float]]]) -> Embedded:
        if sum(map(len, texts)) <= _INLINE_WORDS:
            return self._hash(texts)
        return await asyncio.to_thread(self._hash, texts)

    def _hash(self, texts: Sequence[Sequence[tuple[str, float]]]) -> Embedded:
        vectors = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        for row, words in zip(vectors, texts, strict=True):
            self._add(row, words)
            if words and not row.any():
                self._add(row, [(words[0][0], 1.0)])
        return Embedded(unit(vectors), sum(map(len, texts)))

    def _add(self, row: Vectors, words: Iterable[tuple[str, float]]) -> None:
        for word, weight in words:
            digest = hashlib.blake2b(word.lower().encode(), digest_size=8).digest()
            number = int.from_bytes(digest, "big")
            row[(number >> 1) % self._dimensions] += weight if number & 1 else -weight


def _weighted(words: Sequence[str], weight: WordWeight) -> list[tuple[str, float]]:
    weights = [weight(word) for word in words]
    return list(zip(words, weights if any(weights) else [1.0] * len(words), strict=True))
