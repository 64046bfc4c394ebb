"""Enums of agents, their turns and events, as in enums.py."""

from __future__ import annotations

from sage.v1 import agent_pb2, agent_service_pb2, turn_event_pb2
from sage_client._wire.enums import known
from sage_client.models.agents import CompactionMode, ContextSectionKind, MemoryMode
from sage_client.models.events import EventChannel, HandoffCause, ToolOutcome
from sage_client.models.overlays import OverlayChangeKind, OverlayConflictPolicy
from sage_client.models.turns import CancelCause, OnBusy, StopReason, TurnOrigin, TurnStatus

_ON_BUSY = {
    OnBusy.QUEUE: turn_event_pb2.ON_BUSY_QUEUE,
    OnBusy.REJECT: turn_event_pb2.ON_BUSY_REJECT,
    OnBusy.INTERRUPT: turn_event_pb2.ON_BUSY_INTERRUPT,
}
_MODE = {
    MemoryMode.SHARED: agent_pb2.MEMORY_MODE_SHARED,
    MemoryMode.ISOLATED: agent_pb2.MEMORY_MODE_ISOLATED,
    MemoryMode.OVERLAY: agent_pb2.MEMORY_MODE_OVERLAY,
}
_COMPACTION = {
    CompactionMode.TOKENS: agent_pb2.COMPACTION_MODE_TOKENS,
    CompactionMode.MESSAGES: agent_pb2.COMPACTION_MODE_MESSAGES,
    CompactionMode.OFF: agent_pb2.COMPACTION_MODE_OFF,
}
_STATUS = {
    TurnStatus.QUEUED: agent_pb2.TURN_STATUS_QUEUED,
    TurnStatus.RUNNING: agent_pb2.TURN_STATUS_RUNNING,
    TurnStatus.DONE: agent_pb2.TURN_STATUS_DONE,
    TurnStatus.FAILED: agent_pb2.TURN_STATUS_FAILED,
    TurnStatus.CANCELLED: agent_pb2.TURN_STATUS_CANCELLED,
}
_ORIGIN = {
    TurnOrigin.CHAT: agent_pb2.TURN_ORIGIN_CHAT,
    TurnOrigin.RESPOND: agent_pb2.TURN_ORIGIN_RESPOND,
    TurnOrigin.SCHEDULE: agent_pb2.TURN_ORIGIN_SCHEDULE,
    TurnOrigin.DELEGATION: agent_pb2.TURN_ORIGIN_DELEGATION,
    TurnOrigin.TASK: agent_pb2.TURN_ORIGIN_TASK,
}
_CHANNEL = {
    EventChannel.TURN: turn_event_pb2.EVENT_CHANNEL_TURN,
    EventChannel.PROACTIVE: turn_event_pb2.EVENT_CHANNEL_PROACTIVE,
}
_CONFLICT = {
    OverlayConflictPolicy.SKIP: agent_service_pb2.OVERLAY_CONFLICT_POLICY_SKIP,
    OverlayConflictPolicy.OVERWRITE: agent_service_pb2.OVERLAY_CONFLICT_POLICY_OVERWRITE,
    OverlayConflictPolicy.FAIL: agent_service_pb2.OVERLAY_CONFLICT_POLICY_FAIL,
}
_STOP_FROM = {
    turn_event_pb2.STOP_REASON_ANSWERED: StopReason.ANSWERED,
    turn_event_pb2.STOP_REASON_DONE_TOOL: StopReason.DONE_TOOL,
    turn_event_pb2.STOP_REASON_SILENT: StopReason.SILENT,
    turn_event_pb2.STOP_REASON_STEP_LIMIT: StopReason.STEP_LIMIT,
    turn_event_pb2.STOP_REASON_TIME_LIMIT: StopReason.TIME_LIMIT,
    turn_event_pb2.STOP_REASON_TOKEN_LIMIT: StopReason.TOKEN_LIMIT,
}
_CANCEL_FROM = {
    turn_event_pb2.CANCEL_CAUSE_CALLER: CancelCause.CALLER,
    turn_event_pb2.CANCEL_CAUSE_INTERRUPTED: CancelCause.INTERRUPTED,
    turn_event_pb2.CANCEL_CAUSE_PARENT: CancelCause.PARENT,
    turn_event_pb2.CANCEL_CAUSE_DELETED: CancelCause.DELETED,
    turn_event_pb2.CANCEL_CAUSE_OPERATOR: CancelCause.OPERATOR,
}
_OUTCOME_FROM = {
    turn_event_pb2.TOOL_OUTCOME_OK: ToolOutcome.OK,
    turn_event_pb2.TOOL_OUTCOME_INVALID: ToolOutcome.INVALID,
    turn_event_pb2.TOOL_OUTCOME_REFUSED: ToolOutcome.REFUSED,
    turn_event_pb2.TOOL_OUTCOME_FAILED: ToolOutcome.FAILED,
}
_HANDOFF_FROM = {
    turn_event_pb2.HANDOFF_CAUSE_MENTION: HandoffCause.MENTION,
    turn_event_pb2.HANDOFF_CAUSE_CONTINUITY: HandoffCause.CONTINUITY,
    turn_event_pb2.HANDOFF_CAUSE_DELEGATION: HandoffCause.DELEGATION,
    turn_event_pb2.HANDOFF_CAUSE_FALLBACK: HandoffCause.FALLBACK,
}
_SECTION_FROM = {
    agent_pb2.CONTEXT_SECTION_KIND_INSTRUCTION: ContextSectionKind.INSTRUCTION,
    agent_pb2.CONTEXT_SECTION_KIND_TIME: ContextSectionKind.TIME,
    agent_pb2.CONTEXT_SECTION_KIND_BLOCKS: ContextSectionKind.BLOCKS,
    agent_pb2.CONTEXT_SECTION_KIND_MEMORY_METADATA: ContextSectionKind.MEMORY_METADATA,
    agent_pb2.CONTEXT_SECTION_KIND_TOOLS: ContextSectionKind.TOOLS,
    agent_pb2.CONTEXT_SECTION_KIND_SUMMARY: ContextSectionKind.SUMMARY,
    agent_pb2.CONTEXT_SECTION_KIND_ITEMS: ContextSectionKind.ITEMS,
    agent_pb2.CONTEXT_SECTION_KIND_INPUT: ContextSectionKind.INPUT,
}
_CHANGE_KIND_FROM = {
    agent_pb2.OVERLAY_CHANGE_KIND_MEMORY_INSERTED: OverlayChangeKind.MEMORY_INSERTED,
    agent_pb2.OVERLAY_CHANGE_KIND_MEMORY_UPDATED: OverlayChangeKind.MEMORY_UPDATED,
    agent_pb2.OVERLAY_CHANGE_KIND_MEMORY_DELETED: OverlayChangeKind.MEMORY_DELETED,
    agent_pb2.OVERLAY_CHANGE_KIND_BLOCK_CREATED: OverlayChangeKind.BLOCK_CREATED,
    agent_pb2.OVERLAY_CHANGE_KIND_BLOCK_UPDATED: OverlayChangeKind.BLOCK_UPDATED,
    agent_pb2.OVERLAY_CHANGE_KIND_BLOCK_DELETED: OverlayChangeKind.BLOCK_DELETED,
}
_MODE_FROM = {number: value for value, number in _MODE.items()}
_COMPACTION_FROM = {number: value for value, number in _COMPACTION.items()}
_STATUS_FROM = {number: value for value, number in _STATUS.items()}
_ORIGIN_FROM = {number: value for value, number in _ORIGIN.items()}
_CHANNEL_FROM = {number: value for value, number in _CHANNEL.items()}


