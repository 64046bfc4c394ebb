"""Which language model the settings lead to, in words for who runs the server. Nobody is called."""

from __future__ import annotations

from urllib.parse import urlsplit

from sage_server.adapters.local_model import LOCAL_PROVIDER
from sage_server.adapters.offline_model import OFFLINE_PROVIDER
from sage_server.domain.models import full_name
from sage_server.settings import Settings

DEFAULT_NAME = "only the default name: SAGE_LLM_MODEL sets yours"
_UNSET = "no model is configured: set SAGE_LLM_BASE_URL, SAGE_LLM_GGUF or OPENAI_API_KEY"
_NOBODY = "SAGE_LLM_MODEL names nobody to ask: set SAGE_LLM_BASE_URL or OPENAI_API_KEY as well"
_UNNAMED = "SAGE_LLM_MODEL must name a model of a provider of SAGE_LLM_PROVIDERS, as provider/model"


def answering_model(settings: Settings) -> str:
    """`provider/model`, or the provider alone if it is this server itself; empty if there is none."""
    own = set() if settings.llm_gguf is None else {LOCAL_PROVIDER}
    if own and not has_model_name(settings):
        return LOCAL_PROVIDER
    known = own | settings.model_providers.keys()
    if not known and settings.offline_model:
        return OFFLINE_PROVIDER
    return full_name(settings.llm_model, known) or ""


def named_models(settings: Settings) -> list[str]:
    """All that the settings name, as `answering_model`, each once."""
    more = (settings.llm_summary_model or "", settings.llm_routing_model or "")
    full = [answering_model(settings), *(full_name(name, settings.model_providers) or "" for name in more)]
    return list(dict.fromkeys(name for name in full if name))


def described_model(settings: Settings, name: str) -> str:
    """The model that answers, by its `name`, where it is, and what may have been forgotten."""
    provider = name.partition("/")[0]
    if provider in ("", OFFLINE_PROVIDER):
        return f"{provider or 'none'} ({_without_a_model(settings)})"
    if provider not in settings.model_providers:
        return f"{name} (the file of SAGE_LLM_GGUF)"
    found = f"{name} at {shown_address(settings.model_providers[provider].base_url)}"
    return found if has_model_name(settings) else f"{found} ({DEFAULT_NAME})"


def is_without_effect(settings: Settings) -> bool:
    """Whether somebody configured a model and gets none."""
    none = answering_model(settings) in ("", OFFLINE_PROVIDER)
    return none and _without_a_model(settings) != _UNSET


def has_model_name(settings: Settings) -> bool:
    """Whether somebody chose the model that answers."""
    return "llm_model" in settings.model_fields_set


def shown_address(url: str) -> str:
    """Without what may be secret in it: a user's name, a password, a query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _without_a_model(settings: Settings) -> str:
    if settings.model_providers:
        return _UNNAMED
    return _NOBODY if has_model_name(settings) else _UNSET
