"""The bundled model: one vector a token, from wordllama's table. Fast, offline, and without torch."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Encoding, Tokenizer

from sage_server.adapters.embedding.texts import WORD, EmbedderError, is_blank, load_tokenizer, parts
from sage_server.ports.embedding import Embedded, Vectors, WordWeight, unit

_TABLE = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")

_INLINE_CHARACTERS = 2_000  # about a millisecond: not worth a thread
_PART_TEXTS = 1_024
_PART_CHARACTERS = 200_000  # bounds the memory that the tokens of a part take
_BLOCK_TOKENS = 4_096  # their vectors fit into a core's cache


@dataclass(frozen=True, eq=False)
class _Words:
    """The words of a query: where they are, and what they count."""

    starts: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]
    weights: Vectors


class StaticEmbedder:
    """Averages the vectors of a text's tokens, all of them: nothing is cut off, whatever the length.

    In a query each token counts by the weight of the word that it lies in, and one outside of words
    (punctuation, spaces) not at all. A query in which nothing counts is averaged as a document is.
    """

    MODEL = "local/wordllama-256"

    def __init__(self, table: Vectors, tokenizer: Tokenizer, model: str) -> None:
        self._table = table
        self._tokenizer = tokenizer
        self._model = model
        self._is_space = np.zeros(len(table), dtype=np.bool_)
        self._is_space[[at for token, at in tokenizer.get_vocab().items() if not token.strip("▁")]] = True

    @classmethod
    def load(cls) -> StaticEmbedder:
        """Read the table and the tokenizer that the wordllama package carries.

        Raises EmbedderError if they are not there. The package's own code is not run: it looks for the
        tokenizer in a folder that the package does not have.
        """
        package = importlib.util.find_spec("wordllama")
        if package is None or not package.submodule_search_locations:
            raise EmbedderError("The bundled embedding model needs the package wordllama. Install it.")
        folder = Path(package.submodule_search_locations[0])
        if not (folder / _TABLE).is_file() or not (folder / _TOKENIZER).is_file():
            raise EmbedderError("The installed wordllama lacks its table or its tokenizer. Install 0.4.")
        (table,) = load_file(folder / _TABLE).values()
        # Stored as float16, which numpy adds up many times slower.
        return cls(
            np.ascontiguousarray(table, dtype=np.float32), load_tokenizer(folder / _TOKENIZER), cls.MODEL
        )

    @property
    def model(self) -> str:
        """See Embedder."""
        return self._model

    @property
    def dimensions(self) -> int:
        """See Embedder."""
        return int(self._table.shape[1])

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """See Embedder."""
        if sum(map(len, texts)) <= _INLINE_CHARACTERS:
            return self._embed(texts)
        return await asyncio.to_thread(self._embed, tuple(texts))

    async def embed_queries(self, texts: Sequence[str], weight: WordWeight) -> Embedded:
        """See Embedder."""
        words = [_words(text, weight) for text in texts]
        if sum(map(len, texts)) <= _INLINE_CHARACTERS:
            return self._embed_queries(texts, words)
        return await asyncio.to_thread(self._embed_queries, tuple(texts), words)

    def _embed(self, texts: Sequence[str]) -> Embedded:
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        tokens = 0
        for part in parts([len(text) for text in texts], _PART_TEXTS, _PART_CHARACTERS):
            shown = ["" if is_blank(text) else text for text in texts[part]]
            encoded = self._tokenizer.encode_batch_fast(shown, add_special_tokens=False)
            tokens += self._add_up(encoded, None, vectors[part])
        return Embedded(unit(vectors), tokens)

    def _embed_queries(self, texts: Sequence[str], words: Sequence[_Words]) -> Embedded:
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        tokens = 0
        for part in parts([len(text) for text in texts], _PART_TEXTS, _PART_CHARACTERS):
            shown = ["" if is_blank(text) else text for text in texts[part]]
            encoded = self._tokenizer.encode_batch(shown, add_special_tokens=False)
            weights = [self._weights(*pair) for pair in zip(encoded, words[part], strict=True)]
            tokens += self._add_up(encoded, np.concatenate(weights), vectors[part])
        return Embedded(unit(vectors), tokens)

    def _add_up(self, encoded: Sequence[Encoding], weights: Vectors | None, sums: Vectors) -> int:
        """Add each text's token vectors to its row of `sums`; answers with the number of tokens.

        Goes by blocks of tokens and not by texts, so that neither many short texts nor a long one cost more
        than their tokens do. The mean's divisor is left out: the length becomes 1 anyway.
        """
        ids = [encoding.ids for encoding in encoded]
        counts = np.fromiter(map(len, ids), dtype=np.intp, count=len(ids))
        flat = np.fromiter(chain.from_iterable(ids), dtype=np.intp, count=int(counts.sum()))
        owners = np.repeat(np.arange(len(ids)), counts)
        for start in range(0, len(flat), _BLOCK_TOKENS):
            block = slice(start, start + _BLOCK_TOKENS)
            rows = self._table[flat[block]]
            if weights is not None:
                rows *= weights[block, np.newaxis]
            firsts = np.flatnonzero(np.diff(owners[block], prepend=-1))
            sums[owners[block][firsts]] += np.add.reduceat(rows, firsts, axis=0)
        return len(flat)

    def _weights(self, encoding: Encoding, words: _Words) -> Vectors:
        """What each token of a query counts."""
        plain = np.ones(len(encoding), dtype=np.float32)
        if not len(encoding) or not len(words.weights):
            return plain
        starts, ends = np.array(encoding.offsets, dtype=np.intp).T
        # The first word that ends after the token starts; a token holds the space before its word.
        at = np.minimum(np.searchsorted(words.ends, starts, side="right"), len(words.ends) - 1)
        inside = (words.ends[at] > starts) & (words.starts[at] < ends)
        inside &= ~self._is_space[encoding.ids]
        found = np.where(inside, words.weights[at], np.float32(0))
        return found if found.any() else plain


def _words(text: str, weight: WordWeight) -> _Words:
    found = [(word.start(), word.end(), weight(word.group())) for word in WORD.finditer(text)]
    return _Words(
        starts=np.array([start for start, _, _ in found], dtype=np.intp),
        ends=np.array([end for _, end, _ in found], dtype=np.intp),
        weights=np.array([value for _, _, value in found], dtype=np.float32),
    )
