"""Which models a provider has: a question that costs nothing, to see whether the provider can be used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Set as AbstractSet

from sage_server.domain.models import ModelProvider

_NO_KEY = "unused"  # as in ConfiguredModels
_NO_LIST = (404, 405, 501)
_KEY_REFUSED = (401, 403)


class ListingError(Exception):
    """The provider cannot be used. The message says why, without the key and without the provider's words."""


async def listed_models(provider: ModelProvider, seconds: float) -> AbstractSet[str] | None:
    """The names of its models; None if it answers and has no such list. Raises ListingError."""
    import openai  # noqa: PLC0415 (most of a second, and not always needed)

    client = openai.AsyncOpenAI(
        base_url=provider.base_url, api_key=provider.api_key or _NO_KEY, max_retries=0
    )
    try:
        async with client, asyncio.timeout(seconds):
            raw = await client.models.with_raw_response.list()
    except (TimeoutError, openai.APITimeoutError):
        raise ListingError(f"does not answer within {seconds:g} s") from None
    except openai.APIConnectionError:
        raise ListingError("cannot be reached") from None
    except openai.APIStatusError as error:
        if error.status_code in _NO_LIST:
            return None
        if error.status_code in _KEY_REFUSED:
            raise ListingError("refuses the key" if provider.api_key else "wants a key") from None
        raise ListingError(f"answers with the error {error.status_code}") from None
    return _read(raw.content)


def _read(body: bytes) -> AbstractSet[str]:
    try:
        return frozenset(str(model["id"]) for model in json.loads(body)["data"])
    except (ValueError, KeyError, TypeError):
        raise ListingError("answers, but not with OpenAI's protocol") from None
