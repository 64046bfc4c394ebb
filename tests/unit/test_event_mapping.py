"""Every event reaches callers with all that it tells."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from sage.v1 import error_reason_pb2, item_pb2, memory_pb2
from sage.v1 import turn_event_pb2 as pb
from sage_server.domain.conversations import Item, ItemKind
from sage_server.domain.errors import Reason
from sage_server.domain.events import (
    KIND_OF,
    Accepted,
    Cancelled,
    Compacted,
    Delta,
    Done,
    Ephemeral,
    Event,
    EventChannel,
    Failed,
    HandedOff,
    HandoffCause,
    Heartbeat,
    Payload,
    Retrieved,
    Said,
    Silent,
    ToolAnswered,
    ToolCalled,
    Typing,
)
from sage_server.domain.memories import Memory, MemorySource
from sage_server.domain.search import Scored
from sage_server.domain.turns import CancelCause, StopReason, TokenUsage, ToolOutcome
from sage_server.rpc.event_mapping import to_turn_event
from sage_server.rpc.failure_texts import FAILURE_TEXTS

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))
SECOND = timedelta(seconds=1.5)
ITEM = Item(ONE, TWO, 4, ItemKind.ASSISTANT, "Hello", "", 2, AT, turn_id=THREE, step=1)
SPENT = TokenUsage(1, 2, 3, 4)
FOUND = Scored(
    Memory(ONE, MemorySource.ARCHIVAL, "tea", AT, AT), 0.9, 0.8, None, 0.7, 0.6, 0.5, ["tea"], None
)
FAILED = Failed(Reason.MODEL_TIMEOUT, True, 1, 2, SPENT, 9, SECOND)
EVENTS: list[tuple[Payload | Ephemeral, str]] = [
    (Accepted(ITEM, "main", THREE, 2), "accepted"),
    (Accepted(None, ""), "accepted"),
    (Typing("openai/x"), "typing"),
    (Typing(""), "typing"),
    (Delta(1, 2, "He"), "delta"),
    (Said(ITEM, 0), "message"),
    (ToolCalled("c", "archival_search", "{}", ONE), "tool_call"),
    (ToolAnswered("c", "done", ToolOutcome.REFUSED, "no", ONE, TWO, THREE, SECOND), "tool_result"),
    (Retrieved("c", "tea", (MemorySource.ARCHIVAL,), (FOUND,), SECOND), "retrieval"),
    (Retrieved("", "", (), (), timedelta(0)), "retrieval"),
    (Compacted(True, 1, 9, 9, 100, 50, ONE), "compaction"),
    (HandedOff(ONE, TWO, "researcher", HandoffCause.DELEGATION, THREE), "handoff"),
    (Silent(ONE), "silent"),
    (Heartbeat(0), "heartbeat"),
    (Done(StopReason.DONE_TOOL, 1, 2, 3, SPENT, 9, SECOND), "done"),
    (FAILED, "failed"),
    (Cancelled(CancelCause.INTERRUPTED, 1, 2, SPENT, 9, ONE), "cancelled"),
]


def shown(payload: Payload | Ephemeral, conversation_id: UUID | None = TWO) -> pb.TurnEvent:
    event = Event(7, THREE, 1, AT, ONE, conversation_id, EventChannel.PROACTIVE, payload)
    return to_turn_event(event, "token")


@pytest.mark.parametrize(("payload", "name"), EVENTS, ids=lambda value: type(value).__name__)
def test_every_event_is_what_its_field_says(payload: Payload | Ephemeral, name: str) -> None:
    message = shown(payload)
    assert message.WhichOneof("event") == name
    assert (message.event_id, message.turn_id, message.step) == (7, str(THREE), 1)
    assert (message.agent_id, message.conversation_id) == (str(ONE), str(TWO))
    assert message.channel == pb.EVENT_CHANNEL_PROACTIVE
    assert message.create_time.ToDatetime(UTC) == AT


def test_no_event_is_forgotten() -> None:
    assert {type(payload) for payload, _ in EVENTS} == {*KIND_OF, Delta, Heartbeat}


def test_numbers_of_stored_kinds_are_those_of_the_fields() -> None:
    fields = pb.TurnEvent.DESCRIPTOR.fields_by_name
    for payload, name in EVENTS:
        if not isinstance(payload, Delta | Heartbeat):
            kind = KIND_OF[type(payload)]
            assert (kind.name.lower(), kind.value) == (name, fields[name].number)


def test_an_item_of_an_agents_own_thread_names_no_conversation() -> None:
    assert shown(Said(ITEM, 1)).message.item.conversation_id == str(TWO)
    assert shown(Said(ITEM, 1), None).message.item.conversation_id == ""
    accepted = shown(Accepted(ITEM, "main", None, 1), None).accepted
    assert (accepted.input.conversation_id, accepted.input.text, accepted.request_id) == ("", "Hello", "")
    assert (accepted.agent, accepted.queue_position, accepted.input.seq) == ("main", 1, 4)
    assert accepted.input.kind == item_pb2.ITEM_KIND_ASSISTANT


def test_what_was_found_is_told_with_its_scores() -> None:
    retrieval = shown(EVENTS[8][0]).retrieval
    (result,) = retrieval.results
    assert (result.rank, result.score, result.memory.text) == (1, 0.9, "tea")
    assert not result.HasField("vector_score")
    assert list(retrieval.sources) == [memory_pb2.MEMORY_SOURCE_ARCHIVAL]
    assert retrieval.duration.ToTimedelta() == SECOND


def test_the_end_of_a_turn_carries_its_token_and_its_cost() -> None:
    for payload, name in EVENTS[-3:]:
        ended = getattr(shown(payload), name)
        assert ended.memory_token == "token"
        assert (ended.step_count, ended.message_count) == (1, 2)
        assert [value for _, value in ended.usage.ListFields()] == [1, 2, 3, 4]


def test_a_failure_has_a_reason_a_delay_and_a_sentence_that_is_its_own() -> None:
    failed = shown(FAILED).failed
    assert (failed.reason, failed.retryable) == (error_reason_pb2.ERROR_REASON_MODEL_TIMEOUT, True)
    assert failed.retry_delay.ToTimedelta() == SECOND
    assert failed.message == "The model took too long to answer."
    assert not shown(replace(FAILED, retry_after=None)).failed.HasField("retry_delay")


def test_every_reason_that_a_model_or_a_limit_gives_has_a_sentence() -> None:
    theirs = {reason for reason in Reason if reason.value.startswith("MODEL_")}
    theirs |= {Reason.TURN_LIMIT_EXCEEDED, Reason.CONTEXT_BUDGET_EXCEEDED, Reason.FEATURE_DISABLED}
    theirs |= {Reason.DATABASE_UNAVAILABLE, Reason.DATA_LOSS, Reason.INTERNAL}
    assert theirs <= set(FAILURE_TEXTS)
    assert len(set(FAILURE_TEXTS.values())) == len(FAILURE_TEXTS)


def test_a_compaction_without_a_reason_has_none() -> None:
    assert shown(EVENTS[10][0]).compaction.reason == error_reason_pb2.ERROR_REASON_UNSPECIFIED
    failed = Compacted(False, 1, 9, 9, 100, 100, reason=Reason.MODEL_REFUSED)
    assert shown(failed).compaction.reason == error_reason_pb2.ERROR_REASON_MODEL_REFUSED
