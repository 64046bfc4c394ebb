"""Blocks of core memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class BlockActor(StrEnum):
    """Who changed a block."""

    USER = "user"
    """A caller, for the user."""
    AGENT = "agent"
    """An agent, with a tool."""
    SYSTEM = "system"
    """The server."""
    UNKNOWN = "unknown"
    """An actor that this version of the client does not know."""


@dataclass(frozen=True, slots=True)
class Block:
    """A labelled text that is always in the context of the agents that see it, as it was when it was read.

    `agent_id` is empty for a block that all agents share. A `read_only` one can be changed by callers, not
    by agents. `revision` is the number of its newest revision.
    """

    id: str
    label: str
    agent_id: str
    description: str
    value: str
    char_limit: int
    char_count: int
    read_only: bool
    create_time: datetime
    update_time: datetime
    etag: str
    revision: int


@dataclass(frozen=True, slots=True)
class BlockRevision:
    """The state of a block after one change, and who made it.

    `agent_id` is empty unless an agent did, `turn_id` if it was made in no turn, `restored_revision` is 0
    unless the change brought an earlier revision back.
    """

    revision: int
    block_id: str
    value: str
    description: str
    char_limit: int
    read_only: bool
    actor: BlockActor
    agent_id: str
    turn_id: str
    restored_revision: int
    create_time: datetime
