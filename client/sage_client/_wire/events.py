"""The events of turns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sage.v1 import turn_event_pb2 as pb
from sage_client._wire.agent_enums import cancel_from, channel_from, handoff_from, outcome_from, stop_from
from sage_client._wire.conversations import item_from
from sage_client._wire.enums import reason_from, source_from
from sage_client._wire.search import result_from
from sage_client._wire.times import time_from
from sage_client._wire.turns import usage_from
from sage_client.models.events import (
    EventChannel,
    TurnAccepted,
    TurnCancelled,
    TurnCompaction,
    TurnDelta,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnHandoff,
    TurnHeartbeat,
    TurnMessage,
    TurnRetrieval,
    TurnSilent,
    TurnToolCall,
    TurnToolResult,
    TurnTyping,
)

_Head = tuple[int, str, int, datetime, str, str, EventChannel, str]


def event_from(message: pb.TurnEvent) -> TurnEvent | None:
    """The event, or None for a kind that this client does not know."""
    read = _READ.get(message.WhichOneof("event") or "")
    return read(_head_from(message), message) if read is not None else None


def _head_from(message: pb.TurnEvent) -> _Head:
    return (
        message.event_id,
        message.turn_id,
        message.step,
        time_from(message.create_time),
        message.agent_id,
        message.conversation_id,
        channel_from(message.channel),
        message.schedule_run_id,
    )


def _accepted(head: _Head, message: pb.TurnEvent) -> TurnAccepted:
    it = message.accepted
    return TurnAccepted(
        *head,
        input=item_from(it.input) if it.HasField("input") else None,
        agent=it.agent,
        queue_position=it.queue_position,
        request_id=it.request_id,
    )


def _typing(head: _Head, message: pb.TurnEvent) -> TurnTyping:
    return TurnTyping(*head, model=message.typing.model)


def _delta(head: _Head, message: pb.TurnEvent) -> TurnDelta:
    it = message.delta
    return TurnDelta(*head, index=it.index, offset=it.offset, text=it.text)


def _message(head: _Head, message: pb.TurnEvent) -> TurnMessage:
    return TurnMessage(*head, item=item_from(message.message.item), index=message.message.index)


def _tool_call(head: _Head, message: pb.TurnEvent) -> TurnToolCall:
    it = message.tool_call
    return TurnToolCall(
        *head, call_id=it.call_id, name=it.name, arguments_json=it.arguments_json, item_id=it.item_id
    )


def _tool_result(head: _Head, message: pb.TurnEvent) -> TurnToolResult:
    it = message.tool_result
    return TurnToolResult(
        *head,
        call_id=it.call_id,
        name=it.name,
        outcome=outcome_from(it.outcome),
        output=it.output,
        item_id=it.item_id,
        block_id=it.block_id,
        memory_id=it.memory_id,
        duration=it.duration.ToTimedelta(),
    )


def _retrieval(head: _Head, message: pb.TurnEvent) -> TurnRetrieval:
    it = message.retrieval
    return TurnRetrieval(
        *head,
        call_id=it.call_id,
        query=it.query,
        sources=tuple(source_from(number) for number in it.sources),
        results=tuple(result_from(result) for result in it.results),
        duration=it.duration.ToTimedelta(),
    )


def _compaction(head: _Head, message: pb.TurnEvent) -> TurnCompaction:
    it = message.compaction
    return TurnCompaction(
        *head,
        applied=it.applied,
        summary_id=it.summary_id,
        from_seq=it.from_seq,
        to_seq=it.to_seq,
        message_count=it.message_count,
        tokens_before=it.tokens_before,
        tokens_after=it.tokens_after,
        reason=reason_from(it.reason),
    )


def _handoff(head: _Head, message: pb.TurnEvent) -> TurnHandoff:
    it = message.handoff
    return TurnHandoff(
        *head,
        from_agent_id=it.from_agent_id,
        to_agent_id=it.to_agent_id,
        to_agent=it.to_agent,
        cause=handoff_from(it.cause),
        child_turn_id=it.child_turn_id,
    )


def _silent(head: _Head, message: pb.TurnEvent) -> TurnSilent:
    return TurnSilent(*head, item_id=message.silent.item_id)


def _heartbeat(head: _Head, message: pb.TurnEvent) -> TurnHeartbeat:
    return TurnHeartbeat(*head, last_event_id=message.heartbeat.last_event_id)


def _done(head: _Head, message: pb.TurnEvent) -> TurnDone:
    it = message.done
    return TurnDone(
        *head,
        stop_reason=stop_from(it.stop_reason),
        step_count=it.step_count,
        message_count=it.message_count,
        tool_call_count=it.tool_call_count,
        usage=usage_from(it.usage),
        memory_token=it.memory_token,
        duration=it.duration.ToTimedelta(),
    )


def _failed(head: _Head, message: pb.TurnEvent) -> TurnFailed:
    it = message.failed
    return TurnFailed(
        *head,
        reason=reason_from(it.reason) or "UNKNOWN",
        retryable=it.retryable,
        message=it.message,
        retry_delay=it.retry_delay.ToTimedelta() if it.HasField("retry_delay") else None,
        step_count=it.step_count,
        message_count=it.message_count,
        usage=usage_from(it.usage),
        memory_token=it.memory_token,
    )


def _cancelled(head: _Head, message: pb.TurnEvent) -> TurnCancelled:
    it = message.cancelled
    return TurnCancelled(
        *head,
        cause=cancel_from(it.cause),
        interrupted_by_turn_id=it.interrupted_by_turn_id,
        step_count=it.step_count,
        message_count=it.message_count,
        usage=usage_from(it.usage),
        memory_token=it.memory_token,
    )


_READ: dict[str, Callable[[_Head, pb.TurnEvent], TurnEvent]] = {
    "accepted": _accepted,
    "typing": _typing,
    "delta": _delta,
    "message": _message,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "retrieval": _retrieval,
    "compaction": _compaction,
    "handoff": _handoff,
    "silent": _silent,
    "heartbeat": _heartbeat,
    "done": _done,
    "failed": _failed,
    "cancelled": _cancelled,
}
