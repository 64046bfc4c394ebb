"""The client's values as JSON. The keys are the names of their fields, as stable as the client itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta

from sage_client.models.events import TurnEvent

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


def plain(value: object) -> Json:
    """What JSON can carry: times in UTC as RFC 3339, durations in seconds, enums as their words."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    match value:
        case str():
            return str(value)
        case None | bool() | int() | float():
            return value
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): plain(entry) for key, entry in value.items()}
        case Iterable():
            return [plain(entry) for entry in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def event_plain(event: TurnEvent) -> Json:
    """An event, with its kind under `event`: `message`, `tool_call`, `done` and so on."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__.removeprefix("Turn")).lower()
    return {"event": kind} | {field.name: plain(getattr(event, field.name)) for field in fields(event)}


def document(value: Json) -> str:
    """A whole document, indented."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def line(value: Json) -> str:
    """A line of JSON Lines."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
