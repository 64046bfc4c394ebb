"""A tiny sentence model in ONNX form, written byte by byte: a table of one vector a token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

WORDS = ("[PAD]", "[UNK]", "green", "tea", "black", "coffee", "rain")
"""The model's vocabulary. Padding has a vector as any other token: leaving it out is the adapter's work."""

_FLOAT, _INT64 = 1, 7


def token_vectors(dimensions: int) -> npt.NDArray[np.float32]:
    """The vector of each word."""
    return np.random.default_rng(7).normal(size=(len(WORDS), dimensions)).astype(np.float32)


def write_sentence_model(
    folder: Path,
    dimensions: int = 8,
    *,
    file: str = "model.onnx",
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    fixed: bool = True,
) -> None:
    """Write the model and its tokenizer. Unless `fixed`, the output does not say its dimensions."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_padding(length=16)  # files of published models ask for both
    tokenizer.enable_truncation(4)
    tokenizer.save(str(folder / "tokenizer.json"))
    table = token_vectors(dimensions)
    weights = b"".join(_number(1, size) for size in table.shape) + _number(2, _FLOAT)
    weights += _text(8, "table") + _bytes(9, table.tobytes())
    node = _text(1, "table") + _text(1, "input_ids") + _text(2, "last_hidden_state") + _text(4, "Gather")
    graph = _bytes(1, node) + _text(2, "tiny") + _bytes(5, weights)
    graph += b"".join(_bytes(11, _value(name, _INT64, ["batch", "length"])) for name in inputs)
    shape: list[str | int] = ["batch", "length", dimensions if fixed else "dimensions"]
    graph += _bytes(12, _value("last_hidden_state", _FLOAT, shape))
    model = _number(1, 8) + _bytes(7, graph) + _bytes(8, _text(1, "") + _number(2, 13))
    (folder / file).write_bytes(model)


def _value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    sizes = (_number(1, size) if isinstance(size, int) else _text(2, size) for size in shape)
    tensor = _number(1, kind) + _bytes(2, b"".join(_bytes(1, size) for size in sizes))
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
