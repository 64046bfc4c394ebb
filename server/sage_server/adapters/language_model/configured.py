"""The models that the settings allow, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sage_server.adapters.language_model.limits import ModelLimits
from sage_server.adapters.language_model.provider import ProviderModel
from sage_server.adapters.language_model.requests import SchemaMode
from sage_server.domain.models import (
    ModelName,
    ModelProvider,
    full_name,
    model_not_configured,
    model_unknown,
)
from sage_server.ports.language_model import LanguageModel, Purpose
from sage_server.ports.tokens import TokenCounter

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MODELS_KEPT = 1000
_NO_KEY = "unused"  # the openai package insists on one; servers without keys ignore it
_INSTEAD = {
    Purpose.CHAT: (Purpose.CHAT,),
    Purpose.SUMMARY: (Purpose.SUMMARY, Purpose.CHAT),
    Purpose.ROUTING: (Purpose.ROUTING, Purpose.SUMMARY, Purpose.CHAT),
}


@dataclass(frozen=True)
class _Provider:
    client: AsyncOpenAI
    turns: asyncio.Semaphore


class ConfiguredModels:
    """Implements LanguageModels. Must be closed.

    A default is named as in a setting (`full_name`). A purpose without one has that of a more general one.
    With `offline`, these are the defaults, and known by their own name.
    """

    def __init__(
        self,
        providers: Mapping[str, ModelProvider],
        defaults: Mapping[Purpose, str],
        tokens: TokenCounter,
        *,
        json_schema: SchemaMode = "auto",
        limits: ModelLimits | None = None,
        offline: Mapping[Purpose, LanguageModel] | None = None,
    ) -> None:
        self._limits = limits or ModelLimits()
        self._providers = {name: self._connect(address) for name, address in providers.items()}
        self._defaults = defaults
        self._tokens = tokens
        self._json_schema: SchemaMode = json_schema
        self._offline = offline
        # Kept, for a model learns what its provider does not take. Callers name models, so not all.
        self._model = lru_cache(_MODELS_KEPT)(self._make)

    async def close(self) -> None:
        """Close the connections. No model can be used afterwards."""
        for provider in self._providers.values():
            await provider.client.close()

    def get(self, name: str, purpose: Purpose) -> LanguageModel:
        """See LanguageModels."""
        if self._offline is not None and name in ("", self._offline[purpose].name):
            return self._offline[purpose]
        name = name or self._default(purpose)
        parsed = ModelName.parse(name)
        if parsed is None or parsed.provider not in self._providers:
            raise model_unknown(name)
        return self._model(parsed)

    def _default(self, purpose: Purpose) -> str:
        name = next((name for one in _INSTEAD[purpose] if (name := self._defaults.get(one, ""))), "")
        full = full_name(name, self._providers)
        if full is None:
            raise model_not_configured(purpose.value)
        return full

    def _make(self, name: ModelName) -> ProviderModel:
        found = self._providers[name.provider]
        return ProviderModel(
            found.client,
            name=name,
            tokens=self._tokens,
            turns=found.turns,
            limits=self._limits,
            json_schema=self._json_schema,
        )

    def _connect(self, address: ModelProvider) -> _Provider:
        from openai import AsyncOpenAI, Timeout  # noqa: PLC0415 (most of a second, and not always needed)

        client = AsyncOpenAI(
            base_url=address.base_url,
            api_key=address.api_key or _NO_KEY,
            max_retries=0,  # retries and other time limits are those of ProviderModel
            timeout=Timeout(None, connect=self._limits.connect_seconds),
        )
        return _Provider(client, asyncio.Semaphore(self._limits.at_once))
