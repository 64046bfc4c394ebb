"""What can be wrong with a language model. No message and no metadata holds what was sent or answered."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from sage_server.domain.errors import Reason, SageError

DEFAULT_PROVIDER = "openai"
PROVIDER_PATTERN = r"[a-z0-9_-]{1,64}"
MODEL_PATTERN = r"^[A-Za-z0-9._:@+/-]{1,200}$"

_NAME = re.compile(rf"({PROVIDER_PATTERN})/({MODEL_PATTERN.strip('^$')})")

_SOON = timedelta(seconds=1)
_LONGEST_WAIT = timedelta(days=1)


@dataclass(frozen=True)
class ModelProvider:
    """Where language models are asked, and with which key."""

    base_url: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ModelName:
    """A model of a provider."""

    provider: str
    model: str

    @classmethod
    def parse(cls, name: str) -> ModelName | None:
        """Of `provider/model`; None for what has another form."""
        found = _NAME.fullmatch(name)
        return cls(*found.groups()) if found else None

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


def full_name(setting: str, providers: Collection[str]) -> str | None:
    """What a setting names: `provider/model` if it begins with one of the providers, otherwise a model of the
    provider `openai`, slashes and all; None if it is empty, or that provider is not there."""
    provider, slash, _ = setting.partition("/")
    if slash and provider in providers:
        return setting
    if not setting or DEFAULT_PROVIDER not in providers:
        return None
    return f"{DEFAULT_PROVIDER}/{setting}"


def model_unknown(model: str) -> SageError:
    """The model's provider is not configured. What does not have the form of a name is not repeated."""
    return SageError(
        Reason.MODEL_UNKNOWN,
        "The model's provider is not configured on this server. Models are named `provider/model`.",
        metadata={"model": model} if ModelName.parse(model) else {},
    )


def model_not_configured(purpose: str) -> SageError:
    """There is no default model for the purpose."""
    return SageError(
        Reason.MODEL_NOT_CONFIGURED,
        "The server has no language model configured for this.",
        metadata={"purpose": purpose},
    )


def model_refused(model: str) -> SageError:
    """The model, or its provider's filter, would not answer."""
    return SageError(
        Reason.MODEL_REFUSED, "The model or its provider's filter refused.", metadata={"model": model}
    )


def model_rate_limited(model: str, wait_seconds: float | None) -> SageError:
    """The provider limits the rate. `wait_seconds` is how long it asks to wait, if it does."""
    longest = _LONGEST_WAIT.total_seconds()
    wait = _SOON if wait_seconds is None else timedelta(seconds=min(wait_seconds, longest))
    return SageError(
        Reason.MODEL_RATE_LIMITED,
        "The model's provider limits the rate.",
        metadata={"model": model},
        retry_after=wait,
    )


def model_timeout(seconds: float) -> SageError:
    """No answer within the limit of a try."""
    return SageError(
        Reason.MODEL_TIMEOUT,
        "The model took too long.",
        metadata={"timeout_seconds": f"{seconds:g}"},
        retry_after=_SOON,
    )


def model_unavailable(model: str) -> SageError:
    """The provider cannot be reached, failed, or made no sense."""
    return SageError(
        Reason.MODEL_UNAVAILABLE,
        "The model's provider gave no usable answer.",
        metadata={"model": model},
        retry_after=_SOON,
    )


def model_rejected(model: str) -> SageError:
    """The provider does not take the credentials, the model or the request."""
    return SageError(
        Reason.MODEL_REJECTED,
        "The model's provider rejects the server's credentials, the model or the request.",
        metadata={"model": model},
    )


def model_context_too_long(tokens: int) -> SageError:
    """The provider says that the prompt, of about so many tokens, is too long for the model."""
    return SageError(
        Reason.MODEL_CONTEXT_TOO_LONG,
        "The context is too long for the model.",
        metadata={"tokens": str(tokens)},
    )


def model_output_empty(model: str) -> SageError:
    """The model said nothing."""
    return SageError(Reason.MODEL_OUTPUT_EMPTY, "The model returned nothing.", metadata={"model": model})
