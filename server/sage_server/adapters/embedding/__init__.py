"""The models that make vectors: bundled, hashed, by a provider, and local in ONNX form."""

from __future__ import annotations

from sage_server.adapters.embedding.hash_model import HashEmbedder
from sage_server.adapters.embedding.installed import InstalledEmbedders
from sage_server.adapters.embedding.onnx_model import OnnxEmbedder
from sage_server.adapters.embedding.provider import ProviderEmbedder
from sage_server.adapters.embedding.provider_calls import ProviderLimits
from sage_server.adapters.embedding.static_model import StaticEmbedder
from sage_server.adapters.embedding.texts import EmbedderError

__all__ = [
    "EmbedderError",
    "HashEmbedder",
    "InstalledEmbedders",
    "OnnxEmbedder",
    "ProviderEmbedder",
    "ProviderLimits",
    "StaticEmbedder",
]
