"""The providers of language models, as the settings name them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from sage_server.domain.models import DEFAULT_PROVIDER, PROVIDER_PATTERN, ModelProvider

_OWN = ("local", "offline")
_OPENAI_URL = "https://api.openai.com/v1"
_PROVIDERS = "SAGE_LLM_PROVIDERS"
_KEYS = "SAGE_LLM_PROVIDER_KEYS"
_NAMED = re.compile(rf"\s*({PROVIDER_PATTERN})=([!-~]+)\s*")


def model_providers(
    base_url: str | None, api_key: str | None, more: str, keys: str
) -> dict[str, ModelProvider]:
    """All of them by name; none if nothing is set. Raises ValueError, which names a setting and no value."""
    own = _named(_KEYS, keys)
    found = {name: ModelProvider(url, own.get(name)) for name, url in _named(_PROVIDERS, more).items()}
    if DEFAULT_PROVIDER in found:
        raise ValueError(f"{_PROVIDERS}: the address of `{DEFAULT_PROVIDER}` is SAGE_LLM_BASE_URL")
    if found.keys() & set(_OWN):
        raise ValueError(f"{_PROVIDERS}: {' and '.join(_OWN)} are this server's own")
    if not found.keys() >= own.keys():
        raise ValueError(f"{_KEYS}: there is a name that is not in {_PROVIDERS}")
    if not all(_is_address(provider.base_url) for provider in found.values()):
        raise ValueError(f"{_PROVIDERS}: every address must be like https://host/v1")
    if base_url is not None and not _is_address(base_url):
        raise ValueError("SAGE_LLM_BASE_URL: must be an address like https://host/v1")
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise ValueError("SAGE_LLM_API_KEY: must be of printable ASCII characters")
    if base_url or api_key:
        found[DEFAULT_PROVIDER] = ModelProvider(base_url or _OPENAI_URL, api_key)
    return found


def _named(setting: str, value: str) -> dict[str, str]:
    parts = [_NAMED.fullmatch(part) for part in value.split(",") if part.strip()]
    found = {part[1]: part[2] for part in parts if part}
    if len(found) < len(parts):
        raise ValueError(f"{setting}: must be name=value, separated by commas, every name once")
    return found


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
