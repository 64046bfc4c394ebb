"""Turns."""

from __future__ import annotations

from sage.v1 import agent_pb2, turn_event_pb2
from sage_client._wire.agent_enums import cancel_from, origin_from, stop_from, turn_status_from
from sage_client._wire.enums import reason_from
from sage_client._wire.times import time_from
from sage_client.models.turns import TokenUsage, Turn


def turn_from(message: agent_pb2.Turn) -> Turn:
    """A turn."""
    return Turn(
        id=message.id,
        agent_id=message.agent_id,
        agent=message.agent,
        conversation_id=message.conversation_id,
        status=turn_status_from(message.status),
        origin=origin_from(message.origin),
        step=message.step,
        message_count=message.message_count,
        tool_call_count=message.tool_call_count,
        usage=usage_from(message.usage),
        stop_reason=stop_from(message.stop_reason) if message.stop_reason else None,
        error_reason=reason_from(message.error_reason),
        retryable=message.retryable,
        cancel_cause=cancel_from(message.cancel_cause) if message.cancel_cause else None,
        request_id=message.request_id,
        input_item_id=message.input_item_id,
        parent_turn_id=message.parent_turn_id,
        schedule_run_id=message.schedule_run_id,
        task_graph_id=message.task_graph_id,
        first_event_id=message.first_event_id,
        last_event_id=message.last_event_id,
        create_time=time_from(message.create_time),
        start_time=time_from(message.start_time) if message.HasField("start_time") else None,
        end_time=time_from(message.end_time) if message.HasField("end_time") else None,
        memory_token=message.memory_token,
    )


def usage_from(message: turn_event_pb2.TokenUsage) -> TokenUsage:
    """What something cost."""
    return TokenUsage(
        prompt_tokens=message.prompt_tokens,
        completion_tokens=message.completion_tokens,
        embedding_tokens=message.embedding_tokens,
        model_calls=message.model_calls,
    )
