"""What the client reads from the messages of MemoryService and of the jobs of AdminService."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC
from enum import StrEnum
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

import sage_client
from sage.v1 import admin_pb2, error_reason_pb2, memory_pb2
from sage.v1 import memory_service_pb2 as pb
from sage_client import DocumentStatus, MemorySource, MemoryTrust, TagMatch
from sage_client._wire import admin, blocks, documents, enums, memory, search

Reader = Callable[[Any], Any]
READERS: list[tuple[type[Message], Reader]] = [
    (memory_pb2.Memory, memory.memory_from),
    (memory_pb2.MemoryStats, memory.stats_from),
    (memory_pb2.Block, blocks.block_from),
    (memory_pb2.BlockRevision, blocks.revision_from),
    (memory_pb2.Scratchpad, blocks.scratchpad_from),
    (memory_pb2.Document, documents.document_from),
    (pb.SearchMemoriesResponse, search.search_from),
    (admin_pb2.JobQueueStats, admin.job_stats_from),
    (admin_pb2.DeadJob, admin.dead_job_from),
]


@pytest.mark.parametrize(("message", "read"), READERS)
def test_every_field_of_an_answer_is_read_into_its_own_place(message: type[Message], read: Reader) -> None:
    full = filled(message)

    assert of_model(read(full)) == of_message(full)


def filled(kind: type[Message], start: int = 1) -> Message:
    """A message in which every field is set, and no two of a kind to the same value."""
    message: Any = kind()
    for number, described in enumerate(message.DESCRIPTOR.fields, start):
        target = getattr(message, described.name)
        if described.message_type is not None and described.message_type.GetOptions().map_entry:
            target[f"k{number}"] = f"v{number}"
        elif described.message_type is not None:
            value = message_value(GetMessageClass(described.message_type), number)
            (target.add() if described.is_repeated else target).CopyFrom(value)
        elif described.is_repeated:
            target.append(scalar(described, number))
        else:
            setattr(message, described.name, scalar(described, number))
    assert isinstance(message, kind)
    return message


def message_value(kind: type[Message], number: int) -> Message:
    if kind is Timestamp:
        return Timestamp(seconds=1_000_000 + number, nanos=250_000)
    if kind is Duration:
        return Duration(seconds=number, nanos=500_000_000)
    return filled(kind, 50 * number)


def scalar(described: FieldDescriptor, number: int) -> str | int | float | bool:
    if described.enum_type is not None:
        return described.enum_type.values[-1].number
    match described.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return f"{described.name} {number}"
        case FieldDescriptor.CPPTYPE_BOOL:
            return True
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return number + 0.5
        case _:
            return number


def of_message(message: Any) -> object:
    if isinstance(message, Timestamp):
        return message.ToDatetime(tzinfo=UTC)
    if isinstance(message, Duration):
        return message.ToTimedelta()
    return {described.name: field_of(message, described) for described in message.DESCRIPTOR.fields}


def field_of(message: Message, described: FieldDescriptor) -> object:
    value = getattr(message, described.name)
    if described.enum_type is not None:
        prefix = described.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        return described.enum_type.values_by_number[value].name.removeprefix(prefix)
    if described.message_type is None:
        return list(value) if described.is_repeated else value
    if described.message_type.GetOptions().map_entry:
        return dict(value)
    return [of_message(one) for one in value] if described.is_repeated else of_message(value)


def of_model(value: Any) -> object:
    if dataclasses.is_dataclass(value):
        return {one.name: of_model(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, StrEnum):
        return value.name
    if isinstance(value, Mapping):
        return dict(value)
    return [of_model(one) for one in value] if isinstance(value, tuple) else value


def test_what_is_not_set_in_an_answer_is_none() -> None:
    found = search.search_from(
        pb.SearchMemoriesResponse(results=[memory_pb2.SearchResult(score=0.5, rank=1)])
    ).results[0]

    assert (found.score, found.vector_score, found.evidence) == (0.5, None, None)
    assert blocks.scratchpad_from(memory_pb2.Scratchpad(items=["a"])).update_time is None
    assert documents.document_from(memory_pb2.Document()).failure is None


def test_why_a_document_failed_reads_like_the_reason_of_an_error() -> None:
    empty = memory_pb2.Document(failure=error_reason_pb2.ERROR_REASON_DOCUMENT_EMPTY)
    newer = memory_pb2.Document.FromString(b"\x30\x8f\x4e")  # field 6, failure = 9999

    assert documents.document_from(empty).failure == "DOCUMENT_EMPTY"
    assert documents.document_from(newer).failure == "UNKNOWN"


def test_every_value_of_the_contract_has_its_own_on_our_side() -> None:
    pairs: list[tuple[Any, Callable[[Any], StrEnum], type[StrEnum]]] = [
        (memory_pb2.MemorySource, enums.source_from, MemorySource),
        (memory_pb2.MemoryTrust, enums.trust_from, MemoryTrust),
        (memory_pb2.DocumentStatus, enums.status_from, DocumentStatus),
        (memory_pb2.BlockActor, enums.actor_from, sage_client.BlockActor),
        (pb.IngestStage, enums.stage_from, sage_client.IngestStage),
    ]
    for contract, read, ours in pairs:
        values = {read(number): name for name, number in contract.items() if number}
        assert set(ours) - set(values) == {ours("unknown")}
        assert all(name.endswith(f"_{value.name}") for value, name in values.items())
        assert read(99) is ours("unknown")

    assert all(enums.source_from(enums.source_to(one)) is one for one in MemorySource if one != "unknown")
    assert all(enums.trust_from(enums.trust_to(one)) is one for one in MemoryTrust if one != "unknown")
    assert all(enums.status_from(enums.status_to(one)) is one for one in DocumentStatus if one != "unknown")
    assert {memory_pb2.TagMatch.Name(enums.tag_match_to(one)) for one in TagMatch} == {
        "TAG_MATCH_ANY",
        "TAG_MATCH_ALL",
    }