def on_busy_to(value: OnBusy) -> turn_event_pb2.OnBusy.ValueType:
    """What to do while another turn runs."""
    return _ON_BUSY[value]


def mode_to(value: MemoryMode | None) -> agent_pb2.MemoryMode.ValueType:
    """None leaves it to the server. Raises ValueError for UNKNOWN."""
    return agent_pb2.MEMORY_MODE_UNSPECIFIED if value is None else _MODE[known(value)]


def mode_from(number: agent_pb2.MemoryMode.ValueType) -> MemoryMode:
    """What an agent sees of the user's memory."""
    return _MODE_FROM.get(number, MemoryMode.UNKNOWN)


def compaction_mode_to(value: CompactionMode) -> agent_pb2.CompactionMode.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _COMPACTION[known(value)]


def compaction_mode_from(number: agent_pb2.CompactionMode.ValueType) -> CompactionMode:
    """What triggers a compaction."""
    return _COMPACTION_FROM.get(number, CompactionMode.UNKNOWN)


def turn_status_to(value: TurnStatus) -> agent_pb2.TurnStatus.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _STATUS[known(value)]


def turn_status_from(number: agent_pb2.TurnStatus.ValueType) -> TurnStatus:
    """Where a turn is."""
    return _STATUS_FROM.get(number, TurnStatus.UNKNOWN)


def origin_to(value: TurnOrigin) -> agent_pb2.TurnOrigin.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _ORIGIN[known(value)]


def origin_from(number: agent_pb2.TurnOrigin.ValueType) -> TurnOrigin:
    """What started a turn."""
    return _ORIGIN_FROM.get(number, TurnOrigin.UNKNOWN)


def channel_to(value: EventChannel) -> turn_event_pb2.EventChannel.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _CHANNEL[known(value)]


def channel_from(number: turn_event_pb2.EventChannel.ValueType) -> EventChannel:
    """What made an event."""
    return _CHANNEL_FROM.get(number, EventChannel.UNKNOWN)


def stop_from(number: turn_event_pb2.StopReason.ValueType) -> StopReason:
    """Why a turn ended without failing."""
    return _STOP_FROM.get(number, StopReason.UNKNOWN)


def cancel_from(number: turn_event_pb2.CancelCause.ValueType) -> CancelCause:
    """Who cancelled a turn."""
    return _CANCEL_FROM.get(number, CancelCause.UNKNOWN)


def outcome_from(number: turn_event_pb2.ToolOutcome.ValueType) -> ToolOutcome:
    """How a tool call went."""
    return _OUTCOME_FROM.get(number, ToolOutcome.UNKNOWN)


def handoff_from(number: turn_event_pb2.HandoffCause.ValueType) -> HandoffCause:
    """Why another agent works."""
    return _HANDOFF_FROM.get(number, HandoffCause.UNKNOWN)


def section_from(number: agent_pb2.ContextSectionKind.ValueType) -> ContextSectionKind:
    """Which part of a context."""
    return _SECTION_FROM.get(number, ContextSectionKind.UNKNOWN)


def conflict_policy_to(value: OverlayConflictPolicy) -> agent_service_pb2.OverlayConflictPolicy.ValueType:
    """What a merge does with a conflict."""
    return _CONFLICT[value]


def change_kind_from(number: agent_pb2.OverlayChangeKind.ValueType) -> OverlayChangeKind:
    """What an overlay change is."""
    return _CHANGE_KIND_FROM.get(number, OverlayChangeKind.UNKNOWN)
