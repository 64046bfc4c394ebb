"""A local sentence model in ONNX form, by path. Needs the extra `onnx`, and no torch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sage_server.adapters.embedding.texts import EmbedderError, is_blank, load_tokenizer, parts
from sage_server.ports.embedding import Embedded, Vectors, WordWeight, unit

if TYPE_CHECKING:
    from onnxruntime import InferenceSession  # type: ignore[import-untyped]

_BATCH_TEXTS = 32
_PART_TEXTS = 256
_PART_CHARACTERS = 200_000  # bounds the memory that the tokens of a part take
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_OUTPUT = "last_hidden_state"


class OnnxEmbedder:
    """The mean of a transformer's token vectors, padding left out.

    Only the first `max_tokens` tokens of a text count: such a model knows no later positions. Queries go as
    documents do: the model weighs words itself.
    """

    def __init__(self, session: InferenceSession, tokenizer: Tokenizer, name: str) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._name = name
        self._inputs = [field.name for field in session.get_inputs()]
        outputs = {field.name: field.shape for field in session.get_outputs() if len(field.shape) == 3}
        if not _INPUTS.issuperset(self._inputs) or not outputs:
            raise EmbedderError(f"The model takes other than {sorted(_INPUTS)}, or gives no token vectors.")
        self._output = _OUTPUT if _OUTPUT in outputs else next(iter(outputs))
        size = outputs[self._output][-1]
        self._dimensions = size if isinstance(size, int) else self._run([[0]]).shape[1]

    @classmethod
    def load(cls, folder: Path, max_tokens: int = 512) -> OnnxEmbedder:
        """Read `tokenizer.json` and `model.onnx`, or the one `*.onnx` there is, from a folder.

        The model is stored as `onnx/<name of the folder>`. Raises EmbedderError if something is missing.
        """
        try:
            import onnxruntime  # noqa: PLC0415 (an extra)
        except ImportError as error:
            raise EmbedderError("An ONNX model needs onnxruntime. Install sage-memory[onnx].") from error
        model, tokens = _model_file(folder), folder / "tokenizer.json"
        if not tokens.is_file():
            raise EmbedderError(f"There is no tokenizer.json in {folder}.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # its warnings would go to standard error past our log
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        tokenizer = load_tokenizer(tokens)
        tokenizer.enable_truncation(max_tokens)
        return cls(session, tokenizer, f"onnx/{folder.resolve().name}")

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
        return await asyncio.to_thread(self._embed, tuple(texts))

    async def embed_queries(self, texts: Sequence[str], weight: WordWeight) -> Embedded:  # noqa: ARG002
        """See Embedder."""
        return await self.embed(texts)

    def _embed(self, texts: Sequence[str]) -> Embedded:
        tokens = self._tokens(texts)
        rows = [row for row, text in enumerate(texts) if tokens[row] and not is_blank(text)]
        rows.sort(key=lambda row: len(tokens[row]))  # texts of like length need little padding
        vectors = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        for start in range(0, len(rows), _BATCH_TEXTS):
            batch = rows[start : start + _BATCH_TEXTS]
            vectors[batch] = self._run([tokens[row] for row in batch])
        return Embedded(unit(vectors), sum(len(tokens[row]) for row in rows))

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = []
        for part in parts([len(text) for text in texts], _PART_TEXTS, _PART_CHARACTERS):
            found += [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts[part]))]
        return found

    def _run(self, tokens: Sequence[Sequence[int]]) -> Vectors:
        """The mean vector of each row of tokens."""
        shape = (len(tokens), max(map(len, tokens)))
        ids, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, own in enumerate(tokens):
            ids[row, : len(own)], mask[row, : len(own)] = own, 1
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, dtype=np.int64)}
        (states,) = self._session.run([self._output], {name: known[name] for name in self._inputs})
        return _mean(states, mask)


def _mean(states: Vectors, mask: npt.NDArray[np.int64]) -> Vectors:
    sums = np.einsum("bsd,bs->bd", states, mask.astype(np.float32))
    means: Vectors = sums / mask.sum(axis=1, keepdims=True).astype(np.float32)
    return means


def _model_file(folder: Path) -> Path:
    if (folder / "model.onnx").is_file():
        return folder / "model.onnx"
    found = list(folder.glob("*.onnx"))
    if len(found) != 1:
        raise EmbedderError(f"There must be a model.onnx, or just one *.onnx, in {folder}.")
    return found[0]
