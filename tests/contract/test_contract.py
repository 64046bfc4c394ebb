"""Rules of the contract that buf does not know, and the server's agreement with it."""

from __future__ import annotations

import json
import re
from enum import IntEnum
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, MethodDescriptor

from sage.v1 import (
    admin_pb2,
    agent_pb2,
    agent_service_pb2,
    conversation_pb2,
    conversation_service_pb2,
    error_reason_pb2,
    item_pb2,
    memory_pb2,
    turn_event_pb2,
    usage_pb2,
)
from sage_server.domain.agents import CompactionMode, MemoryMode
from sage_server.domain.blocks import BlockActorKind
from sage_server.domain.conversations import ConversationMemory, ConversationOrder, ItemKind
from sage_server.domain.documents import DocumentStatus
from sage_server.domain.errors import Reason
from sage_server.domain.events import EventChannel, EventKind, HandoffCause
from sage_server.domain.flags import FlagScope
from sage_server.domain.identity import Role
from sage_server.domain.memories import MemorySource, MemoryTrust, TagMatch
from sage_server.domain.overlays import ConflictPolicy, OverlayChangeKind
from sage_server.domain.turns import CancelCause, OnBusy, StopReason, ToolOutcome, TurnOrigin, TurnStatus
from sage_server.domain.usage import UsagePurpose
from sage_server.rpc.errors import STATUS_CODES
from sage_server.rpc.registry import CONTRACT

PROTO = Path(__file__).resolve().parents[2] / "proto" / "sage" / "v1"
METHODS = [m for file in CONTRACT for s in file.services_by_name.values() for m in s.methods]
CREATES = re.compile(
    r"^(Create|Insert|BatchInsert|Append|Fork|Ingest|Execute|Chat|Respond|Summarize|Run)[A-Z]?"
)
REASONS = error_reason_pb2.ErrorReason.keys()


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.full_name)
def test_requests_and_responses_are_their_own(method: MethodDescriptor) -> None:
    assert method.input_type.name == f"{method.name}Request"
    assert method.output_type.name == f"{method.name}Response"
    assert not method.client_streaming


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.full_name)
def test_the_user_is_never_in_a_request(method: MethodDescriptor) -> None:
    if method.containing_service.name != "AdminService":
        assert not {"user", "user_id", "tenant", "external_user_id"} & set(method.input_type.fields_by_name)


@pytest.mark.parametrize(
    "method", [m for m in METHODS if m.name.startswith("List")], ids=lambda m: m.full_name
)
def test_lists_have_pages(method: MethodDescriptor) -> None:
    assert {"page_size", "page_token"} <= set(method.input_type.fields_by_name)
    assert "next_page_token" in method.output_type.fields_by_name


@pytest.mark.parametrize("method", [m for m in METHODS if CREATES.match(m.name)], ids=lambda m: m.full_name)
def test_what_creates_takes_a_request_id(method: MethodDescriptor) -> None:
    assert "request_id" in method.input_type.fields_by_name


@pytest.mark.parametrize(
    "method", [m for m in METHODS if m.name.startswith("Update")], ids=lambda m: m.full_name
)
def test_updates_take_a_mask_and_an_etag(method: MethodDescriptor) -> None:
    assert {"update_mask", "etag"} <= set(method.input_type.fields_by_name)


def test_every_reason_of_the_server_is_in_the_contract_with_a_status() -> None:
    assert {f"ERROR_REASON_{reason.value}" for reason in Reason} <= set(REASONS)
    assert set(STATUS_CODES) == set(Reason)


