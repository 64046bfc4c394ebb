"""A turn as the contract shows it, the ways in which its stream breaks, and who listens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

import sage_client
from sage.v1 import item_pb2
from sage.v1 import turn_event_pb2 as events_pb
from sage_client import RetryPolicy, SageClient, TurnEvent
from support.agent_server import AgentServer, Break

T = TypeVar("T")
QUICK = RetryPolicy(initial_backoff=0.001)
CODE = grpc.StatusCode
TURN = "0193e2a4-7b1c-7c3a-9e58-0123456789ab"
THREAD = "0193e2a4-7b1c-7c3a-9e58-0123456789ac"
MINE = "0b5e2f3e-7a1b-4c7c-8d9e-000000000001"


def event(event_id: int, **kind: Any) -> events_pb.TurnEvent:
    return events_pb.TurnEvent(
        event_id=event_id,
        turn_id=TURN,
        step=1,
        create_time=Timestamp(seconds=1_700_000_000),
        agent_id="a1",
        channel=events_pb.EVENT_CHANNEL_TURN,
        **kind,
    )


def message(event_id: int, text: str) -> events_pb.TurnEvent:
    item = item_pb2.Item(id=f"i{event_id}", kind=item_pb2.ITEM_KIND_ASSISTANT, text=text)
    return event(event_id, message=events_pb.TurnMessage(item=item))


def heartbeat(last_event_id: int, turn_id: str = TURN) -> events_pb.TurnEvent:
    return events_pb.TurnEvent(
        turn_id=turn_id, heartbeat=events_pb.TurnHeartbeat(last_event_id=last_event_id)
    )


# The numbers have gaps: other turns of the same user happen at the same time.
LOG = (
    event(3, accepted=events_pb.TurnAccepted(agent="main", request_id=MINE)),
    event(4, typing=events_pb.TurnTyping(model="fake/one")),
    event(0, delta=events_pb.TurnDelta(text="Let me ")),
    event(0, delta=events_pb.TurnDelta(offset=7, text="look.")),
    message(7, "Let me look."),
    event(8, tool_call=events_pb.TurnToolCall(call_id="c1", name="archival_search")),
    heartbeat(8),
    event(10, task_progress=events_pb.TaskProgress(task_key="of a kind that the client does not show")),
    event(11, tool_result=events_pb.TurnToolResult(call_id="c1", outcome=events_pb.TOOL_OUTCOME_OK)),
    message(20, "You promised her a cake."),
    event(21, done=events_pb.TurnDone(stop_reason=events_pb.STOP_REASON_ANSWERED, step_count=2)),
)
SHOWN = [3, 4, 7, 8, 11, 20, 21]
BREAKS = {
    "the server is gone": Break(0),
    "the server stops": Break(0, reason="SHUTTING_DOWN", retry_after=0.001),
    "the stream lasted too long": Break(0, CODE.DEADLINE_EXCEEDED),
    "the stream was reset on its way": Break(0, CODE.INTERNAL),
    "the stream ended early": Break(0, None),
}


def numbers(shown: list[TurnEvent]) -> list[int]:
    return [one.event_id for one in shown if one.event_id]


async def in_thread(server: AgentServer, work: Callable[[SageClient], T]) -> T:
    def run() -> T:
        with sage_client.connect(server.address, retry=QUICK) as client:
            return work(client)

    return await asyncio.to_thread(run)


Listen = Callable[[AgentServer], Awaitable[list[TurnEvent]]]
"""Hears a stream to its end, with either client."""
