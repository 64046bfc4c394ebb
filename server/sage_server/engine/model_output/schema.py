"""The format of an answer as a JSON schema."""

from __future__ import annotations

from collections.abc import Sequence

from sage_server.engine.model_output.reader import MESSAGES, TOOL_CALLS
from sage_server.ports.language_model import JsonSchema


def output_schema(tools: Sequence[tuple[str, JsonSchema]]) -> JsonSchema:
    """The schema of an answer that may call these tools: each its name and the schema of its arguments.

    Messages come first, so that they can be shown while the calls are still being written.
    """
    return _object({MESSAGES: {"type": "array", "items": {"type": "string"}}, TOOL_CALLS: _calls(tools)})


def _calls(tools: Sequence[tuple[str, JsonSchema]]) -> JsonSchema:
    if not tools:
        return {"type": "array", "items": _object({}), "maxItems": 0}
    calls = [_object({"name": {"type": "string", "const": name}, "args": args}) for name, args in tools]
    return {"type": "array", "items": {"anyOf": calls}}


def _object(properties: dict[str, JsonSchema]) -> JsonSchema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
