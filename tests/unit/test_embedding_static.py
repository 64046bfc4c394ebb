"""The bundled model."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from sage_server.adapters.embedding import EmbedderError, StaticEmbedder
from sage_server.ports.embedding import Vectors, unit


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder.load()


def token_rows(embedder: StaticEmbedder, text: str) -> Vectors:
    """The vectors of a text's tokens, by the plainest way to them."""
    return embedder._table[embedder._tokenizer.encode(text, add_special_tokens=False).ids]


async def test_the_name_and_the_size_are_those_of_the_table(embedder: StaticEmbedder) -> None:
    assert (embedder.model, embedder.dimensions) == ("local/wordllama-256", 256)


async def test_a_document_is_the_mean_of_its_tokens(embedder: StaticEmbedder) -> None:
    texts = ["Hello, wörld! Ça va?", "tea", "No padding, no special tokens. " * 300]
    expected = np.stack([token_rows(embedder, text).mean(axis=0) for text in texts])
    found = await embedder.embed(texts)
    np.testing.assert_allclose(found.vectors, unit(expected), atol=1e-5)
    assert found.tokens == sum(len(token_rows(embedder, text)) for text in texts)


async def test_like_meanings_are_nearer_than_unlike_ones(embedder: StaticEmbedder) -> None:
    dog, puppy, tax = (
        await embedder.embed(["my dog is ill", "the puppy is sick", "income tax return"])
    ).vectors
    assert dog @ puppy > dog @ tax + 0.2


async def test_a_query_counts_the_tokens_of_a_word_by_the_words_weight(embedder: StaticEmbedder) -> None:
    text = "Oh, when is Schaffhausen's fair?"
    encoding = embedder._tokenizer.encode(text, add_special_tokens=False)
    weights = {"Oh": 0.0, "when": 0.5, "is": 0.0, "Schaffhausen": 4.0, "s": 0.0, "fair": 0.0}
    # A token holds the space before its word.
    of_token = np.array([0.5 if at == 3 else 4.0 if 11 <= at < 24 else 0.0 for at, _ in encoding.offsets])
    assert (of_token == 4.0).sum() > 1
    assert (of_token == 0.5).sum() == 1
    expected = unit(np.array([of_token @ token_rows(embedder, text)]))
    found = await embedder.embed_queries([text], weights.__getitem__)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    assert found.tokens == len(encoding)


async def test_punctuation_counts_only_when_there_is_nothing_else(embedder: StaticEmbedder) -> None:
    word, marked, marks = (await embedder.embed_queries(["tea", "tea ?!", "?!"], lambda word: 2.0)).vectors
    np.testing.assert_allclose(word, marked, atol=1e-6)
    np.testing.assert_array_equal(marks, (await embedder.embed(["?!"])).vectors[0])


async def test_the_space_before_a_word_never_counts(embedder: StaticEmbedder) -> None:
    """A first character without a token of its own leaves a space behind, at the place of the word."""
    assert len(token_rows(embedder, "日")) == 2
    (found,) = (await embedder.embed_queries(["日"], lambda word: 1.0)).vectors
    np.testing.assert_allclose(found, unit(token_rows(embedder, "日")[1:])[0], atol=1e-6)


async def test_words_are_weighed_as_they_are_written(embedder: StaticEmbedder) -> None:
    asked: list[str] = []

    def weight(word: str) -> float:
        asked.append(word)
        return 1.0

    await embedder.embed_queries(["Don't STOP", "naïve_1"], weight)
    assert asked == ["Don", "t", "STOP", "naïve_1"]


def test_the_tokenizers_cache_can_be_turned_off(embedder: StaticEmbedder) -> None:
    """The switch is not official. Without it texts would be kept beyond their user's erasure."""
    assert hasattr(embedder._tokenizer.model, "_resize_cache")


def test_a_missing_package_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbedderError, match="needs the package wordllama"):
        StaticEmbedder.load()
