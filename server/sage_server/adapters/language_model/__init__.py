"""Language models behind an OpenAI-compatible HTTP interface."""

from __future__ import annotations

from sage_server.adapters.language_model.configured import ConfiguredModels
from sage_server.adapters.language_model.limits import ModelLimits
from sage_server.adapters.language_model.listing import ListingError, listed_models
from sage_server.adapters.language_model.provider import ProviderModel
from sage_server.adapters.language_model.requests import SchemaMode

__all__ = [
    "ConfiguredModels",
    "ListingError",
    "ModelLimits",
    "ProviderModel",
    "SchemaMode",
    "listed_models",
]
