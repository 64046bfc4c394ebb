"""Events of turns as messages. The domain's enum numbers are the contract's; a test says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from google.protobuf.duration_pb2 import Duration

from sage.v1 import error_reason_pb2, item_pb2, memory_pb2
from sage.v1 import turn_event_pb2 as pb
from sage_server.domain.conversations import Item
from sage_server.domain.errors import Reason
from sage_server.domain.events import (
    ENDS,
    Accepted,
    Cancelled,
    Compacted,
    Delta,
    Done,
    Event,
    Failed,
    HandedOff,
    Heartbeat,
    Retrieved,
    Said,
    Silent,
    ToolAnswered,
    ToolCalled,
    Typing,
)
from sage_server.domain.turns import TokenUsage
from sage_server.rpc.conversation_mapping import to_item
from sage_server.rpc.failure_texts import failure_text
from sage_server.rpc.mapping import set_time
from sage_server.rpc.memory_mapping import add_result
from sage_server.rpc.memory_tokens import MemoryTokens


class TurnEvents:
    """Writes events for callers."""

    def __init__(self, tokens: MemoryTokens) -> None:
        self._tokens = tokens

    async def encode(self, user_id: UUID, event: Event) -> pb.TurnEvent:
        """An event for a caller. The end of a turn carries a token of what the turn stored in memory."""
        payload = event.payload
        token = ""
        if isinstance(payload, ENDS):
            token = await self._tokens.write(user_id, payload.memory_revision)
        return to_turn_event(event, token)


def to_turn_event(event: Event, token: str) -> pb.TurnEvent:
    """An event for a caller; the token is for the end of a turn."""
    message = pb.TurnEvent(
        event_id=event.seq,
        turn_id=_id(event.turn_id),
        step=event.step,
        agent_id=_id(event.agent_id),
        conversation_id=_id(event.conversation_id),
        channel=pb.EventChannel.ValueType(event.channel),
    )
    set_time(message.create_time, event.created_at)
    _WRITERS[type(event.payload)](event, event.payload, token, message)
    return message


def to_usage(usage: TokenUsage) -> pb.TokenUsage:
    """What something cost, for a caller."""
    return pb.TokenUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        embedding_tokens=usage.embedding_tokens,
        model_calls=usage.model_calls,
    )


def to_reason(reason: Reason | None) -> error_reason_pb2.ErrorReason.ValueType:
    """A reason for a caller, or unspecified."""
    if reason is None:
        return error_reason_pb2.ERROR_REASON_UNSPECIFIED
    return error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{reason.value}")


def _accepted(event: Event, accepted: Accepted, _token: str, message: pb.TurnEvent) -> None:
    target = message.accepted
    target.SetInParent()
    target.agent = accepted.agent
    target.queue_position = accepted.queue_position
    target.request_id = _id(accepted.request_id)
    if accepted.input is not None:
        target.input.CopyFrom(_item(event, accepted.input))


def _typing(_event: Event, typing: Typing, _token: str, message: pb.TurnEvent) -> None:
    message.typing.CopyFrom(pb.TurnTyping(model=typing.model))


def _delta(_event: Event, delta: Delta, _token: str, message: pb.TurnEvent) -> None:
    message.delta.CopyFrom(pb.TurnDelta(index=delta.index, offset=delta.offset, text=delta.text))


def _said(event: Event, said: Said, _token: str, message: pb.TurnEvent) -> None:
    message.message.index = said.index
    message.message.item.CopyFrom(_item(event, said.item))


def _tool_called(_event: Event, call: ToolCalled, _token: str, message: pb.TurnEvent) -> None:
    message.tool_call.CopyFrom(
        pb.TurnToolCall(
            call_id=call.call_id,
            name=call.name,
            arguments_json=call.arguments_json,
            item_id=str(call.item_id),
        )
    )


def _tool_answered(_event: Event, answer: ToolAnswered, _token: str, message: pb.TurnEvent) -> None:
    message.tool_result.CopyFrom(
        pb.TurnToolResult(
            call_id=answer.call_id,
            name=answer.name,
            outcome=pb.ToolOutcome.ValueType(answer.outcome),
            output=answer.output,
            item_id=str(answer.item_id),
            block_id=_id(answer.block_id),
            memory_id=_id(answer.memory_id),
            duration=_duration(answer.duration),
        )
    )


def _retrieved(_event: Event, found: Retrieved, _token: str, message: pb.TurnEvent) -> None:
    target = message.retrieval
    target.SetInParent()
    target.call_id = found.call_id
    target.query = found.query
    target.sources.extend(memory_pb2.MemorySource.ValueType(source) for source in found.sources)
    target.duration.FromTimedelta(found.duration)
    for rank, scored in enumerate(found.results, 1):
        add_result(target.results, scored, rank)


def _compacted(_event: Event, compacted: Compacted, _token: str, message: pb.TurnEvent) -> None:
    message.compaction.CopyFrom(
        pb.TurnCompaction(
            applied=compacted.applied,
            summary_id=_id(compacted.summary_id),
            from_seq=compacted.from_seq,
            to_seq=compacted.to_seq,
            message_count=compacted.message_count,
            tokens_before=compacted.tokens_before,
            tokens_after=compacted.tokens_after,
            reason=to_reason(compacted.reason),
        )
    )


def _handed_off(_event: Event, handoff: HandedOff, _token: str, message: pb.TurnEvent) -> None:
    message.handoff.CopyFrom(
        pb.TurnHandoff(
            from_agent_id=str(handoff.from_agent_id),
            to_agent_id=str(handoff.to_agent_id),
            to_agent=handoff.to_agent,
            cause=pb.HandoffCause.ValueType(handoff.cause),
            child_turn_id=_id(handoff.child_turn_id),
        )
    )


def _silent(_event: Event, silent: Silent, _token: str, message: pb.TurnEvent) -> None:
    message.silent.CopyFrom(pb.TurnSilent(item_id=str(silent.item_id)))


def _heartbeat(_event: Event, beat: Heartbeat, _token: str, message: pb.TurnEvent) -> None:
    message.heartbeat.CopyFrom(pb.TurnHeartbeat(last_event_id=beat.last_event))


def _done(_event: Event, done: Done, token: str, message: pb.TurnEvent) -> None:
    message.done.CopyFrom(
        pb.TurnDone(
            stop_reason=pb.StopReason.ValueType(done.stop_reason),
            step_count=done.step_count,
            message_count=done.message_count,
            tool_call_count=done.tool_call_count,
            usage=to_usage(done.usage),
            memory_token=token,
            duration=_duration(done.duration),
        )
    )


def _failed(_event: Event, failed: Failed, token: str, message: pb.TurnEvent) -> None:
    message.failed.CopyFrom(
        pb.TurnFailed(
            reason=to_reason(failed.reason),
            retryable=failed.retryable,
            message=failure_text(failed.reason),
            retry_delay=None if failed.retry_after is None else _duration(failed.retry_after),
            step_count=failed.step_count,
            usage=to_usage(failed.usage),
            message_count=failed.message_count,
            memory_token=token,
        )
    )


def _cancelled(_event: Event, cancelled: Cancelled, token: str, message: pb.TurnEvent) -> None:
    message.cancelled.CopyFrom(
        pb.TurnCancelled(
            cause=pb.CancelCause.ValueType(cancelled.cause),
            interrupted_by_turn_id=_id(cancelled.interrupted_by),
            step_count=cancelled.step_count,
            usage=to_usage(cancelled.usage),
            message_count=cancelled.message_count,
            memory_token=token,
        )
    )


_WRITERS: dict[type, Callable[[Event, Any, str, pb.TurnEvent], None]] = {
    Accepted: _accepted,
    Typing: _typing,
    Delta: _delta,
    Said: _said,
    ToolCalled: _tool_called,
    ToolAnswered: _tool_answered,
    Retrieved: _retrieved,
    Compacted: _compacted,
    HandedOff: _handed_off,
    Silent: _silent,
    Heartbeat: _heartbeat,
    Done: _done,
    Failed: _failed,
    Cancelled: _cancelled,
}


def _item(event: Event, item: Item) -> item_pb2.Item:
    """An item of the event's thread; an agent's own thread has no public id."""
    message = to_item(item)
    message.conversation_id = _id(event.conversation_id)
    return message


def _id(found: UUID | None) -> str:
    return "" if found is None else str(found)


def _duration(length: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(length)
    return duration
