"""Agents as messages. The domain's enum numbers are the contract's; a test says so."""

from __future__ import annotations

from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from sage.v1 import agent_pb2, agent_service_pb2, item_pb2
from sage_server.domain.agents import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_STEPS,
    Agent,
    AgentChange,
    AgentProfile,
    CompactionMode,
    CompactionRules,
    MemoryMode,
    TurnLimits,
)
from sage_server.domain.conversations import Item
from sage_server.rpc.conversation_mapping import to_item
from sage_server.rpc.mapping import to_timestamp
from sage_server.services.agents import NewAgent

_DEFAULT_RULES = CompactionRules()


class AgentMapping:
    """What depends on the server's own limits of turns."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits

    def to_agent(self, agent: Agent) -> agent_pb2.Agent:
        """An agent for a caller; limits that it does not set are the server's."""
        profile, limits = agent.profile, self._limits
        duration = Duration()
        duration.FromTimedelta(profile.max_turn_duration or limits.duration)
        writes, tools = profile.max_memory_writes, profile.allowed_tools
        return agent_pb2.Agent(
            id=str(agent.id),
            name=profile.name,
            description=profile.description,
            enabled=agent.enabled,
            memory_mode=agent_pb2.MemoryMode.ValueType(agent.memory_mode),
            model=profile.model,
            system_prompt=profile.system_prompt,
            time_zone=profile.time_zone,
            preferences=profile.preferences,
            max_context_tokens=profile.max_context_tokens,
            compaction=_to_compaction(profile.compaction),
            max_steps=profile.max_steps,
            max_turn_duration=duration,
            max_turn_tokens=profile.max_turn_tokens or limits.tokens,
            max_memory_writes=limits.memory_writes if writes is None else writes,
            allowed_tools=None if tools is None else agent_pb2.ToolSelection(names=tools),
            create_time=to_timestamp(agent.created_at),
            update_time=to_timestamp(agent.updated_at),
            etag=agent.etag,
            message_count=agent.message_count,
            last_turn_time=to_timestamp(agent.last_turn_at),
        )


def from_new_agent(request: agent_service_pb2.CreateAgentRequest) -> NewAgent:
    """An agent to create."""
    return NewAgent(_profile(request, request.name), _enabled(request), _memory_mode(request))


def from_agent_change(request: agent_service_pb2.UpdateAgentRequest) -> AgentChange:
    """What the mask names; what is not given then goes back to its default."""
    return AgentChange(
        named=frozenset(request.update_mask.paths),
        profile=_profile(request, ""),
        enabled=_enabled(request),
        memory_mode=_memory_mode(request),
    )


def to_own_item(item: Item) -> item_pb2.Item:
    """An item of an agent's own thread, which has no public id."""
    message = to_item(item)
    message.ClearField("conversation_id")
    return message


def encode_name(name: str | None) -> bytes | None:
    """A position in a list by name."""
    return None if name is None else name.encode()


def decode_name(position: bytes) -> str:
    """Reads `encode_name`."""
    return position.decode()


def _profile(
    request: agent_service_pb2.CreateAgentRequest | agent_service_pb2.UpdateAgentRequest, name: str
) -> AgentProfile:
    """The settings with the contract's defaults."""
    tools = tuple(request.allowed_tools.names) if request.HasField("allowed_tools") else None
    timed = request.HasField("max_turn_duration")
    duration: timedelta | None = request.max_turn_duration.ToTimedelta() if timed else None
    return AgentProfile(
        name=name,
        description=request.description,
        model=request.model,
        system_prompt=request.system_prompt,
        time_zone=request.time_zone,
        preferences=dict(request.preferences),
        max_context_tokens=request.max_context_tokens or DEFAULT_CONTEXT_TOKENS,
        compaction=_from_compaction(request.compaction),
        max_steps=request.max_steps or DEFAULT_STEPS,
        max_turn_duration=duration,
        max_turn_tokens=request.max_turn_tokens or None,
        max_memory_writes=request.max_memory_writes if request.HasField("max_memory_writes") else None,
        allowed_tools=tools,
    )


def _enabled(request: agent_service_pb2.CreateAgentRequest | agent_service_pb2.UpdateAgentRequest) -> bool:
    return request.enabled if request.HasField("enabled") else True


def _memory_mode(
    request: agent_service_pb2.CreateAgentRequest | agent_service_pb2.UpdateAgentRequest,
) -> MemoryMode:
    return MemoryMode(request.memory_mode) if request.memory_mode else MemoryMode.SHARED


def _from_compaction(settings: agent_pb2.CompactionSettings) -> CompactionRules:
    default = _DEFAULT_RULES
    return CompactionRules(
        mode=CompactionMode(settings.mode) if settings.mode else default.mode,
        threshold=settings.threshold if settings.HasField("threshold") else default.threshold,
        message_threshold=settings.message_threshold or default.message_threshold,
        keep_newest=settings.keep_newest if settings.HasField("keep_newest") else default.keep_newest,
        summary_words=settings.summary_words or default.summary_words,
    )


def _to_compaction(rules: CompactionRules) -> agent_pb2.CompactionSettings:
    return agent_pb2.CompactionSettings(
        mode=agent_pb2.CompactionMode.ValueType(rules.mode),
        threshold=rules.threshold,
        message_threshold=rules.message_threshold,
        keep_newest=rules.keep_newest,
        summary_words=rules.summary_words,
    )
