"""Asking language models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from sage_server.domain.turns import TokenUsage

JsonSchema: TypeAlias = Mapping[str, Any]
"""A JSON schema is data in a language of its own: the one mapping that is not typed further."""


class Role(Enum):
    """Who speaks in a prompt."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True)
class PromptMessage:
    """One message of a prompt."""

    role: Role
    text: str


@dataclass(frozen=True)
class Prompt:
    """What a model is asked.

    `schema` is what the answer should follow; a provider that cannot hold its model to one must be asked
    without it. `max_tokens` limits the answer; None leaves that to the provider.
    """

    messages: Sequence[PromptMessage]
    schema: JsonSchema | None = None
    max_tokens: int | None = None


@dataclass(frozen=True)
class Piece:
    """Some more of the answer's text."""

    text: str


@dataclass(frozen=True)
class Restarted:
    """The call is made again from the beginning: the pieces so far do not count."""


@dataclass(frozen=True)
class Completion:
    """The whole answer. Always last. The usage is the provider's count, or an estimate if it gives none."""

    text: str
    usage: TokenUsage
    cut_off: bool = False
    """Whether the answer ended because it reached a limit of length."""


Reply: TypeAlias = Piece | Restarted | Completion


class LanguageModel(Protocol):
    """One model of one provider."""

    @property
    def name(self) -> str:
        """As `provider/model`."""
        ...

    def ask(self, prompt: Prompt, *, stream: bool) -> AsyncGenerator[Reply]:
        """The answer. With `stream` pieces of it come first, as the model makes them.

        Retries, backoff, time limits and the limit of calls at once are the model's own business. Must raise
        MODEL_REFUSED, MODEL_RATE_LIMITED, MODEL_TIMEOUT, MODEL_UNAVAILABLE, MODEL_REJECTED,
        MODEL_CONTEXT_TOO_LONG or MODEL_OUTPUT_EMPTY, with nothing of what was sent or answered in the error.
        Must hold no more than a bounded answer in memory, and must stop the call when the iterator is closed.
        """
        ...


class Purpose(Enum):
    """What a default model is for."""

    CHAT = "chat"
    SUMMARY = "summary"
    ROUTING = "routing"


class LanguageModels(Protocol):
    """The models that this server can ask."""

    def get(self, name: str, purpose: Purpose) -> LanguageModel:
        """The model of this name (`provider/model`), or with an empty name the default for the purpose.

        Must raise MODEL_UNKNOWN if the provider is not configured, and MODEL_NOT_CONFIGURED if there is no
        default. Must not call anybody.
        """
        ...
