"""One model of an OpenAI-compatible provider."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from sage_server.adapters.language_model.answers import Answer
from sage_server.adapters.language_model.attempts import Part, attempt
from sage_server.adapters.language_model.failures import UNUSABLE, Failure
from sage_server.adapters.language_model.limits import ModelLimits
from sage_server.adapters.language_model.requests import Extra, SchemaMode, extras_of, request_of
from sage_server.adapters.retry_waits import backoff
from sage_server.domain.errors import SageError
from sage_server.domain.models import (
    ModelName,
    model_context_too_long,
    model_output_empty,
    model_rate_limited,
    model_refused,
    model_rejected,
    model_timeout,
    model_unavailable,
)
from sage_server.domain.turns import TokenUsage
from sage_server.ports.language_model import Completion, Piece, Prompt, Reply, Restarted
from sage_server.ports.tokens import TokenCounter

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = logging.getLogger("sage.language_model")


class _Course:
    """How a call goes on after a try that failed: at once and plainer, after a wait, or not at all."""

    def __init__(self, extras: list[Extra], keep: frozenset[Extra], limits: ModelLimits) -> None:
        self.extras = extras
        self.dropped: Extra | None = None
        self._keep = keep
        self._limits = limits
        self._tries = self._empty = 0
        self._deadline = math.inf

    def begin(self, now: float) -> float:
        """When a try that begins now must end. Waiting for the first one is not the provider's time."""
        if self._deadline == math.inf:
            self._deadline = now + self._limits.total_seconds
        return min(self._deadline, now + self._limits.try_seconds)

    def wait(self, failure: Failure, now: float) -> float | None:
        """Seconds until the next try; None if there is none."""
        if failure.of_the_request:
            return 0.0 if self._plainer(failure) else None
        self._tries += 1
        self._empty += failure.cause == "empty"
        wait = failure.wait_seconds
        if wait is None:
            wait = backoff(self._limits.backoff_seconds, self._tries)
        over = self._tries >= self._limits.tries or self._empty > 1 or now + wait >= self._deadline
        return wait if failure.again and not over else None

    def _plainer(self, failure: Failure) -> bool:
        """Do without what the provider complains of, or else without what it most likely does not know."""
        spare = [extra for extra in self.extras if extra not in self._keep]
        named = [extra for extra in spare if extra in failure.blamed]
        self.dropped = next(iter(named or spare), None)
        self.extras = [extra for extra in self.extras if extra is not self.dropped]
        return self.dropped is not None


class ProviderModel:
    """Implements LanguageModel.

    Models of one provider share `turns`, which limits the calls at once. A call that waits for its next try
    holds none. What the provider rejects in a request (a JSON schema with mode `auto`, the usage of a stream,
    the newer name of the limit of tokens) is left out, and for good once a call went well without it.
    """

    def __init__(
        self,
        client: AsyncOpenAI,
        *,
        name: ModelName,
        tokens: TokenCounter,
        turns: asyncio.Semaphore,
        limits: ModelLimits,
        json_schema: SchemaMode = "auto",
    ) -> None:
        self._client = client
        self._name = name
        self._tokens = tokens
        self._turns = turns
        self._limits = limits
        self._json_schema: SchemaMode = json_schema
        self._unsupported: set[Extra] = set()

    @property
    def name(self) -> str:
        """See LanguageModel."""
        return str(self._name)

    async def ask(self, prompt: Prompt, *, stream: bool) -> AsyncGenerator[Reply, None]:
        """See LanguageModel."""
        clock = asyncio.get_running_loop().time
        course = self._course(prompt, stream=stream)
        while True:
            said = False
            outcome: Part = UNUSABLE
            async with self._turns:
                request = request_of(self._name.model, prompt, course.extras, stream=stream)
                parts = attempt(self._client, request, self._limits, course.begin(clock()))
                async with aclosing(parts):
                    async for outcome in parts:
                        if isinstance(outcome, Piece):
                            said = True
                            yield outcome
            if isinstance(outcome, Answer):
                break
            assert isinstance(outcome, Failure)
            wait = course.wait(outcome, clock())
            if wait is None:
                raise self._error(outcome, prompt)
            if said:
                yield Restarted()
            await asyncio.sleep(wait)
        # Only the last: those dropped before it were of no help, and are asked for again.
        if course.dropped is not None:
            self._unsupported.add(course.dropped)
        if stream and not said:
            yield Piece(outcome.text)
        yield Completion(outcome.text, outcome.usage or self._estimate(prompt, outcome.text), outcome.cut_off)

    def _course(self, prompt: Prompt, *, stream: bool) -> _Course:
        wanted = extras_of(prompt, stream=stream, schema=self._json_schema)
        keep = frozenset({Extra.SCHEMA} if self._json_schema == "on" else ())
        return _Course([one for one in wanted if one not in self._unsupported], keep, self._limits)

    def _estimate(self, prompt: Prompt, text: str) -> TokenUsage:
        return TokenUsage(
            prompt_tokens=self._count(prompt), completion_tokens=self._tokens.count(text), model_calls=1
        )

    def _count(self, prompt: Prompt) -> int:
        return sum(self._tokens.count(message.text) for message in prompt.messages)

    def _error(self, failure: Failure, prompt: Prompt) -> SageError:
        _log.warning(
            "the language model failed: %s",
            failure.cause,
            extra={"provider": self._name.provider, "status": failure.status},
        )
        match failure.cause:
            case "rate_limited":
                return model_rate_limited(self.name, failure.wait_seconds)
            case "timeout":
                return model_timeout(failure.seconds or self._limits.try_seconds)
            case "context_too_long":
                return model_context_too_long(self._count(prompt))
            case "refused":
                return model_refused(self.name)
            case "rejected":
                return model_rejected(self.name)
            case "empty":
                return model_output_empty(self.name)
            case "unavailable":
                return model_unavailable(self.name)
