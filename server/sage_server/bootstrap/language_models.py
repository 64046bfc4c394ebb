"""The language models that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sage_server.adapters.language_model import ConfiguredModels, ModelLimits
from sage_server.ports.language_model import LanguageModels, Purpose
from sage_server.ports.tokens import TokenCounter
from sage_server.settings import Settings


@asynccontextmanager
async def open_language_models(settings: Settings, tokens: TokenCounter) -> AsyncIterator[LanguageModels]:
    """Calls nobody. Without a provider in the settings there are no models."""
    limits = ModelLimits(
        at_once=settings.llm_concurrency,
        tries=settings.llm_tries,
        try_seconds=settings.llm_timeout,
        total_seconds=2 * settings.llm_timeout,
    )
    defaults = {
        Purpose.CHAT: settings.llm_model,
        Purpose.SUMMARY: settings.llm_summary_model or "",
        Purpose.ROUTING: settings.llm_routing_model or "",
    }
    models = ConfiguredModels(
        settings.model_providers, defaults, tokens, json_schema=settings.llm_json_schema, limits=limits
    )
    try:
        yield models
    finally:
        await models.close()
