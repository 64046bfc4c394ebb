"""One call for embeddings to an OpenAI-compatible provider: tries, waits, and the check of the answer.

Nothing of what a provider says reaches an error or a log: it may quote the texts.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from sage_server.adapters.retry_waits import backoff, retry_after
from sage_server.domain.embeddings import UnavailableCause, embedding_unavailable
from sage_server.ports.embedding import Vectors, unit

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

_log = logging.getLogger("sage.embedding")

_LARGEST = float(np.finfo(np.float32).max)

Encoding: TypeAlias = Literal["base64", "float"]
"""How vectors are asked for. Both are understood, whatever was asked for."""


@dataclass(frozen=True)
class ProviderLimits:
    """How much a provider is asked at a time, and for how long.

    Sizes are in bytes of UTF-8, of which no token has less than one: so the limits of the providers, 8,192
    tokens a text and 300,000 a request, hold for every language.
    """

    batch_texts: int = 128
    batch_bytes: int = 200_000
    text_bytes: int = 8_000
    at_once: int = 4
    tries: int = 5
    backoff_seconds: float = 0.5
    try_seconds: float = 30.0
    total_seconds: float = 60.0


@dataclass(frozen=True, eq=False)
class Answer:
    """The vectors of one batch, at length 1, and what they cost."""

    vectors: Vectors
    tokens: int


@dataclass(frozen=True)
class _Failure:
    """Why a try gave nothing, whether another may, and how long the provider asks to wait before it."""

    cause: UnavailableCause
    again: bool
    wait_seconds: float | None = None
    status: int | None = None


class ProviderCalls:
    """Calls one model of one provider, a limited number at once."""

    def __init__(self, client: AsyncOpenAI, model: str, encoding: Encoding, limits: ProviderLimits) -> None:
        self._client = client
        self._model = model
        self._encoding = encoding
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.at_once)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def embed(self, texts: Sequence[str], dimensions: int | None) -> Answer:
        """The vectors of one batch. Raises EMBEDDING_UNAVAILABLE when the tries or the time are used up, or
        when another try would be of no use. Without `dimensions` any number of them will do.

        A turn is given back while waiting: a batch that backs off does not hold up another.
        """
        clock = asyncio.get_running_loop().time
        tries, deadline = 0, math.inf
        while True:
            tries += 1
            async with self._turns:
                if tries == 1:  # waiting for the first turn is not the provider's time
                    deadline = clock() + self._limits.total_seconds
                outcome = await self._try(texts, dimensions, deadline - clock())
            if isinstance(outcome, Answer):
                return outcome
            wait = self._wait(outcome, tries)
            if not outcome.again or tries >= self._limits.tries or clock() + wait >= deadline:
                _log.warning(
                    "the embedding provider failed: %s", outcome.cause, extra={"status": outcome.status}
                )
                raise embedding_unavailable(outcome.cause)
            await asyncio.sleep(wait)

    async def _try(self, texts: Sequence[str], dimensions: int | None, seconds: float) -> Answer | _Failure:
        import openai  # noqa: PLC0415 (most of a second, and only this adapter needs it)

        try:
            async with asyncio.timeout(min(seconds, self._limits.try_seconds)):
                # Raw: the package would make an object of every number.
                raw = await self._client.embeddings.with_raw_response.create(
                    input=list(texts), model=self._model, encoding_format=self._encoding
                )
        except (TimeoutError, openai.APITimeoutError):
            return _Failure("timeout", again=True)
        except openai.APIConnectionError:
            return _Failure("unreachable", again=True)
        except openai.APIStatusError as error:
            return _refusal(error)
        return _read(raw.content, len(texts), dimensions) or _Failure("malformed", again=False)

    def _wait(self, failure: _Failure, tries: int) -> float:
        if failure.wait_seconds is not None:
            return failure.wait_seconds
        return backoff(self._limits.backoff_seconds, tries)


def _refusal(error: APIStatusError) -> _Failure:
    status, headers = error.status_code, error.response.headers
    cause: UnavailableCause = "refused"
    if status == 429:
        cause = "rate_limited"
    elif status == 408:
        cause = "timeout"
    elif status >= 500:
        cause = "unreachable"
    # OpenAI says by this header that a quota is used up, which no wait of ours brings back.
    again = cause != "refused" and headers.get("x-should-retry") != "false"
    return _Failure(cause, again, retry_after(headers.get("retry-after")), status)


def _read(body: bytes, count: int, dimensions: int | None) -> Answer | None:
    """The answer, if it is what was asked for."""
    try:
        answer = json.loads(body)
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        vectors = np.array([_numbers(row["embedding"]) for row in rows], dtype=np.float64)
        tokens = int((answer.get("usage") or {}).get("prompt_tokens") or 0)
        indexes = [row["index"] for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    if indexes != list(range(count)) or vectors.ndim != 2 or not vectors.shape[1]:
        return None
    if dimensions is not None and vectors.shape[1] != dimensions:
        _log.warning("the embedding provider's vectors have %d dimensions", vectors.shape[1])
        return None
    if not (np.abs(vectors) <= _LARGEST).all():  # neither is what is no number
        return None
    return Answer(unit(vectors), max(tokens, 0))


def _numbers(embedding: Any) -> Any:
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    return embedding
