"""The embedding models that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from sage_server.adapters.embedding import (
    EmbedderError,
    HashEmbedder,
    InstalledEmbedders,
    OnnxEmbedder,
    ProviderEmbedder,
    StaticEmbedder,
)
from sage_server.ports.embedding import Embedder, Embedders
from sage_server.settings import Settings

_HASH_DIMENSIONS = 256
_HASH = "hash/"
_PROVIDER = "openai/"


@asynccontextmanager
async def open_embedders(settings: Settings) -> AsyncIterator[Embedders]:
    """The current model, and those of vectors that are stored already. Raises EmbedderError."""
    async with AsyncExitStack() as stack:
        current = await _current(settings)
        if isinstance(current, ProviderEmbedder):
            stack.push_async_callback(current.close)
        yield InstalledEmbedders(current, partial(_stored, settings))


async def _current(settings: Settings) -> Embedder:
    if settings.embedding == "hash":
        return HashEmbedder(settings.embedding_dimensions or _HASH_DIMENSIONS)
    if settings.embedding == "onnx":
        assert settings.embedding_path is not None
        return OnnxEmbedder.load(settings.embedding_path)
    if settings.embedding == "openai":
        assert settings.embedding_base_url is not None
        return await ProviderEmbedder.connect(
            base_url=settings.embedding_base_url,
            api_key=_api_key(settings),
            model=settings.embedding_model,
            dimensions=settings.embedding_dimensions,
        )
    return StaticEmbedder.load()


def _stored(settings: Settings, model: str, dimensions: int) -> Embedder | None:
    """A model that vectors were made with, while they are being replaced."""
    try:
        if model == StaticEmbedder.MODEL:
            return StaticEmbedder.load()
        if model.startswith(_HASH):
            return HashEmbedder(dimensions)
        if settings.embedding_path is not None and model == f"onnx/{settings.embedding_path.name}":
            return OnnxEmbedder.load(settings.embedding_path)
    except EmbedderError:
        return None
    if model.startswith(_PROVIDER) and settings.embedding_base_url is not None:
        return ProviderEmbedder.known(
            base_url=settings.embedding_base_url,
            api_key=_api_key(settings),
            model=model.removeprefix(_PROVIDER),
            dimensions=dimensions,
        )
    return None


def _api_key(settings: Settings) -> str | None:
    key = settings.embedding_api_key
    return None if key is None else key.get_secret_value()
