"""Turns and contexts as messages. The domain's enum numbers are the contract's; a test says so."""

from __future__ import annotations

import json
from uuid import UUID

from sage.v1 import agent_pb2, agent_service_pb2, turn_event_pb2
from sage_server.domain.turns import OnBusy, Turn, TurnOrigin, TurnStatus
from sage_server.engine.prompt_window import Section
from sage_server.engine.tools.toolbox import OfferedTool
from sage_server.ports.turns import TurnFilter
from sage_server.rpc.event_mapping import to_reason, to_usage
from sage_server.rpc.mapping import from_time_of, to_timestamp
from sage_server.services.agent_contexts import ContextPreview


def to_turn(turn: Turn, agent: str, token: str) -> agent_pb2.Turn:
    """A turn for a caller; `agent` is the name of its agent."""
    return agent_pb2.Turn(
        id=str(turn.id),
        agent_id=str(turn.agent_id),
        agent=agent,
        conversation_id="" if turn.own_thread else str(turn.conversation_id),
        status=agent_pb2.TurnStatus.ValueType(turn.status),
        origin=agent_pb2.TurnOrigin.ValueType(turn.origin),
        step=turn.step,
        message_count=turn.message_count,
        tool_call_count=turn.tool_call_count,
        usage=to_usage(turn.usage),
        stop_reason=turn_event_pb2.StopReason.ValueType(turn.stop_reason or 0),
        error_reason=to_reason(turn.error_reason),
        retryable=turn.retryable,
        cancel_cause=turn_event_pb2.CancelCause.ValueType(turn.cancel_cause or 0),
        request_id=_id(turn.request_id),
        input_item_id=_id(turn.input_item_id),
        parent_turn_id=_id(turn.parent_turn_id),
        first_event_id=turn.first_event,
        last_event_id=turn.last_event,
        create_time=to_timestamp(turn.created_at),
        start_time=to_timestamp(turn.started_at),
        end_time=to_timestamp(turn.ended_at),
        memory_token=token,
    )


def from_on_busy(on_busy: int) -> OnBusy:
    """Unspecified means to wait."""
    return OnBusy(on_busy) if on_busy else OnBusy.QUEUE


def from_turn_filter(request: agent_service_pb2.ListTurnsRequest, agent_id: UUID | None) -> TurnFilter:
    """Which turns to list."""
    created = request.created
    return TurnFilter(
        agent_id=agent_id,
        conversation_id=UUID(request.conversation_id) if request.conversation_id else None,
        statuses=frozenset(TurnStatus(status) for status in request.statuses),
        origins=frozenset(TurnOrigin(origin) for origin in request.origins),
        start=from_time_of(created, "start_time", "created."),
        end=from_time_of(created, "end_time", "created."),
    )


def to_tool(tool: OfferedTool) -> agent_pb2.ToolInfo:
    """A tool for a caller."""
    return agent_pb2.ToolInfo(
        name=tool.name,
        description=tool.description,
        parameters_schema_json=json.dumps(tool.schema),
        enabled=tool.enabled,
        disabled_by_flag="" if tool.disabled_by is None else tool.disabled_by.value,
        requires_user=tool.requires_user,
        has_effects=tool.has_effects,
    )


def to_preview(preview: ContextPreview) -> agent_pb2.ContextPreview:
    """A context for a caller."""
    return agent_pb2.ContextPreview(
        sections=[_section(section) for section in preview.sections],
        token_count=preview.token_count,
        max_context_tokens=preview.max_context_tokens,
        compaction_tokens=preview.compaction_tokens,
        would_compact=preview.would_compact,
        model=preview.model,
        tokenizer=preview.tokenizer,
        is_first_time_user=preview.first_time,
    )


def _section(section: Section) -> agent_pb2.ContextSection:
    return agent_pb2.ContextSection(
        kind=agent_pb2.ContextSectionKind.ValueType(section.kind),
        text=section.text,
        token_count=section.token_count,
        entry_count=section.entry_count,
    )


def _id(found: UUID | None) -> str:
    return "" if found is None else str(found)
