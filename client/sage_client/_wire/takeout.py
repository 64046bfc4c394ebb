"""The lines of a takeout that are not of conversations: agents, blocks and memories, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias

from sage_client.files import Piece
from sage_client.models.agents import Agent, AgentSettings, MemoryMode
from sage_client.models.blocks import Block
from sage_client.models.memory import Memory, MemorySource, MemoryTrust, NewMemory

Json: TypeAlias = Mapping[str, object]
_OWN = {"takeout", "agent", "block", "memory", "end"}
_VERSION = 1


@dataclass(frozen=True, slots=True)
class AgentLine:
    """An agent, without what names models and limits of its server."""

    name: str
    settings: AgentSettings


@dataclass(frozen=True, slots=True)
class BlockLine:
    """A block. `agent` is the name of the one whose it is, empty if all share it."""

    label: str
    agent: str
    description: str
    value: str
    char_limit: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """A memory, to be kept as archival whatever it was."""

    memory: NewMemory


@dataclass(frozen=True, slots=True)
class Begin:
    """The first line of a takeout: there must be an end as well."""


@dataclass(frozen=True, slots=True)
class End:
    """The last line of a takeout. A file without it was cut short."""


TakeoutLine = Begin | AgentLine | BlockLine | MemoryLine | End


class TakeoutError(ValueError):
    """The file is not what an export writes. The message names the line and does not quote it."""


def begin_line() -> bytes:
    """The first line, which names the version of the format."""
    return _line({"type": "takeout", "version": _VERSION})


def end_line() -> bytes:
    """The last line."""
    return _line({"type": "end"})


def agent_line(agent: Agent) -> bytes:
    """An agent as one line."""
    return _line(
        {
            "type": "agent",
            "name": agent.name,
            "description": agent.description,
            "enabled": agent.enabled,
            "memory_mode": agent.memory_mode.value,
            "system_prompt": agent.system_prompt,
            "time_zone": agent.time_zone,
            "preferences": dict(agent.preferences),
        }
    )


def block_line(block: Block, agent: str) -> bytes:
    """A block as one line."""
    return _line(
        {
            "type": "block",
            "label": block.label,
            "agent": agent,
            "description": block.description,
            "value": block.value,
            "char_limit": block.char_limit,
            "read_only": block.read_only,
        }
    )


def memory_line(memory: Memory, agent: str) -> bytes:
    """A memory as one line. A chunk of a document carries the document's title in its metadata."""
    metadata = dict(memory.metadata)
    if memory.source is MemorySource.DOCUMENT:
        metadata.setdefault("document", memory.provenance.document_title[:512])
    return _line(
        {
            "type": "memory",
            "text": memory.text,
            "agent": agent,
            "tags": list(memory.tags),
            "metadata": metadata,
            "trust": memory.trust.value,
            "create_time": memory.create_time.isoformat(),
        }
    )


def memory_key(text: str, create_time: datetime | None) -> tuple[str, str]:
    """What makes a memory the same one as another."""
    return text, "" if create_time is None else create_time.astimezone(UTC).isoformat()


def separated(piece: Piece) -> tuple[list[TakeoutLine], Piece]:
    """The lines of a piece that the client reads, and the piece with blank lines in their place."""
    own: list[TakeoutLine] = []
    rest: list[bytes] = []
    for number, raw in enumerate(piece.jsonl.splitlines(keepends=True), piece.first_line):
        line = _parsed(raw, number) if raw.strip() else None
        if line is None:
            rest.append(raw)
        else:
            own.append(line)
            rest.append(b"\n")
    return own, replace(piece, jsonl=b"".join(rest))


def _parsed(raw: bytes, number: int) -> TakeoutLine | None:
    """None for what the server reads."""
    try:
        value = json.loads(raw)
        if not isinstance(value, dict) or value.get("type") not in _OWN:
            return None
        return _read(value)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise TakeoutError(f"line {number} is not a line of an export") from None


def _read(value: Json) -> TakeoutLine:
    match value["type"]:
        case "takeout":
            if _number(value, "version") != _VERSION:
                raise ValueError
            return Begin()
        case "end":
            return End()
        case "agent":
            return AgentLine(
                _text(value, "name"),
                AgentSettings(
                    description=_text(value, "description"),
                    enabled=_flag(value, "enabled"),
                    memory_mode=MemoryMode(_text(value, "memory_mode")),
                    system_prompt=_text(value, "system_prompt"),
                    time_zone=_text(value, "time_zone"),
                    preferences=_pairs(value, "preferences"),
                ),
            )
        case "block":
            return BlockLine(
                label=_text(value, "label"),
                agent=_text(value, "agent"),
                description=_text(value, "description"),
                value=_text(value, "value"),
                char_limit=_number(value, "char_limit"),
                read_only=_flag(value, "read_only"),
            )
    tags = value["tags"]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise TypeError
    return MemoryLine(
        NewMemory(
            text=_text(value, "text"),
            agent=_text(value, "agent"),
            tags=tags,
            metadata=_pairs(value, "metadata"),
            trust=MemoryTrust(_text(value, "trust")),
            create_time=_time(value, "create_time"),
        )
    )


def _line(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _text(value: Json, name: str) -> str:
    found = value[name]
    if not isinstance(found, str):
        raise TypeError
    return found


def _flag(value: Json, name: str) -> bool:
    found = value[name]
    if not isinstance(found, bool):
        raise TypeError
    return found


def _number(value: Json, name: str) -> int:
    found = value[name]
    if not isinstance(found, int):
        raise TypeError
    return found


def _time(value: Json, name: str) -> datetime:
    found = datetime.fromisoformat(_text(value, name))
    if found.tzinfo is None:
        raise ValueError
    return found


def _pairs(value: Json, name: str) -> dict[str, str]:
    found = value[name]
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise TypeError
    return found
