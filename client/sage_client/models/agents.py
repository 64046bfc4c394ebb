"""Agents: their settings, their tools, and what they would send to a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict


class MemoryMode(StrEnum):
    """What an agent sees of the user's memory, and where its own writes go."""

    SHARED = "shared"
    """Reads and writes the user's memory. The default, and always so for `main`."""
    ISOLATED = "isolated"
    """Sees and writes only a memory of its own."""
    OVERLAY = "overlay"
    """Reads the user's memory and writes its own on top of it."""
    UNKNOWN = "unknown"
    """A mode that this version of the client does not know. Never sent."""


class CompactionMode(StrEnum):
    """What triggers a compaction."""

    TOKENS = "tokens"
    """The context is fuller than a share of its size. The default."""
    MESSAGES = "messages"
    """There are more than a number of messages without a summary."""
    OFF = "off"
    """Nothing. A turn whose newest items do not fit sends as many as fit."""
    UNKNOWN = "unknown"
    """A mode that this version of the client does not know. Never sent."""


class ContextSectionKind(StrEnum):
    """The parts of a context, in their order."""

    INSTRUCTION = "instruction"
    TIME = "time"
    """The time in the agent's zone, and whether the user is new."""
    BLOCKS = "blocks"
    MEMORY_METADATA = "memory_metadata"
    """Counts of memories, and the last compaction."""
    TOOLS = "tools"
    SUMMARY = "summary"
    """The newest summary."""
    ITEMS = "items"
    """The items after that summary."""
    INPUT = "input"
    """The input, or the tools' results."""
    UNKNOWN = "unknown"
    """A part that this version of the client does not know."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When and how the older part of an agent's thread is compacted into a summary.

    - `threshold`: for TOKENS, the share of the context size above which it compacts, 0.1 to 1.
    - `message_threshold`, `keep_newest`: for MESSAGES, the number of messages without a summary above which
      it compacts, and how many of the newest stay out of the summary.
    - `summary_words`: the most words of a summary.
    """

    mode: CompactionMode = CompactionMode.TOKENS
    threshold: float = 0.8
    message_threshold: int = 40
    keep_newest: int = 12
    summary_words: int = 100


class AgentSettings(TypedDict, total=False):
    """What can be said about an agent when it is created, and changed later. Leave out what you do not mean.

    Texts that are empty, numbers that are 0, and None mean the server's default.

    - `description`: what it is good at: read by people, by `find`, and by the main agent when it delegates.
    - `enabled`: whether it may run turns. Default: True.
    - `model`: as `provider/model`.
    - `system_prompt`: the instruction at the top of its context.
    - `time_zone`: the IANA zone in which it is told the time.
    - `preferences`: pairs that it sees in its context. They replace all of the old.
    - `max_context_tokens`: the size of its context.
    - `max_steps`, `max_turn_duration`, `max_turn_tokens`, `max_memory_writes`: the caps of a turn. For the
      last one 0 is no default but forbids writes.
    - `allowed_tools`: names of the tools that it may call. None: all that the flags allow.
    """

    description: str
    enabled: bool
    memory_mode: MemoryMode
    model: str
    system_prompt: str
    time_zone: str
    preferences: Mapping[str, str]
    max_context_tokens: int
    compaction: CompactionSettings | None
    max_steps: int
    max_turn_duration: timedelta | None
    max_turn_tokens: int
    max_memory_writes: int | None
    allowed_tools: Collection[str] | None


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as it was when it was read: `main`, or a subagent. All times are in UTC.

    The settings are those of AgentSettings. `message_count` counts the items in its own thread.
    `last_turn_time` is None if it never began a turn. `etag` changes with the settings.
    """

    id: str
    name: str
    description: str
    enabled: bool
    memory_mode: MemoryMode
    model: str
    system_prompt: str
    time_zone: str
    preferences: Mapping[str, str]
    max_context_tokens: int
    compaction: CompactionSettings
    max_steps: int
    max_turn_duration: timedelta
    max_turn_tokens: int
    max_memory_writes: int
    allowed_tools: tuple[str, ...] | None
    create_time: datetime
    update_time: datetime
    etag: str
    message_count: int
    last_turn_time: datetime | None


@dataclass(frozen=True, slots=True)
class AgentMatch:
    """An agent that fits a task. `score` is the cosine of task and description, -1 to 1."""

    agent: Agent
    score: float


@dataclass(frozen=True, slots=True)
class DeletedAgent:
    """What went with an agent. A search at least as fresh as the token sees none of it."""

    deleted_item_count: int
    deleted_memory_count: int
    deleted_block_count: int
    memory_token: str


@dataclass(frozen=True, slots=True)
class ClearedThread:
    """What went with an agent's own thread: items, summaries, and the recall memories of both."""

    deleted_item_count: int
    deleted_summary_count: int
    deleted_memory_count: int
    memory_token: str


@dataclass(frozen=True, slots=True)
class ContextSection:
    """One part of a context, as the model gets it.

    `entry_count` is how many blocks, tools or items it holds; 0 where that has no meaning.
    """

    kind: ContextSectionKind
    text: str
    token_count: int
    entry_count: int


@dataclass(frozen=True, slots=True)
class ContextPreview:
    """The context that the next turn would send, in the order in which the model gets it.

    Above `compaction_tokens` the oldest items are compacted before the model is called; the preview shows
    the context before that.
    """

    sections: tuple[ContextSection, ...]
    token_count: int
    max_context_tokens: int
    compaction_tokens: int
    would_compact: bool
    model: str
    tokenizer: str
    is_first_time_user: bool


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool, as the model reads it. The schema of its arguments is a JSON object.

    `disabled_by_flag` is empty unless a flag switches it off. With `requires_user` it may be called only when
    the user's own words ask for it. With `has_effects` it changes memory, schedules or anything else.
    """

    name: str
    description: str
    parameters_schema_json: str
    enabled: bool
    disabled_by_flag: str
    requires_user: bool
    has_effects: bool
