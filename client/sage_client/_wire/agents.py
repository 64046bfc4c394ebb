"""Agents, and what can be said about them."""

from __future__ import annotations

from google.protobuf.field_mask_pb2 import FieldMask

from sage.v1 import agent_pb2
from sage.v1 import agent_service_pb2 as pb
from sage_client._wire.agent_enums import (
    compaction_mode_from,
    compaction_mode_to,
    mode_from,
    mode_to,
    section_from,
)
from sage_client._wire.times import duration_to, time_from
from sage_client._wire.values import texts_to
from sage_client.models.agents import (
    Agent,
    AgentSettings,
    CompactionSettings,
    ContextPreview,
    ContextSection,
    ToolInfo,
)


def agent_from(message: agent_pb2.Agent) -> Agent:
    """An agent."""
    return Agent(
        id=message.id,
        name=message.name,
        description=message.description,
        enabled=message.enabled,
        memory_mode=mode_from(message.memory_mode),
        model=message.model,
        system_prompt=message.system_prompt,
        time_zone=message.time_zone,
        preferences=dict(message.preferences),
        max_context_tokens=message.max_context_tokens,
        compaction=_compaction_from(message.compaction),
        max_steps=message.max_steps,
        max_turn_duration=message.max_turn_duration.ToTimedelta(),
        max_turn_tokens=message.max_turn_tokens,
        max_memory_writes=message.max_memory_writes,
        allowed_tools=tuple(message.allowed_tools.names) if message.HasField("allowed_tools") else None,
        create_time=time_from(message.create_time),
        update_time=time_from(message.update_time),
        etag=message.etag,
        message_count=message.message_count,
        last_turn_time=time_from(message.last_turn_time) if message.HasField("last_turn_time") else None,
    )


def new_agent_to(name: str, settings: AgentSettings, *, request_id: str) -> pb.CreateAgentRequest:
    """An agent to create."""
    _check(settings)
    return pb.CreateAgentRequest(
        name=name,
        description=settings.get("description", ""),
        enabled=settings.get("enabled"),
        memory_mode=mode_to(settings.get("memory_mode")),
        model=settings.get("model", ""),
        system_prompt=settings.get("system_prompt", ""),
        time_zone=settings.get("time_zone", ""),
        preferences=settings.get("preferences"),
        max_context_tokens=settings.get("max_context_tokens", 0),
        compaction=_compaction_to(settings.get("compaction")),
        max_steps=settings.get("max_steps", 0),
        max_turn_duration=duration_to(settings.get("max_turn_duration")),
        max_turn_tokens=settings.get("max_turn_tokens", 0),
        max_memory_writes=settings.get("max_memory_writes"),
        allowed_tools=_tools_to(settings),
        request_id=request_id,
    )


def agent_update_to(agent: str, settings: AgentSettings, *, etag: str) -> pb.UpdateAgentRequest:
    """A change of what is given: the mask names that and nothing else."""
    _check(settings)
    return pb.UpdateAgentRequest(
        agent=agent,
        description=settings.get("description", ""),
        enabled=settings.get("enabled"),
        memory_mode=mode_to(settings.get("memory_mode")),
        model=settings.get("model", ""),
        system_prompt=settings.get("system_prompt", ""),
        time_zone=settings.get("time_zone", ""),
        preferences=settings.get("preferences"),
        max_context_tokens=settings.get("max_context_tokens", 0),
        compaction=_compaction_to(settings.get("compaction")),
        max_steps=settings.get("max_steps", 0),
        max_turn_duration=duration_to(settings.get("max_turn_duration")),
        max_turn_tokens=settings.get("max_turn_tokens", 0),
        max_memory_writes=settings.get("max_memory_writes"),
        allowed_tools=_tools_to(settings),
        update_mask=FieldMask(paths=list(settings)),
        etag=etag,
    )


def preview_from(message: agent_pb2.ContextPreview) -> ContextPreview:
    """What the next turn would send."""
    return ContextPreview(
        sections=tuple(
            ContextSection(section_from(part.kind), part.text, part.token_count, part.entry_count)
            for part in message.sections
        ),
        token_count=message.token_count,
        max_context_tokens=message.max_context_tokens,
        compaction_tokens=message.compaction_tokens,
        would_compact=message.would_compact,
        model=message.model,
        tokenizer=message.tokenizer,
        is_first_time_user=message.is_first_time_user,
    )


def tool_from(message: agent_pb2.ToolInfo) -> ToolInfo:
    """A tool."""
    return ToolInfo(
        name=message.name,
        description=message.description,
        parameters_schema_json=message.parameters_schema_json,
        enabled=message.enabled,
        disabled_by_flag=message.disabled_by_flag,
        requires_user=message.requires_user,
        has_effects=message.has_effects,
    )


def _check(settings: AgentSettings) -> None:
    # Only a type checker knows the names of what comes as keywords; a misspelt one must not pass unseen.
    unknown = settings.keys() - AgentSettings.__annotations__.keys()
    if unknown:
        raise TypeError(f"an agent has no setting {', '.join(sorted(unknown))}")


def _compaction_from(message: agent_pb2.CompactionSettings) -> CompactionSettings:
    return CompactionSettings(
        mode=compaction_mode_from(message.mode),
        threshold=message.threshold,
        message_threshold=message.message_threshold,
        keep_newest=message.keep_newest,
        summary_words=message.summary_words,
    )


def _compaction_to(value: CompactionSettings | None) -> agent_pb2.CompactionSettings | None:
    if value is None:
        return None
    return agent_pb2.CompactionSettings(
        mode=compaction_mode_to(value.mode),
        threshold=value.threshold,
        message_threshold=value.message_threshold,
        keep_newest=value.keep_newest,
        summary_words=value.summary_words,
    )


def _tools_to(settings: AgentSettings) -> agent_pb2.ToolSelection | None:
    # No tool at all is a selection too, only an empty one.
    names = settings.get("allowed_tools")
    return None if names is None else agent_pb2.ToolSelection(names=texts_to(names))
