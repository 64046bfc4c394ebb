"""The language models that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sage_server.adapters.language_model import ConfiguredModels, ModelLimits
from sage_server.adapters.local_model import LOCAL_PROVIDER, LocalModelError, LocalModelServer
from sage_server.adapters.offline_model import offline_models
from sage_server.ports.language_model import LanguageModels, Purpose
from sage_server.ports.tokens import TokenCounter
from sage_server.settings import Settings, SettingsError


@asynccontextmanager
async def open_language_models(settings: Settings, tokens: TokenCounter) -> AsyncIterator[LanguageModels]:
    """Calls nobody. A model file is loaded, and served until the block ends. Without a file or a provider in
    the settings there is the offline model, unless that is switched off too. Raises SettingsError."""
    limits = ModelLimits(
        at_once=settings.llm_concurrency,
        tries=settings.llm_tries,
        try_seconds=settings.llm_timeout,
        total_seconds=2 * settings.llm_timeout,
    )
    async with AsyncExitStack() as stack:
        providers, chat = dict(settings.model_providers), settings.llm_model
        if settings.llm_gguf is not None:
            local = await _serve(settings.llm_gguf)
            stack.push_async_callback(local.close)
            providers[LOCAL_PROVIDER] = local.provider
            if "llm_model" not in settings.model_fields_set:
                chat = str(local.model)
        defaults = {
            Purpose.CHAT: chat,
            Purpose.SUMMARY: settings.llm_summary_model or "",
            Purpose.ROUTING: settings.llm_routing_model or "",
        }
        models = ConfiguredModels(
            providers,
            defaults,
            tokens,
            json_schema=settings.llm_json_schema,
            limits=limits,
            offline=None if providers or not settings.offline_model else offline_models(tokens),
        )
        stack.push_async_callback(models.close)
        yield models


async def _serve(path: Path) -> LocalModelServer:
    try:
        return await LocalModelServer.start(path)
    except LocalModelError as error:
        raise SettingsError(f"SAGE_LLM_GGUF: {error}") from None
