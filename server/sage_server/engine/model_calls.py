"""Asking language models, with what it costs written down."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from uuid import UUID

from sage_server.domain.turns import TokenUsage
from sage_server.domain.usage import UsageCounts, UsageKey, UsagePurpose, UsageRecord
from sage_server.ports.clock import Clock
from sage_server.ports.language_model import Completion, LanguageModel, Prompt, Reply

_BUNDLED = "local/"


class Spending:
    """What calls have cost and nobody has stored yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[UsageKey, UsageCounts] = {}
        self.usage = TokenUsage()

    def add(self, model: str, purpose: UsagePurpose, usage: TokenUsage) -> None:
        """One answered call."""
        key = UsageKey(self._clock.now().date(), model, purpose)
        counts = UsageCounts(
            usage.model_calls or 1, usage.prompt_tokens, usage.completion_tokens, usage.embedding_tokens
        )
        self._counts[key] = self._counts.get(key, UsageCounts()) + counts
        self.usage += usage

    def record_embedding(self, user_id: UUID, model: str, tokens: int) -> None:  # noqa: ARG002
        """See EmbeddingMeter. What the bundled model does costs nobody anything."""
        paid = 0 if model.startswith(_BUNDLED) else tokens
        key = UsageKey(self._clock.now().date(), model, UsagePurpose.EMBEDDING)
        counts = UsageCounts(calls=1, embedding_tokens=tokens)
        self._counts[key] = self._counts.get(key, UsageCounts()) + counts
        self.usage += TokenUsage(embedding_tokens=paid)

    def clear(self) -> None:
        """All of it is stored."""
        self._counts.clear()
        self.usage = TokenUsage()

    def records(self) -> list[UsageRecord]:
        """All of it, by day, model and purpose."""
        return [UsageRecord(key, counts) for key, counts in self._counts.items()]


def _unheard(_reply: Reply) -> None:
    """Nobody listens to pieces."""


async def asked(
    model: LanguageModel,
    prompt: Prompt,
    purpose: UsagePurpose,
    spending: Spending,
    hear: Callable[[Reply], None] | None = None,
) -> Completion:
    """The whole answer of a model. `hear` is told the pieces as they come, and asks for them by being there.

    Raises what LanguageModel.ask raises.
    """
    told = hear or _unheard
    async with aclosing(model.ask(prompt, stream=hear is not None)) as replies:
        async for reply in replies:
            if isinstance(reply, Completion):
                spending.add(model.name, purpose, reply.usage)
                return reply
            told(reply)
    raise AssertionError("a model's answer ends with a completion")
