"""Why a provider gave no answer. Its own words are read here, and not kept: they may quote the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from sage_server.adapters.language_model.requests import Extra
from sage_server.adapters.retry_waits import retry_after

if TYPE_CHECKING:
    from openai import APIStatusError

Cause: TypeAlias = Literal[
    "refused", "rate_limited", "timeout", "unavailable", "rejected", "context_too_long", "empty"
]
"""One fixed word, never the provider's own."""

_REFUSALS = frozenset({"content_filter", "content_policy_violation"})
_TOO_LONG = ("context_length_exceeded", "maximum context length", "exceeds the available context size")
_NO_QUOTA = "insufficient_quota"
_NAMES = {
    Extra.SCHEMA: ("response_format", "json_schema"),
    Extra.USAGE: ("stream_options", "include_usage"),
    Extra.LIMIT: ("max_completion_tokens",),
}


@dataclass(frozen=True)
class Failure:
    """Why a try gave nothing, whether another may, and how long the provider asks to wait before it.

    `blamed` are the parts of the request that a rejection speaks of, if it names any. `seconds` is the limit
    that ran out.
    """

    cause: Cause
    again: bool = False
    wait_seconds: float | None = None
    status: int | None = None
    blamed: frozenset[Extra] = frozenset()
    seconds: float | None = None

    @property
    def of_the_request(self) -> bool:
        """Whether the provider rejects what the request says, so that a plainer one may do."""
        return self.cause == "rejected" and self.status in (400, 422)


UNUSABLE = Failure("unavailable", again=True)
"""No connection, a broken one, or an answer that makes no sense."""


def from_response(error: APIStatusError) -> Failure:
    """An answer with a status of 400 or above."""
    found = _classified(error.status_code, error.body)
    headers = error.response.headers
    # OpenAI says by this header that a quota is used up, which no wait of ours brings back.
    again = found.again and headers.get("x-should-retry") != "false"
    return Failure(found.cause, again, retry_after(headers.get("retry-after")), found.status, found.blamed)


def from_error_object(error: object) -> Failure:
    """An error inside an answer that began well. Some providers put a status there, some a word."""
    code = _field(error, "code")
    if len(code) == 3 and code.isdecimal() and code[0] in "45":
        return _classified(int(code), error)
    return _classified(429 if code == "rate_limit_exceeded" else 500, error)


def _classified(status: int, body: object) -> Failure:
    code, message = _field(body, "code"), _field(body, "message").lower()
    if code in _REFUSALS:
        return Failure("refused", status=status)
    if code == "context_length_exceeded" or (status == 400 and any(words in message for words in _TOO_LONG)):
        return Failure("context_too_long", status=status)
    if status == 429:
        return Failure("rate_limited", again=code != _NO_QUOTA, status=status)
    if status == 408:
        return Failure("timeout", again=True, status=status)
    if status >= 500:
        return Failure("unavailable", again=True, status=status)
    words = f"{message} {_field(body, 'param')}"
    blamed = frozenset(extra for extra, names in _NAMES.items() if any(name in words for name in names))
    return Failure("rejected", status=status, blamed=blamed)


def _field(body: object, name: str) -> str:
    """A field of an error, whatever it is; of an error that is but a text, the text is its message."""
    if isinstance(body, dict):
        return str(body.get(name))
    return str(body) if name == "message" else ""
