"""Feature flags, asked through OpenFeature."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.evaluation_context import EvaluationContext
from openfeature.flag_evaluation import Reason
from openfeature.provider import FeatureProvider, ProviderStatus
from openfeature.provider.no_op_provider import NoOpProvider

from sage_server.adapters.flags.provider import SCOPE, SageProvider
from sage_server.domain.flags import DEFAULTS, Feature, FlagScope, FlagState, feature_disabled
from sage_server.ports.flag_store import FlagSource

_SCOPES = {scope.name.lower(): scope for scope in FlagScope}
_NOBODY = EvaluationContext()
_READY_WITHIN = 10.0
_READY_POLL = 0.05


class OpenFeatureFlags:
    """Implements Flags.

    Sage's own flags come first. Where none is set at any level, another provider is asked, if there is one.
    What that one cannot answer is the default.
    """

    def __init__(self, source: FlagSource, own: OpenFeatureClient, another: OpenFeatureClient | None) -> None:
        self._source = source
        self._own = own
        self._another = another

    @classmethod
    async def open(cls, source: FlagSource, another: FeatureProvider | None = None) -> OpenFeatureFlags:
        """Make both providers ready. Another one that takes long goes on by itself, and until then the
        defaults hold."""
        # The library's registry is one for the process. A domain of its own keeps each application apart.
        domain = f"sage-{uuid4()}"
        api.set_provider_and_wait(SageProvider(source), domain)
        if another is None:
            return cls(source, api.get_client(domain), None)
        api.set_provider(another, f"{domain}-another")
        asked = api.get_client(f"{domain}-another")
        await _settled(asked)
        return cls(source, api.get_client(domain), asked)

    def close(self) -> None:
        """Let go of the providers, which shuts them down."""
        for client in (self._own, self._another):
            if client is not None:
                api.set_provider_and_wait(NoOpProvider(), client.domain)

    async def state(self, user_id: UUID, feature: Feature) -> FlagState:
        """Whether the feature is on for the user, and which level decided."""
        return await self._evaluated(user_id, feature)

    async def is_on(self, user_id: UUID, feature: Feature) -> bool:
        """Whether the feature is on for the user."""
        return (await self._evaluated(user_id, feature)).enabled

    async def globally_on(self, feature: Feature) -> bool:
        """Whether the feature is on for nobody in particular."""
        return (await self._evaluated(None, feature)).enabled

    async def require(self, user_id: UUID, feature: Feature) -> None:
        """Raise FEATURE_DISABLED unless the feature is on for the user."""
        state = await self._evaluated(user_id, feature)
        if not state.enabled:
            raise feature_disabled(feature, state.scope)

    async def _evaluated(self, user_id: UUID | None, feature: Feature) -> FlagState:
        # Before the library is asked: it would take a database that does not answer for the default.
        tenant = await self._source.prepare(user_id)
        context = _NOBODY if user_id is None else EvaluationContext(str(user_id), {"tenant": tenant})
        default = DEFAULTS[feature]
        details = await self._own.get_boolean_details_async(feature.value, default, context)
        if self._another is not None and details.reason == Reason.DEFAULT:
            details = await self._another.get_boolean_details_async(feature.value, default, context)
        if details.error_code is not None:
            return FlagState(default)
        return FlagState(details.value, _SCOPES.get(str(details.flag_metadata.get(SCOPE))))


async def _settled(client: OpenFeatureClient) -> None:
    """Wait until the provider is ready or has failed, but not for ever."""
    for _ in range(int(_READY_WITHIN / _READY_POLL)):
        if client.get_provider_status() is not ProviderStatus.NOT_READY:
            return
        await asyncio.sleep(_READY_POLL)
