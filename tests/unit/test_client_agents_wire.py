"""How agents, turns and events are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, get_args

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

import sage_client
from sage.v1 import agent_pb2, agent_service_pb2, error_reason_pb2, item_pb2, memory_pb2
from sage.v1 import turn_event_pb2 as events_pb
from sage_client import (
    CancelCause,
    CompactionMode,
    ContextSection,
    ContextSectionKind,
    EventChannel,
    HandoffCause,
    MemoryMode,
    MemorySource,
    OverlayChangeKind,
    OverlayConflictPolicy,
    StopReason,
    TokenUsage,
    ToolOutcome,
    TurnEvent,
    TurnOrigin,
    TurnStatus,
)
from sage_client._wire import agent_enums
from sage_client._wire.agents import agent_from, preview_from, tool_from
from sage_client._wire.events import event_from
from sage_client._wire.overlays import change_from
from sage_client._wire.turns import turn_from
from sage_client.models.events import EventHead

ID = "0193e2a4-7b1c-7c3a-9e58-0123456789ab"
MAY = datetime(2026, 5, 1, tzinfo=UTC)
JUNE = datetime(2026, 6, 1, tzinfo=UTC)
MAY_PB = Timestamp(seconds=int(MAY.timestamp()))
JUNE_PB = Timestamp(seconds=int(JUNE.timestamp()))


def test_an_agent_is_read_whole() -> None:
    message = agent_pb2.Agent(
        id=ID,
        name="scout",
        description="d",
        enabled=True,
        memory_mode=agent_pb2.MEMORY_MODE_ISOLATED,
        model="m",
        system_prompt="p",
        time_zone="Europe/Berlin",
        preferences={"language": "German"},
        max_context_tokens=1,
        compaction=agent_pb2.CompactionSettings(
            mode=agent_pb2.COMPACTION_MODE_OFF,
            threshold=0.5,
            message_threshold=30,
            keep_newest=0,
            summary_words=200,
        ),
        max_steps=2,
        max_turn_duration=Duration(seconds=90),
        max_turn_tokens=3,
        max_memory_writes=4,
        allowed_tools=agent_pb2.ToolSelection(names=["done"]),
        create_time=MAY_PB,
        update_time=JUNE_PB,
        etag="e",
        message_count=7,
        last_turn_time=JUNE_PB,
    )
    agent = agent_from(message)

    assert dataclasses.astuple(agent) == (
        *(ID, "scout", "d", True, MemoryMode.ISOLATED, "m", "p", "Europe/Berlin", {"language": "German"}, 1),
        *((CompactionMode.OFF, 0.5, 30, 0, 200), 2, timedelta(seconds=90), 3, 4, ("done",), MAY, JUNE),
        *("e", 7, JUNE),
    )
    fresh = agent_from(agent_pb2.Agent(name="main"))
    assert (fresh.allowed_tools, fresh.last_turn_time) == (None, None)
    assert fields_of(agent) == set(agent_pb2.Agent.DESCRIPTOR.fields_by_name)


def test_a_change_of_an_overlay_is_read_whole_and_is_about_a_memory_or_a_block() -> None:
    message = agent_pb2.OverlayChange(
        id=ID,
        kind=agent_pb2.OVERLAY_CHANGE_KIND_BLOCK_UPDATED,
        block=memory_pb2.Block(label="human"),
        conflicting=True,
        turn_id="t",
        create_time=MAY_PB,
    )
    change = change_from(message)

    assert (change.id, change.kind, change.memory) == (ID, OverlayChangeKind.BLOCK_UPDATED, None)
    assert change.block is not None
    assert (change.block.label, change.conflicting) == ("human", True)
    assert (change.turn_id, change.create_time) == ("t", MAY)
    other = change_from(agent_pb2.OverlayChange(memory=memory_pb2.Memory(text="x")))
    assert other.memory is not None
    assert (other.memory.text, other.block) == ("x", None)
    assert fields_of(change) == set(agent_pb2.OverlayChange.DESCRIPTOR.fields_by_name)


def test_every_policy_of_a_merge_can_be_sent() -> None:
    numbers = {
        f"OVERLAY_CONFLICT_POLICY_{policy.name}": agent_enums.conflict_policy_to(policy)
        for policy in OverlayConflictPolicy
    }

    assert {"OVERLAY_CONFLICT_POLICY_UNSPECIFIED": 0, **numbers} == dict(
        agent_service_pb2.OverlayConflictPolicy.items()
    )


def test_a_preview_and_a_tool_are_read_whole() -> None:
    preview = preview_from(
        agent_pb2.ContextPreview(
            sections=[
                agent_pb2.ContextSection(
                    kind=agent_pb2.CONTEXT_SECTION_KIND_BLOCKS, text="b", token_count=2, entry_count=3
                )
            ],
            token_count=4,
            max_context_tokens=5,
            compaction_tokens=6,
            would_compact=True,
            model="m",
            tokenizer="o200k_base",
            is_first_time_user=True,
        )
    )
    tool = tool_from(
        agent_pb2.ToolInfo(
            name="fetch_page",
            description="d",
            parameters_schema_json="{}",
            enabled=True,
            disabled_by_flag="web_access",
            requires_user=True,
            has_effects=True,
        )
    )

    assert dataclasses.astuple(tool) == ("fetch_page", "d", "{}", True, "web_access", True, True)
    assert preview == sage_client.ContextPreview(
        (ContextSection(ContextSectionKind.BLOCKS, "b", 2, 3),), 4, 5, 6, True, "m", "o200k_base", True
    )


USAGE = TokenUsage(1, 2, 3, 4)
USAGE_PB = events_pb.TokenUsage(prompt_tokens=1, completion_tokens=2, embedding_tokens=3, model_calls=4)


def test_a_turn_is_read_whole() -> None:
    turn = turn_from(
        agent_pb2.Turn(
            id="t",
            agent_id="a",
            agent="main",
            conversation_id="c",
            status=agent_pb2.TURN_STATUS_FAILED,
            origin=agent_pb2.TURN_ORIGIN_RESPOND,
            step=2,
            message_count=3,
            tool_call_count=4,
            usage=USAGE_PB,
            stop_reason=events_pb.STOP_REASON_STEP_LIMIT,
            error_reason=error_reason_pb2.ERROR_REASON_MODEL_TIMEOUT,
            retryable=True,
            cancel_cause=events_pb.CANCEL_CAUSE_OPERATOR,
            request_id="r",
            input_item_id="i",
            parent_turn_id="p",
            schedule_run_id="s",
            task_graph_id="g",
            first_event_id=5,
            last_event_id=6,
            create_time=MAY_PB,
            start_time=MAY_PB,
            end_time=JUNE_PB,
            memory_token="m",
        )
    )

    assert dataclasses.astuple(turn) == (
        *("t", "a", "main", "c", TurnStatus.FAILED, TurnOrigin.RESPOND, 2, 3, 4, (1, 2, 3, 4)),
        *(StopReason.STEP_LIMIT, "MODEL_TIMEOUT", True, CancelCause.OPERATOR, "r", "i", "p", "s", "g", 5, 6),
        *(MAY, MAY, JUNE, "m"),
    )
    waiting = turn_from(agent_pb2.Turn(id="t"))
    assert (waiting.stop_reason, waiting.error_reason, waiting.cancel_cause) == (None, None, None)
    assert (waiting.start_time, waiting.end_time) == (None, None)


EVENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "accepted": (
        events_pb.TurnAccepted(input=item_pb2.Item(id="i"), agent="main", queue_position=2, request_id="r"),
        {"agent": "main", "queue_position": 2, "request_id": "r"},
    ),
    "typing": (events_pb.TurnTyping(model="m"), {"model": "m"}),
    "delta": (events_pb.TurnDelta(index=1, offset=2, text="x"), {"index": 1, "offset": 2, "text": "x"}),
    "message": (events_pb.TurnMessage(item=item_pb2.Item(text="x"), index=1), {"index": 1, "text": "x"}),
    "tool_call": (
        events_pb.TurnToolCall(call_id="c", name="n", arguments_json="{}", item_id="i"),
        {"call_id": "c", "name": "n", "arguments_json": "{}", "item_id": "i"},
    ),
    "tool_result": (
        events_pb.TurnToolResult(
            call_id="c",
            name="n",
            outcome=events_pb.TOOL_OUTCOME_REFUSED,
            output="o",
            item_id="i",
            block_id="b",
            memory_id="m",
            duration=Duration(seconds=1),
        ),
        {
            "call_id": "c",
            "name": "n",
            "outcome": ToolOutcome.REFUSED,
            "output": "o",
            "item_id": "i",
            "block_id": "b",
            "memory_id": "m",
            "duration": timedelta(seconds=1),
        },
    ),
    "retrieval": (
        events_pb.TurnRetrieval(
            call_id="c",
            query="q",
            sources=[memory_pb2.MEMORY_SOURCE_SUMMARY],
            results=[memory_pb2.SearchResult(rank=1)],
            duration=Duration(seconds=1),
        ),
        {
            "call_id": "c",
            "query": "q",
            "sources": (MemorySource.SUMMARY,),
            "duration": timedelta(seconds=1),
        },
    ),
    "compaction": (
        events_pb.TurnCompaction(
            applied=True,
            summary_id="s",
            from_seq=1,
            to_seq=2,
            message_count=3,
            tokens_before=4,
            tokens_after=5,
            reason=error_reason_pb2.ERROR_REASON_MODEL_TIMEOUT,
        ),
        {
            "applied": True,
            "summary_id": "s",
            "from_seq": 1,
            "to_seq": 2,
            "message_count": 3,
            "tokens_before": 4,
            "tokens_after": 5,
            "reason": "MODEL_TIMEOUT",
        },
    ),
    "handoff": (
        events_pb.TurnHandoff(
            from_agent_id="f",
            to_agent_id="t",
            to_agent="scout",
            cause=events_pb.HANDOFF_CAUSE_DELEGATION,
            child_turn_id="c",
        ),
        {
            "from_agent_id": "f",
            "to_agent_id": "t",
            "to_agent": "scout",
            "cause": HandoffCause.DELEGATION,
            "child_turn_id": "c",
        },
    ),
    "silent": (events_pb.TurnSilent(item_id="i"), {"item_id": "i"}),
    "heartbeat": (events_pb.TurnHeartbeat(last_event_id=9), {"last_event_id": 9}),
    "done": (
        events_pb.TurnDone(
            stop_reason=events_pb.STOP_REASON_DONE_TOOL,
            step_count=1,
            message_count=2,
            tool_call_count=3,
            usage=USAGE_PB,
            memory_token="m",
            duration=Duration(seconds=1),
        ),
        {
            "stop_reason": StopReason.DONE_TOOL,
            "step_count": 1,
            "message_count": 2,
            "tool_call_count": 3,
            "usage": USAGE,
            "memory_token": "m",
            "duration": timedelta(seconds=1),
        },
    ),
    "failed": (
        events_pb.TurnFailed(
            reason=error_reason_pb2.ERROR_REASON_MODEL_REFUSED,
            retryable=True,
            message="No.",
            retry_delay=Duration(seconds=2),
            step_count=1,
            usage=USAGE_PB,
            message_count=3,
            memory_token="m",
        ),
        {
            "reason": "MODEL_REFUSED",
            "retryable": True,
            "message": "No.",
            "retry_delay": timedelta(seconds=2),
            "step_count": 1,
            "usage": USAGE,
            "message_count": 3,
            "memory_token": "m",
        },
    ),
    "cancelled": (
        events_pb.TurnCancelled(
            cause=events_pb.CANCEL_CAUSE_PARENT,
            interrupted_by_turn_id="t",
            step_count=1,
            usage=USAGE_PB,
            message_count=2,
            memory_token="m",
        ),
        {
            "cause": CancelCause.PARENT,
            "interrupted_by_turn_id": "t",
            "step_count": 1,
            "usage": USAGE,
            "message_count": 2,
            "memory_token": "m",
        },
    ),
}


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_is_read_whole(kind: str) -> None:
    payload, expected = EVENTS[kind]
    head: dict[str, Any] = {
        "event_id": 8,
        "turn_id": "t",
        "step": 2,
        "agent_id": "a",
        "conversation_id": "c",
        "schedule_run_id": "s",
    }
    event = event_from(
        events_pb.TurnEvent(
            **head, create_time=MAY_PB, channel=events_pb.EVENT_CHANNEL_PROACTIVE, **{kind: payload}
        )
    )

    assert event is not None
    head |= {"create_time": MAY, "channel": EventChannel.PROACTIVE}
    assert {name: getattr(event, name) for name in head | expected} == head | expected
    own = fields_of(event) - fields_of_class(EventHead)
    assert own == set(type(payload).DESCRIPTOR.fields_by_name)
    assert not hasattr(event, "__dict__"), "made small: a stream has many"
    if kind == "accepted":
        assert event.input is not None  # type: ignore[union-attr]
    if kind == "retrieval":
        assert [result.rank for result in event.results] == [1]  # type: ignore[union-attr]


def test_every_kind_of_the_contract_is_known_but_what_is_not_built() -> None:
    kinds = {field.name for field in events_pb.TurnEvent.DESCRIPTOR.oneofs_by_name["event"].fields}

    assert kinds - set(EVENTS) == {"task_progress"}
    assert len(get_args(TurnEvent)) == len(EVENTS)
    assert event_from(events_pb.TurnEvent(event_id=1, task_progress=events_pb.TaskProgress())) is None
    assert event_from(events_pb.TurnEvent(event_id=1)) is None


@pytest.mark.parametrize(
    ("read", "numbers", "values"),
    [
        (agent_enums.mode_from, agent_pb2.MemoryMode, MemoryMode),
        (agent_enums.compaction_mode_from, agent_pb2.CompactionMode, CompactionMode),
        (agent_enums.section_from, agent_pb2.ContextSectionKind, ContextSectionKind),
        (agent_enums.change_kind_from, agent_pb2.OverlayChangeKind, OverlayChangeKind),
        (agent_enums.turn_status_from, agent_pb2.TurnStatus, TurnStatus),
        (agent_enums.origin_from, agent_pb2.TurnOrigin, TurnOrigin),
        (agent_enums.channel_from, events_pb.EventChannel, EventChannel),
        (agent_enums.stop_from, events_pb.StopReason, StopReason),
        (agent_enums.cancel_from, events_pb.CancelCause, CancelCause),
        (agent_enums.outcome_from, events_pb.ToolOutcome, ToolOutcome),
        (agent_enums.handoff_from, events_pb.HandoffCause, HandoffCause),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_every_value_of_the_contract_has_its_own_on_our_side(
    read: Callable[[Any], StrEnum], numbers: Any, values: type[StrEnum]
) -> None:
    for name, number in numbers.items()[1:]:
        assert name.endswith(f"_{read(number).name}")
    assert {read(number) for number in numbers.values()[1:]} == {one for one in values if one != "unknown"}
    assert read(99) == "unknown"


def fields_of(value: Any) -> set[str]:
    return fields_of_class(type(value))


def fields_of_class(kind: type[Any]) -> set[str]:
    return {one.name for one in dataclasses.fields(kind)}
