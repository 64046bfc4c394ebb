"""Agents of a user and their settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import Any
from uuid import UUID
from zoneinfo import available_timezones

from sage_server.domain.errors import Reason, SageError, etag_mismatch, invalid

MAIN = "main"
"""The name of the agent that every user has once it is enabled."""
MAX_AGENTS = 100
DEFAULT_CONTEXT_TOKENS = 100_000
DEFAULT_STEPS = 10


class MemoryMode(IntEnum):
    """What an agent sees of the user's memory, and where its writes go. Stored as a number."""

    SHARED = 1
    ISOLATED = 2
    OVERLAY = 3


class CompactionMode(IntEnum):
    """What triggers a compaction."""

    TOKENS = 1
    MESSAGES = 2
    OFF = 3


@dataclass(frozen=True)
class CompactionRules:
    """When and how the older part of a thread becomes a summary."""

    mode: CompactionMode = CompactionMode.TOKENS
    threshold: float = 0.8
    """For TOKENS: the share of the context above which it compacts."""
    message_threshold: int = 40
    """For MESSAGES: how many items without a summary are too many."""
    keep_newest: int = 12
    """For MESSAGES: how many of the newest stay out of the summary."""
    summary_words: int = 100


@dataclass(frozen=True)
class AgentProfile:
    """What a caller can set of an agent, but for what SQL must see. None leaves a limit to the server."""

    name: str
    description: str = ""
    model: str = ""
    """As `provider/model`; empty for the server's."""
    system_prompt: str = ""
    time_zone: str = ""
    """An IANA name; empty for UTC."""
    preferences: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    max_context_tokens: int = DEFAULT_CONTEXT_TOKENS
    compaction: CompactionRules = CompactionRules()
    max_steps: int = DEFAULT_STEPS
    max_turn_duration: timedelta | None = None
    max_turn_tokens: int | None = None
    max_memory_writes: int | None = None
    allowed_tools: tuple[str, ...] | None = None
    """None for all that the flags allow."""


@dataclass(frozen=True)
class TurnLimits:
    """What a turn may cost where the agent does not say."""

    duration: timedelta = timedelta(minutes=10)
    tokens: int = 1_000_000
    memory_writes: int = 100


@dataclass(frozen=True)
class AgentChange:
    """New settings, of which only the named ones count. The name in the profile never does."""

    named: frozenset[str]
    """Names of fields of the profile, `enabled`, `memory_mode`."""
    profile: AgentProfile
    enabled: bool
    memory_mode: MemoryMode


@dataclass(frozen=True)
class Agent:
    """An agent of a user: the main one, or a subagent."""

    id: UUID
    conversation_id: UUID
    """Its own thread, which callers never see by its id."""
    profile: AgentProfile
    enabled: bool
    memory_mode: MemoryMode
    created_at: datetime
    updated_at: datetime
    version: int = 1
    message_count: int = 0
    """Items in its own thread."""
    last_turn_at: datetime | None = None

    @property
    def name(self) -> str:
        """What callers call it."""
        return self.profile.name

    @property
    def etag(self) -> str:
        """Changes with everything that an update can change. It names the agent too: another one may get its
        name."""
        return f"v{self.version}-{self.id.hex[-12:]}"

    def check_etag(self, etag: str) -> None:
        """Refuse a caller who read an older version. An empty etag asks for no check."""
        if etag and etag != self.etag:
            raise etag_mismatch("agent")

    def changed(self, change: AgentChange, now: datetime) -> Agent:
        """The next version, with what a change names. Raises AGENT_PROTECTED for what `main` keeps."""
        mode = change.memory_mode if "memory_mode" in change.named else self.memory_mode
        if self.name == MAIN and mode is not MemoryMode.SHARED:
            raise agent_protected()
        given: dict[str, Any] = {
            setting.name: getattr(change.profile, setting.name)
            for setting in fields(AgentProfile)
            if setting.name in change.named - {"name"}
        }
        return replace(
            self,
            profile=replace(self.profile, **given),
            enabled=change.enabled if "enabled" in change.named else self.enabled,
            memory_mode=mode,
            updated_at=now,
            version=self.version + 1,
        )

    @property
    def memory_owner(self) -> UUID | None:
        """In whose memory its writes lie: its own, or with None the user's, which agents share."""
        return None if self.memory_mode is MemoryMode.SHARED else self.id

    @property
    def visible_owners(self) -> frozenset[UUID | None]:
        """Whose memory it reads."""
        if self.memory_mode is MemoryMode.ISOLATED:
            return frozenset({self.id})
        return frozenset({None, self.id})


def check_profile(profile: AgentProfile) -> None:
    """Refuse what the constraints of the contract cannot express."""
    if profile.time_zone and profile.time_zone not in _time_zones():
        raise invalid("time_zone", "must be the name of a time zone, such as Europe/Berlin")
    rules = profile.compaction
    if rules.mode is CompactionMode.MESSAGES and rules.keep_newest >= rules.message_threshold:
        raise invalid("compaction.keep_newest", "must be below message_threshold")


@cache
def _time_zones() -> Collection[str]:
    """Read from disk the first time."""
    return available_timezones()


def agent_not_found() -> SageError:
    """In the same words for every name and id, so that none of them says anything about another's agents."""
    return SageError(
        Reason.NOT_FOUND,
        "There is no such agent. `main` is made by UpdateAgent with `enabled`, once for each user "
        "(agent.enable() in the Python client), others by CreateAgent; ListAgents shows them.",
        metadata={"resource": "agent"},
    )


def agent_taken() -> SageError:
    """The name is in use."""
    return SageError(
        Reason.ALREADY_EXISTS, "There is an agent with this name already.", metadata={"resource": "agent"}
    )


def too_many_agents() -> SageError:
    """The user has as many agents as the server allows."""
    return SageError(
        Reason.LIMIT_REACHED,
        "There are as many agents as the server allows.",
        metadata={"resource": "agents", "limit": str(MAX_AGENTS)},
    )


def agent_disabled(name: str) -> SageError:
    """The agent may not run turns."""
    return SageError(
        Reason.AGENT_DISABLED, "The agent is not enabled. UpdateAgent enables it.", metadata={"agent": name}
    )


def agent_protected() -> SageError:
    """What `main` cannot do."""
    return SageError(
        Reason.AGENT_PROTECTED,
        "The main agent cannot be deleted and keeps its memory mode.",
        metadata={"agent": MAIN},
    )


def overlay_not_empty(changes: int) -> SageError:
    """The agent has written things of its own on top of the user's memory."""
    return SageError(
        Reason.OVERLAY_NOT_EMPTY,
        "The agent cannot leave OVERLAY while its overlay holds changes.",
        metadata={"changes": str(changes)},
    )


def tools_unknown(names: Collection[str]) -> SageError:
    """No tools have these names, which have the form of a tool's."""
    return SageError(
        Reason.TOOL_UNKNOWN, "There is no such tool.", metadata={"tools": ",".join(sorted(names))}
    )
