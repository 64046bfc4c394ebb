"""What every embedder owes, held by each that needs no network."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sage_server.adapters.embedding import HashEmbedder, InstalledEmbedders, OnnxEmbedder, StaticEmbedder
from sage_server.ports.embedding import Embedder
from support.onnx_model import write_sentence_model

TEXTS = ["green tea", "black coffee", "rain, rain and more rain", "tea?!", "日本語 🙂", "a\0b"]


@pytest.fixture(scope="session", params=["static", "hash", "onnx"])
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    if request.param == "static":
        return StaticEmbedder.load()
    if request.param == "hash":
        return HashEmbedder()
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_sentence_model(folder)
    return OnnxEmbedder.load(folder)


def by_length(word: str) -> float:
    return float(len(word))


async def test_rows_have_length_one_and_are_contiguous_float32(embedder: Embedder) -> None:
    for found in [await embedder.embed(TEXTS), await embedder.embed_queries(TEXTS, by_length)]:
        assert found.vectors.shape == (len(TEXTS), embedder.dimensions)
        assert found.vectors.dtype == np.float32
        assert found.vectors.flags.c_contiguous
        np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-6)
        assert found.tokens >= len(TEXTS)


async def test_a_text_has_the_same_vector_alone_and_among_others(embedder: Embedder) -> None:
    """Many, so that the work is done in parts and in another thread."""
    many = [f"{TEXTS[n % len(TEXTS)]} {'tea ' * (n % 40)}" for n in range(3_000)]
    together = await embedder.embed(many)
    for n in (0, 1, 39, 1_024, 1_025, 2_999):
        alone = await embedder.embed([many[n]])
        np.testing.assert_allclose(together.vectors[n], alone.vectors[0], atol=1e-5)
    queries = await embedder.embed_queries(many, by_length)
    alone = await embedder.embed_queries([many[2_999]], by_length)
    np.testing.assert_allclose(queries.vectors[2_999], alone.vectors[0], atol=1e-5)


async def test_blank_texts_are_zeros_and_disturb_no_other(embedder: Embedder) -> None:
    found = await embedder.embed(["", "tea", " \n\t\u00a0", "", "coffee", ""])
    plain = await embedder.embed(["tea", "coffee"])
    assert not found.vectors[[0, 2, 3, 5]].any()
    np.testing.assert_allclose(found.vectors[[1, 4]], plain.vectors, atol=1e-6)
    assert found.tokens == plain.tokens
    asked = await embedder.embed_queries(["", "tea", "  "], by_length)
    assert not asked.vectors[[0, 2]].any()
    assert asked.vectors[1].any()


async def test_no_texts_are_no_rows(embedder: Embedder) -> None:
    for found in [await embedder.embed([]), await embedder.embed_queries([], by_length)]:
        assert found.vectors.shape == (0, embedder.dimensions)
        assert found.tokens == 0


async def test_the_longest_texts_are_taken(embedder: Embedder) -> None:
    texts = ["tea " * 25_000, "x" * 100_000, "🙂" * 100_000]
    found = await embedder.embed(texts)
    np.testing.assert_allclose(np.linalg.norm(found.vectors[:2], axis=1), 1, atol=1e-6)
    assert np.isfinite(found.vectors).all()
    asked = await embedder.embed_queries(texts, by_length)
    np.testing.assert_allclose(np.linalg.norm(asked.vectors[:2], axis=1), 1, atol=1e-6)


async def test_weights_that_are_all_zero_count_as_none(embedder: Embedder) -> None:
    ignored = await embedder.embed_queries(TEXTS, lambda word: 0.0)
    np.testing.assert_allclose(ignored.vectors, (await embedder.embed(TEXTS)).vectors, atol=1e-6)


async def test_weights_are_asked_before_anything_is_awaited(embedder: Embedder) -> None:
    """So they may read what only the event loop's thread may touch. A driven coroutine awaits nothing yet."""
    over = False

    def weight(word: str) -> float:
        assert not over
        return 1.0

    running = asyncio.ensure_future(embedder.embed_queries(["tea " * 5_000], weight))
    await asyncio.sleep(0)
    over = True
    assert (await running).vectors.any()


def test_stored_names_lead_to_their_embedders() -> None:
    current, made = HashEmbedder(64), []

    def make(model: str, dimensions: int) -> Embedder | None:
        made.append((model, dimensions))
        return HashEmbedder(128) if model == "hash/128" else None

    embedders = InstalledEmbedders(current, make)
    assert embedders.current is current
    assert embedders.of("hash/64", 64) is current
    other = embedders.of("hash/128", 128)
    assert other is not None
    assert other.dimensions == 128
    assert embedders.of("hash/128", 128) is other
    assert embedders.of("hash/128", 64) is None, "a model of the same name with other dimensions is another"
    assert embedders.of("openai/gone", 8) is None
    assert made == [("hash/128", 128), ("hash/128", 64), ("openai/gone", 8)]


def test_packages_that_only_some_models_need_are_not_imported() -> None:
    code = (
        "import sys, sage_server.adapters.embedding as e; e.StaticEmbedder.load();"
        "print([name for name in ('openai', 'onnxruntime', 'wordllama', 'torch') if name in sys.modules])"
    )
    server = Path(sys.modules["sage_server"].__path__[0]).parent
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=server)
    assert ran.stdout.strip() == "[]"