def test_every_reason_shows_a_sample_that_is_its_own() -> None:
    text = (PROTO / "error_reason.proto").read_text()
    for name in REASONS[1:]:
        comment = text[: text.index(f"  {name} = ")].rsplit("\n\n", 1)[-1]
        sample = next(line for line in comment.splitlines() if line.startswith("  //     {"))
        parsed = json.loads(sample.removeprefix("  //"))
        assert (parsed["reason"], parsed["domain"]) == (name, "sage")
        assert all(isinstance(value, str) for value in parsed.get("metadata", {}).values())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ConversationMemory, conversation_pb2.ConversationMemory),
        (ConversationOrder, conversation_service_pb2.ConversationOrder),
        (ItemKind, item_pb2.ItemKind),
        (MemorySource, memory_pb2.MemorySource),
        (MemoryTrust, memory_pb2.MemoryTrust),
        (TagMatch, memory_pb2.TagMatch),
        (BlockActorKind, memory_pb2.BlockActor),
        (DocumentStatus, memory_pb2.DocumentStatus),
        (UsagePurpose, usage_pb2.UsagePurpose),
        (MemoryMode, agent_pb2.MemoryMode),
        (CompactionMode, agent_pb2.CompactionMode),
        (FlagScope, admin_pb2.FlagScope),
        (TurnStatus, agent_pb2.TurnStatus),
        (TurnOrigin, agent_pb2.TurnOrigin),
        (StopReason, turn_event_pb2.StopReason),
        (CancelCause, turn_event_pb2.CancelCause),
        (ToolOutcome, turn_event_pb2.ToolOutcome),
        (OnBusy, turn_event_pb2.OnBusy),
        (EventChannel, turn_event_pb2.EventChannel),
        (HandoffCause, turn_event_pb2.HandoffCause),
        (ConflictPolicy, agent_service_pb2.OverlayConflictPolicy),
    ],
)
def test_numbers_of_the_domain_are_those_of_the_contract(ours: type[IntEnum], theirs: object) -> None:
    named = {key.removeprefix(_prefix(theirs)): value for key, value in theirs.items()}  # type: ignore[attr-defined]
    assert {member.name: member.value for member in ours} == {k: v for k, v in named.items() if v}


def test_kinds_of_overlay_changes_have_the_numbers_of_the_contract() -> None:
    """Those that there are: agents have no means to make the others."""
    named = {
        key.removeprefix("OVERLAY_CHANGE_KIND_"): number
        for key, number in agent_pb2.OverlayChangeKind.items()
    }
    assert {kind.name: kind.value for kind in OverlayChangeKind}.items() <= named.items()


def test_kinds_of_events_are_the_numbers_of_their_fields() -> None:
    fields = turn_event_pb2.TurnEvent.DESCRIPTOR.oneofs_by_name["event"].fields
    numbers = {field.name.upper(): field.number for field in fields}
    assert {kind.name: kind.value for kind in EventKind}.items() <= numbers.items()


def test_roles_of_the_domain_are_those_of_the_contract() -> None:
    named = {key.removeprefix("API_KEY_ROLE_"): value for key, value in admin_pb2.ApiKeyRole.items()}
    assert {role.name: role.value for role in Role if role is not Role.USER} == {
        key: value for key, value in named.items() if value
    }


def test_every_string_of_a_request_has_a_limit() -> None:
    """A text without a limit would let one call fill the memory."""
    unlimited = [
        f"{message.full_name}.{field.name}"
        for message in _messages()
        for field in message.fields
        if field.type == field.TYPE_STRING
        and not field.is_repeated
        and "max_len" not in str(field.GetOptions())
        and not re.search(r"uuid|pattern|const|in:|ip|email", str(field.GetOptions()))
    ]
    assert unlimited == []


def _messages() -> list[Descriptor]:
    """Requests and everything in them."""
    found: dict[str, Descriptor] = {}
    waiting = [method.input_type for method in METHODS]
    while waiting:
        message = waiting.pop()
        if message.full_name in found or not message.full_name.startswith("sage."):
            continue
        found[message.full_name] = message
        waiting += [field.message_type for field in message.fields if field.message_type is not None]
    return [message for message in found.values() if not message.GetOptions().map_entry]


def _prefix(enum: object) -> str:
    zero: str = enum.Name(0)  # type: ignore[attr-defined]
    return zero.removesuffix("UNSPECIFIED")
