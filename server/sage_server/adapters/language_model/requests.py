"""What a provider is sent."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Any, Literal, TypeAlias

from sage_server.ports.language_model import Prompt

SchemaMode: TypeAlias = Literal["auto", "on", "off"]
"""Whether the answer's JSON schema is sent: until the provider rejects it, always, or never."""


class Extra(Enum):
    """What not every provider takes. The order is that in which a request does without them."""

    SCHEMA = "schema"
    USAGE = "usage"
    LIMIT = "limit"


def extras_of(prompt: Prompt, *, stream: bool, schema: SchemaMode) -> list[Extra]:
    """What a request for this would have."""
    return [
        *([Extra.SCHEMA] if prompt.schema is not None and schema != "off" else []),
        *([Extra.USAGE] if stream else []),
        *([Extra.LIMIT] if prompt.max_tokens is not None else []),
    ]


def request_of(model: str, prompt: Prompt, extras: Collection[Extra], *, stream: bool) -> dict[str, Any]:
    """The arguments of the chat completion."""
    # Beside the package's own arguments, which it looks through key by key: that takes it milliseconds.
    body: dict[str, Any] = {
        "messages": [{"role": one.role.value, "content": one.text} for one in prompt.messages]
    }
    request: dict[str, Any] = {"model": model, "messages": (), "stream": stream, "extra_body": body}
    if Extra.SCHEMA in extras:
        # Not strict: providers that are strict refuse objects whose keys are open, as a tool's arguments are.
        answer = {"name": "answer", "schema": prompt.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": answer}
    if Extra.USAGE in extras:
        request["stream_options"] = {"include_usage": True}
    if prompt.max_tokens is not None:
        # OpenAI's newer models reject the old name, and older servers the new one.
        name = "max_completion_tokens" if Extra.LIMIT in extras else "max_tokens"
        request[name] = prompt.max_tokens
    return request
