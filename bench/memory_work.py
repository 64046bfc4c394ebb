"""Memories to measure with: made-up texts whose words are as unequal as those of a language, and random
unit vectors. The same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

from sage.v1 import memory_service_pb2 as pb
from sage_server.domain.ids import new_id
from sage_server.domain.memories import Memory, MemorySource, Provenance

Matrix: TypeAlias = npt.NDArray[np.float32]

MEMORIES = 10_000
DIMENSIONS = (256, 1536)
_WORDS = 4_000
_BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
_SPEAKERS = ("Anna", "Ben")
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


class MemoryWork:
    """Makes texts, vectors and requests from a seed."""

    def __init__(self, dimensions: int, seed: int = 1) -> None:
        self.dimensions = dimensions
        self._random = np.random.default_rng(seed)
        syllables = self._random.integers(0, len(_SYLLABLES), (_WORDS, 4))
        lengths = self._random.integers(2, 5, _WORDS)
        self._words = np.array(
            [
                "".join(_SYLLABLES[one] for one in row[:length])
                for row, length in zip(syllables, lengths, strict=True)
            ]
        )
        frequency = 1 / np.arange(1, _WORDS + 1)
        self._frequency = frequency / frequency.sum()

    def texts(self, count: int, shortest: int = 15, longest: int = 25) -> list[str]:
        """Texts of so many words: a few words are in most of them, most words are rare."""
        lengths = self._random.integers(shortest, longest + 1, count)
        words = self._random.choice(self._words, int(lengths.sum()), p=self._frequency)
        ends = np.cumsum(lengths)
        return [" ".join(words[end - length : end]) for end, length in zip(ends, lengths, strict=True)]

    def vectors(self, count: int) -> Matrix:
        """Unit vectors, one a row."""
        drawn: Matrix = self._random.standard_normal((count, self.dimensions)).astype(np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn

    def memories(self, count: int) -> list[Memory]:
        """Memories as the store gives them."""
        now = datetime.now(UTC)
        return [
            Memory(new_id(now), MemorySource.ARCHIVAL, text, now, now, embedding_model="bench")
            for text in self.texts(count)
        ]

    def messages(self, count: int, conversation_id: UUID, first: int) -> list[Memory]:
        """Messages of one conversation as the store gives them, a minute apart."""
        return [
            memory._replace(
                source=MemorySource.MESSAGE,
                created_at=_BEGINNING + timedelta(minutes=seq),
                provenance=Provenance(
                    conversation_id=conversation_id,
                    item_id=memory.id,
                    item_seq=seq,
                    origin=_SPEAKERS[seq % 2],
                ),
            )
            for seq, memory in enumerate(self.memories(count), first)
        ]

    def insert_request(self, texts: Sequence[str], vectors: Matrix) -> pb.BatchInsertMemoriesRequest:
        """A batch, for a request id to be added."""
        return pb.BatchInsertMemoriesRequest(
            requests=[
                pb.InsertMemoryRequest(text=text, embedding=vector)
                for text, vector in zip(texts, vectors, strict=True)
            ]
        )

    def search_requests(self, vectors: Matrix) -> list[bytes]:
        """A search for each vector, with a few words, as it is sent."""
        texts = self.texts(len(vectors), 5, 8)
        return [
            pb.SearchMemoriesRequest(query=text, query_embedding=vector).SerializeToString()
            for text, vector in zip(texts, vectors, strict=True)
        ]
