"""A local model in ONNX form."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sage_server.adapters.embedding import EmbedderError, OnnxEmbedder
from sage_server.ports.embedding import Vectors, unit
from support.onnx_model import WORDS, token_vectors, write_sentence_model


def mean(text: str) -> Vectors:
    rows = [WORDS.index(word if word in WORDS else "[UNK]") for word in text.split()]
    return unit(token_vectors(8)[rows].mean(axis=0, keepdims=True))


async def test_vectors_are_means_without_padding_in_the_order_of_the_texts(tmp_path: Path) -> None:
    write_sentence_model(tmp_path / "tiny")
    embedder = OnnxEmbedder.load(tmp_path / "tiny")
    assert (embedder.model, embedder.dimensions) == ("onnx/tiny", 8)
    texts = [
        " ".join(["green", "tea", "rain", "snow", "coffee"][: 1 + n % 5] * (1 + n % 3)) for n in range(70)
    ]
    found = await embedder.embed(texts)
    np.testing.assert_allclose(found.vectors, np.vstack([mean(text) for text in texts]), atol=1e-5)
    assert found.tokens == sum(len(text.split()) for text in texts)


async def test_only_the_first_tokens_count(tmp_path: Path) -> None:
    write_sentence_model(tmp_path)
    embedder = OnnxEmbedder.load(tmp_path, max_tokens=3)
    found = await embedder.embed(["green tea rain coffee coffee"])
    np.testing.assert_allclose(found.vectors, mean("green tea rain"), atol=1e-6)
    assert found.tokens == 3


async def test_the_inputs_are_those_that_the_model_asks_for(tmp_path: Path) -> None:
    for inputs in [("input_ids",), ("input_ids", "attention_mask", "token_type_ids")]:
        write_sentence_model(tmp_path, inputs=inputs)
        found = await OnnxEmbedder.load(tmp_path).embed(["green tea"])
        np.testing.assert_allclose(found.vectors, mean("green tea"), atol=1e-6)


async def test_a_model_that_does_not_say_its_dimensions_is_asked(tmp_path: Path) -> None:
    write_sentence_model(tmp_path, fixed=False)
    assert OnnxEmbedder.load(tmp_path).dimensions == 8


async def test_the_file_may_have_another_name_if_it_is_the_only_one(tmp_path: Path) -> None:
    write_sentence_model(tmp_path, file="quantized.onnx")
    assert OnnxEmbedder.load(tmp_path).dimensions == 8
    write_sentence_model(tmp_path, file="other.onnx")
    with pytest.raises(EmbedderError, match="just one"):
        OnnxEmbedder.load(tmp_path)


def test_what_is_missing_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EmbedderError, match=r"model\.onnx"):
        OnnxEmbedder.load(tmp_path)
    write_sentence_model(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(EmbedderError, match=r"tokenizer\.json"):
        OnnxEmbedder.load(tmp_path)
    write_sentence_model(tmp_path, inputs=("input_ids", "pixel_values"))
    with pytest.raises(EmbedderError, match="takes other"):
        OnnxEmbedder.load(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EmbedderError, match=r"sage-memory\[onnx\]"):
        OnnxEmbedder.load(tmp_path)
