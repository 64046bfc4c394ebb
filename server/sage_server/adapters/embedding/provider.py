"""Embeddings from any OpenAI-compatible provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sage_server.adapters.embedding.provider_calls import Answer, Encoding, ProviderCalls, ProviderLimits
from sage_server.adapters.embedding.texts import is_blank, parts
from sage_server.ports.embedding import Embedded, WordWeight, unit

_NO_KEY = "unused"  # the openai package insists on one; servers without keys ignore it


@dataclass(frozen=True)
class _Piece:
    """A stretch of the text of one row."""

    row: int
    text: str
    size: int


class ProviderEmbedder:
    """A model behind an HTTP interface.

    A text above `ProviderLimits.text_bytes` is embedded in pieces, and its vector is their mean by size, so
    nothing is cut off. Blank texts are not sent. Queries go as documents do: such a model weighs words
    itself.
    """

    def __init__(self, calls: ProviderCalls, name: str, dimensions: int, limits: ProviderLimits) -> None:
        self._calls = calls
        self._name = name
        self._dimensions = dimensions
        self._limits = limits

    @classmethod
    async def connect(
        cls,
        *,
        base_url: str,
        api_key: str | None,
        model: str,
        dimensions: int | None = None,
        prefix: str = "openai",
        encoding: Encoding = "base64",
        limits: ProviderLimits | None = None,
    ) -> ProviderEmbedder:
        """Prepare to call a model; it is stored as `<prefix>/<model>`.

        Without `dimensions` the provider is asked for one vector, and EMBEDDING_UNAVAILABLE is raised if it
        gives none. With them nothing is sent yet, and every answer must have that many.
        """
        limits = limits or ProviderLimits()
        calls = _calls(base_url, api_key, model, encoding, limits)
        if dimensions is None:
            try:
                dimensions = int((await calls.embed(["dimensions"], None)).vectors.shape[1])
            except BaseException:
                await calls.close()
                raise
        return cls(calls, f"{prefix}/{model}", dimensions, limits)

    @classmethod
    def known(
        cls, *, base_url: str, api_key: str | None, model: str, dimensions: int, prefix: str = "openai"
    ) -> ProviderEmbedder:
        """As `connect`, for a model whose dimensions are known."""
        limits = ProviderLimits()
        calls = _calls(base_url, api_key, model, "base64", limits)
        return cls(calls, f"{prefix}/{model}", dimensions, limits)

    async def close(self) -> None:
        """Close the connections. The embedder cannot be used afterwards."""
        await self._calls.close()

    @property
    def model(self) -> str:
        """See Embedder."""
        return self._name

    @property
    def dimensions(self) -> int:
        """See Embedder."""
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """See Embedder."""
        pieces = [
            piece for row, text in enumerate(texts) for piece in _pieces(row, text, self._limits.text_bytes)
        ]
        sizes = [piece.size for piece in pieces]
        batches = [pieces[part] for part in parts(sizes, self._limits.batch_texts, self._limits.batch_bytes)]
        answers = await self._embed_all(batches)
        vectors = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        for batch, answer in zip(batches, answers, strict=True):
            weights = np.array([piece.size for piece in batch], dtype=np.float32)
            np.add.at(vectors, [piece.row for piece in batch], answer.vectors * weights[:, np.newaxis])
        return Embedded(unit(vectors), sum(answer.tokens for answer in answers))

    async def embed_queries(self, texts: Sequence[str], weight: WordWeight) -> Embedded:  # noqa: ARG002
        """See Embedder."""
        return await self.embed(texts)

    async def _embed_all(self, batches: Sequence[Sequence[_Piece]]) -> list[Answer]:
        """All answers, or the first error; then what still runs is stopped, for nobody would use it."""
        running = [
            asyncio.create_task(self._calls.embed([piece.text for piece in batch], self._dimensions))
            for batch in batches
        ]
        try:
            return await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()


def _calls(
    base_url: str, api_key: str | None, model: str, encoding: Encoding, limits: ProviderLimits
) -> ProviderCalls:
    from openai import AsyncOpenAI  # noqa: PLC0415 (most of a second, and only this adapter needs it)

    # Retries and time limits are those of ProviderCalls.
    client = AsyncOpenAI(base_url=base_url, api_key=api_key or _NO_KEY, max_retries=0, timeout=None)
    return ProviderCalls(client, model, encoding, limits)


def _pieces(row: int, text: str, most: int) -> Iterator[_Piece]:
    """The text in pieces of at most so many bytes, cut between characters; the blank ones left out."""
    data = text.encode()
    start = 0
    while start < len(data):
        end = min(start + most, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:  # the middle of a character
            end -= 1
        piece = data[start:end].decode()
        if not is_blank(piece):
            yield _Piece(row, piece, end - start)
        start = end
