"""Bad input gets a clear error that names the field, quotes nothing and loses nothing. Never INTERNAL.

Fields come from the descriptors. Constraints are checked before a method is looked for, so the methods that
are not implemented yet are held to their contract as well.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sage_client
from sage.v1 import agent_pb2, error_reason_pb2, item_pb2, memory_pb2
from sage_client import FlagScope, MemoryFilter, MemoryMode, MemorySource, NewItem, NewMemory
from support.agent_calls import Agents, with_thread, with_turn
from support.contract import (
    BY_NAME,
    METHODS,
    Answer,
    FieldPath,
    call,
    call_without_message,
    delimited,
    fields,
    is_map,
    is_text,
    names_something,
    request_of,
    response_of,
    unary,
    valid_request,
)
from support.postgres import TestPostgres
from support.server import RunningServer, running_server

Code = grpc.StatusCode
REASONS = set(error_reason_pb2.ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED", "ERROR_REASON_INTERNAL"}
SENTINEL = "Sentinel-7f3a"
VALID = {method: valid_request(method).SerializeToString() for method in METHODS}
BROKEN_UTF8 = {
    "a byte that is never in UTF-8": b"\xff",
    "half of a surrogate pair": b"\xed\xa0\x80",
    "a pair of surrogates": b"\xed\xa0\xbd\xed\xb8\x80",
    "an overlong NUL": b"\xc0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "a cut character": b"\xe2\x82",
}
# Ids of the application and of tools, which may be any text, and of jobs, which are the queue's.
NO_UUID = {"external_id", "call_id", "job_id", "agent_id"}
# What the server made itself and gets back.
OURS = {"page_token", "etag", "at_least_as_fresh"}


@dataclass(frozen=True)
class Target:
    """A server and a channel to it."""

    server: RunningServer
    channel: grpc.aio.Channel

    async def call(self, method: MethodDescriptor | str, request: Any = b"", user: str = "maria") -> Answer:
        found = BY_NAME[method] if isinstance(method, str) else method
        return await call(self.channel, found, request, (("x-sage-user", user),))


@pytest.fixture(scope="module")
async def target(postgres: TestPostgres) -> AsyncIterator[Target]:
    async with (
        postgres.database() as dsn,
        running_server(dsn) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield Target(server, channel)


@pytest.fixture
async def client(target: Target) -> AsyncIterator[sage_client.AsyncSageClient]:
    """A user of the test's own."""
    async with sage_client.connect_async(target.server.address, user=f"user-{uuid4()}") as client:
        yield client


def assert_clear(answer: Answer, what: object = "") -> None:
    """A refusal that a stranger understands and that leaks nothing."""
    assert answer.code not in {Code.OK, Code.INTERNAL, Code.UNKNOWN}, (what, answer)
    assert answer.domain == "sage", (what, answer)
    assert answer.reason in REASONS, (what, answer)
    assert answer.message, what
    assert SENTINEL not in answer.text, what


def assert_invalid(answer: Answer, field: str, what: object = "") -> None:
    """INVALID_ARGUMENT that names the field."""
    assert_clear(answer, what)
    assert answer.code is Code.INVALID_ARGUMENT, (what, answer)
    assert answer.reason == "ERROR_REASON_INVALID_REQUEST", (what, answer)
    named = {name.replace("[0]", "").replace("[…]", "") for name, _ in answer.violations}
    assert field in named, (what, answer)
    assert all(description for _, description in answer.violations)


def text_fields() -> list[tuple[MethodDescriptor, FieldPath]]:
    return [(m, path) for m in METHODS for path in fields(m.input_type) if is_text(path.field)]


def request_with(method: MethodDescriptor, path: FieldPath, value: Any) -> Any:
    """A valid request but for one field."""
    request = valid_request(method)
    owner = path.owner(request)
    if path.field.is_repeated:
        del getattr(owner, path.field.name)[:]
        getattr(owner, path.field.name).append(value)
    else:
        setattr(owner, path.field.name, value)
    return request


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"\x0a\x05ab", b"\x0b", b"\x07", b"\x00", b"\x0a\xff\xff\xff\xff\x7f", b"\x80" * 11, b"\x0c"],
    ids=repr,
)
async def test_bytes_that_are_no_message_are_malformed(target: Target, raw: bytes) -> None:
    for method in METHODS:
        answer = await target.call(method, VALID[method] + raw)
        assert_clear(answer, method.full_name)
        assert answer.reason == "ERROR_REASON_MALFORMED_REQUEST", method.full_name
        assert dict(answer.metadata) == {"type": method.input_type.full_name}


async def test_a_call_that_ends_without_a_message_is_malformed(target: Target) -> None:
    for method in METHODS:
        answer = await call_without_message(target.channel, method, (("x-sage-user", "maria"),))
        assert_clear(answer, method.full_name)
        assert answer.code is Code.INVALID_ARGUMENT, method.full_name
        assert answer.reason == "ERROR_REASON_MALFORMED_REQUEST", method.full_name
        assert dict(answer.metadata) == {"type": method.input_type.full_name}


@pytest.mark.parametrize("kind", BROKEN_UTF8)
async def test_text_that_is_not_utf8_is_malformed_in_every_field(target: Target, kind: str) -> None:
    bad = b"a" + BROKEN_UTF8[kind] + b"b"
    for method in METHODS:
        for path in fields(method.input_type):
            wrong = []
            if is_text(path.field):
                wrong = [bad]
            elif is_map(path.field):
                wrong = [delimited(1, bad), delimited(1, b"k") + delimited(2, bad)]
            for content in wrong:
                raw = delimited(path.field.number, content)
                for step in reversed(path.steps[:-1]):
                    raw = delimited(step.number, raw)
                answer = await target.call(method, VALID[method] + raw)
                assert answer.reason == "ERROR_REASON_MALFORMED_REQUEST", (
                    method.full_name,
                    path.name,
                    answer,
                )
                assert answer.code is Code.INVALID_ARGUMENT


async def test_nul_is_refused_in_every_text(target: Target) -> None:
    for method, path in text_fields():
        answer = await target.call(method, request_with(method, path, f"{SENTINEL}\0b"))
        if path.field.name in OURS:
            # Compared and never stored. A method that is not there yet cannot compare.
            expected = {"INVALID_PAGE_TOKEN", "ETAG_MISMATCH", "NOT_FOUND", "NOT_IMPLEMENTED"}
            expected.add("MEMORY_TOKEN_INVALID")
            assert answer.reason.removeprefix("ERROR_REASON_") in expected, (path.name, answer)
        else:
            assert_invalid(answer, path.name, (method.full_name, path.name))


async def test_text_beyond_its_limit_is_refused_in_every_field(target: Target) -> None:
    """A million characters are beyond every limit of the contract. They are counted as characters."""
    for method, path in text_fields():
        answer = await target.call(method, request_with(method, path, SENTINEL + "é" * 1_000_000))
        assert_invalid(answer, path.name, method.full_name)


async def test_limits_count_characters_and_not_bytes(target: Target) -> None:
    create = BY_NAME["CreateConversation"]
    request = request_of(create)
    request.title = "😀" * 512
    assert response_of(create, await target.call(create, request)).conversation.title == request.title
    request.title += "x"
    assert_invalid(await target.call(create, request), "title")


async def test_an_id_that_is_no_uuid_is_refused_in_every_field(target: Target) -> None:
    good = str(uuid4())
    for method, path in text_fields():
        name = path.field.name
        if name in NO_UUID or not (names_something(path.field) or name == "request_id"):
            continue
        for bad in (SENTINEL, f"{SENTINEL}' OR 1=1 --", good[:-1], good + "\n", f"{{{good}}}", "z" * 36):
            answer = await target.call(method, request_with(method, path, bad))
            assert_invalid(answer, path.name, (method.full_name, bad))


async def test_a_negative_page_size_is_refused_and_a_large_one_is_not(target: Target) -> None:
    tested = 0
    for method in METHODS:
        if "page_size" not in method.input_type.fields_by_name:
            continue
        request = valid_request(method)
        for bad in (-1, -(2**31)):
            request.page_size = bad
            assert_invalid(await target.call(method, request), "page_size", method.full_name)
        request.page_size = 2**31 - 1
        answer = await target.call(method, request)
        assert answer.code in {Code.OK, Code.NOT_FOUND, Code.UNIMPLEMENTED}, method.full_name
        tested += 1
    assert tested > 10


async def test_an_unknown_enum_number_is_refused_in_every_field(target: Target) -> None:
    for method in METHODS:
        for path in fields(method.input_type):
            if path.field.type != FieldDescriptor.TYPE_ENUM:
                continue
            for number in (99, -1, 2**31 - 1):
                answer = await target.call(method, request_with(method, path, number))
                assert_invalid(answer, path.name, (method.full_name, number))


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (0, -1),
        (0, 10**9),
        (0, 2**31 - 1),
        (253_402_300_800, 0),
        (-62_135_596_801, 0),
        (2**63 - 1, 0),
        (-(2**63), 0),
        (2**63 - 1, 2**31 - 1),
    ],
)
async def test_a_time_that_is_none_is_refused_in_every_field(
    target: Target, seconds: int, nanos: int
) -> None:
    for method in METHODS:
        for path in fields(method.input_type):
            if path.field.message_type is None or path.field.message_type.name != "Timestamp":
                continue
            request = valid_request(method)
            time = getattr(path.owner(request), path.field.name)
            time.seconds, time.nanos = seconds, nanos
            answer = await target.call(method, request)
            assert_clear(answer, (method.full_name, path.name))
            if (await target.call(method, VALID[method])).code is not Code.UNIMPLEMENTED:
                assert_invalid(answer, path.name, method.full_name)


@pytest.mark.parametrize(
    "paths", [None, [], [SENTINEL], ["title", SENTINEL], ["id"], ["title.x"], ["metadata.a"], ["*"], [""]]
)
async def test_an_update_must_name_fields_that_can_be_updated(
    target: Target, paths: list[str] | None
) -> None:
    tested = 0
    for method in METHODS:
        if "update_mask" not in method.input_type.fields_by_name:
            continue
        request = valid_request(method)
        request.ClearField("update_mask")
        if paths is not None:
            request.update_mask.SetInParent()
            request.update_mask.paths.extend(paths)
        answer = await target.call(method, request)
        tested += 1
        if answer.code is Code.UNIMPLEMENTED and any("." in path for path in paths or ()):
            continue  # The constraint lets a part of a field pass; the method itself has to refuse it.
        assert_invalid(answer, "update_mask", method.full_name)
    assert tested >= 3


@pytest.mark.parametrize(
    "pairs",
    [
        {f"{SENTINEL}{n}": "x" for n in range(33)},
        {"": SENTINEL},
        {SENTINEL + "k" * 60: "x"},
        {SENTINEL: SENTINEL + "v" * 512},
        {f"{SENTINEL}\0": "x"},
        {SENTINEL: f"{SENTINEL}\0"},
    ],
    ids=["33 pairs", "empty key", "long key", "long value", "NUL in a key", "NUL in a value"],
)
@pytest.mark.parametrize(
    "name", ["CreateConversation", "UpdateConversation", "InsertMemory", "UpdateMemory", "IngestDocument"]
)
async def test_metadata_beyond_its_limits_is_refused_without_its_keys(
    target: Target, name: str, pairs: dict[str, str]
) -> None:
    request = valid_request(BY_NAME[name])
    request.metadata.update(pairs)
    assert_invalid(await target.call(name, request), "metadata")


async def test_a_request_beyond_the_servers_limit_is_refused_on_every_method(dsn: str) -> None:
    async with (
        running_server(dsn, max_request_bytes=4096) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        target = Target(server, channel)
        for method in METHODS:
            answer = await target.call(method, VALID[method] + delimited(1999, b"x" * 4096))
            assert_clear(answer, method.full_name)
            assert answer.code is Code.RESOURCE_EXHAUSTED
            assert answer.reason == "ERROR_REASON_REQUEST_TOO_LARGE"
            assert dict(answer.metadata) == {"limit_bytes": "4096"}
        # Far beyond it gRPC itself stops reading, with the same code.
        answer = await target.call("CreateConversation", b"x" * 3_000_000)
        assert answer.code is Code.RESOURCE_EXHAUSTED


async def _token(target: Target, method: str, request: Any, user: str) -> str:
    answer = await target.call(method, request, user)
    token = str(response_of(BY_NAME[method], answer).next_page_token)
    assert token
    return token


@pytest.fixture(scope="module")
async def pages(target: Target) -> tuple[str, str, dict[str, Any]]:
    """A user with enough for two pages of each list, and a request with a page token for each."""
    user = f"pages-{uuid4()}"
    async with sage_client.connect_async(target.server.address, user=user) as client:
        for _ in range(3):
            thread = await client.conversations.create("x")
            await client.admin.create_api_key("x")
        for name in ("tools", "schedules", "compaction"):
            await client.admin.set_flag(name, FlagScope.TENANT, enabled=True)
        await client.conversations.append(thread.id, [NewItem.user("x") for _ in range(3)])
        await client.memory.insert_many([NewMemory("x")] * 3)
        for content in (b"one", b"two", b"three"):
            await client.memory.documents.add(content)
        agents = [await Agents(client).create(name) for name in ("x", "y", "z")]
        own_thread = await with_thread(target.server, client, agents[0], "one", "two", "three")
        for _ in range(3):
            await with_turn(target.server, client, agents[0], own_thread.id, status=3)
        await client.agents.create("overlay", memory_mode=MemoryMode.OVERLAY)
        await client.memory.insert_many([NewMemory("x", agent="overlay")] * 3)
    for label in ("x", "y", "z"):
        block = request_of(BY_NAME["CreateBlock"])
        block.label = label
        assert (await target.call("CreateBlock", block, user)).code is Code.OK
    for value in ("1", "2"):
        change = valid_request(BY_NAME["UpdateBlock"])
        change.label, change.value, change.update_mask.paths[:] = "x", value, ["value"]
        assert (await target.call("UpdateBlock", change, user)).code is Code.OK
    requests = {}
    for name in LISTS:
        request = request_of(BY_NAME[name])
        request.page_size = 1
        own = {"ListItems": ("conversation_id", thread.id), "ListAgentItems": ("agent", "x")}
        own["ListOverlayChanges"] = ("agent", "overlay")
        own["ListTools"] = ("agent", "x")
        if name in own:
            setattr(request, *own[name])
        if name == "ListBlockRevisions":
            request.label = "x"
        request.page_token = await _token(target, name, request, user)
        assert (await target.call(name, request, user)).code is Code.OK
        requests[name] = request
    return user, thread.id, requests


LISTS = ["ListConversations", "ListItems", "ListApiKeys", "ListBlocks", "ListBlockRevisions"]
LISTS += ["ListMemories", "ListDocuments", "ListFlags", "ListAgents", "ListAgentItems"]
LISTS += ["ListOverlayChanges", "ListTurns", "ListTools"]


def _refuses(answer: Answer, method: str) -> None:
    assert_clear(answer)
    assert (answer.code, answer.reason) == (Code.INVALID_ARGUMENT, "ERROR_REASON_INVALID_PAGE_TOKEN")
    assert dict(answer.metadata) == {"method": method}


@pytest.mark.parametrize("name", LISTS)
async def test_a_page_token_that_was_not_given_out_is_refused(
    target: Target, pages: tuple[str, str, dict[str, Any]], name: str
) -> None:
    user, _, requests = pages
    good = requests[name].page_token
    raw = base64.urlsafe_b64decode(good + "=" * (-len(good) % 4))
    bad = [SENTINEL, "x", "A" * 1024, "💥", "====", "\n", good[:-4], good + "AAAA", good + " ", "null", "-1"]
    for at in range(len(raw)):
        altered = bytearray(raw)
        altered[at] ^= 1 << (at % 8)
        bad.append(base64.urlsafe_b64encode(altered).decode().rstrip("="))
    for token in bad:
        request = type(requests[name]).FromString(requests[name].SerializeToString())
        request.page_token = token
        _refuses(await target.call(name, request, user), name)
    request.page_token = "A" * 1025
    assert_invalid(await target.call(name, request, user), "page_token")


@pytest.mark.parametrize("name", LISTS)
async def test_a_page_token_of_another_method_is_refused(
    target: Target, pages: tuple[str, str, dict[str, Any]], name: str
) -> None:
    user, _, requests = pages
    for other in LISTS:
        if other != name:
            request = type(requests[name]).FromString(requests[name].SerializeToString())
            request.page_token = requests[other].page_token
            _refuses(await target.call(name, request, user), name)


async def test_a_page_token_goes_with_its_parameters(
    target: Target, pages: tuple[str, str, dict[str, Any]]
) -> None:
    user, _, requests = pages
    other = await target.call("CreateConversation", b"", user)
    other_id = response_of(BY_NAME["CreateConversation"], other).conversation.id
    changes: list[tuple[str, Callable[[Any], Any]]] = [
        ("ListConversations", lambda r: setattr(r, "order", 2)),
        ("ListConversations", lambda r: setattr(r, "deleted_only", True)),
        ("ListItems", lambda r: setattr(r, "order", item_pb2.ITEM_ORDER_NEWEST_FIRST)),
        ("ListItems", lambda r: setattr(r, "show_hidden", True)),
        ("ListItems", lambda r: r.kinds.append(item_pb2.ITEM_KIND_USER)),
        ("ListItems", lambda r: setattr(r, "conversation_id", other_id)),
        ("ListApiKeys", lambda r: setattr(r, "tenant", "another")),
        ("ListFlags", lambda r: setattr(r, "tenant", "another")),
        ("ListFlags", lambda r: setattr(r, "scope", 2)),
        ("ListBlocks", lambda r: setattr(r, "agent", "main")),
        ("ListBlockRevisions", lambda r: setattr(r, "label", "y")),
        ("ListBlockRevisions", lambda r: setattr(r, "agent", "main")),
        ("ListAgents", lambda r: setattr(r, "enabled_only", True)),
        ("ListAgentItems", lambda r: setattr(r, "agent", "y")),
        ("ListAgentItems", lambda r: setattr(r, "order", item_pb2.ITEM_ORDER_NEWEST_FIRST)),
        ("ListAgentItems", lambda r: setattr(r, "show_hidden", True)),
        ("ListOverlayChanges", lambda r: setattr(r, "conflicting_only", True)),
        ("ListTurns", lambda r: setattr(r, "agent", "x")),
        ("ListTurns", lambda r: setattr(r, "conversation_id", other_id)),
        ("ListTurns", lambda r: r.statuses.append(agent_pb2.TURN_STATUS_DONE)),
        ("ListTurns", lambda r: r.origins.append(agent_pb2.TURN_ORIGIN_CHAT)),
        ("ListTurns", lambda r: setattr(r.created.start_time, "seconds", 1)),
        ("ListTools", lambda r: setattr(r, "agent", "y")),
        ("ListMemories", lambda r: r.filter.tags.append("x")),
        ("ListMemories", lambda r: r.filter.sources.append(memory_pb2.MEMORY_SOURCE_ARCHIVAL)),
        ("ListMemories", lambda r: setattr(r.filter.created.start_time, "seconds", 1)),
        ("ListMemories", lambda r: setattr(r.filter, "conversation_id", other_id)),
        ("ListDocuments", lambda r: r.tags.append("x")),
        ("ListDocuments", lambda r: setattr(r, "external_id", "x")),
        ("ListDocuments", lambda r: r.statuses.append(memory_pb2.DOCUMENT_STATUS_READY)),
    ]
    for name, change in changes:
        request = type(requests[name]).FromString(requests[name].SerializeToString())
        change(request)
        _refuses(await target.call(name, request, user), name)
    for name in LISTS:
        request = type(requests[name]).FromString(requests[name].SerializeToString())
        request.page_size = 2
        assert (await target.call(name, request, user)).code is Code.OK


async def test_an_etag_that_is_not_current_aborts_and_changes_nothing(
    target: Target, client: sage_client.AsyncSageClient
) -> None:
    thread = await client.conversations.create("First")
    current = await client.conversations.update(thread.id, title="Second")
    for etag in (thread.etag, SENTINEL, "v999", f"{current.etag} ", current.etag.upper()):
        for name in ("UpdateConversation", "DeleteConversation"):
            request = valid_request(BY_NAME[name])
            request.conversation_id, request.etag = thread.id, etag
            answer = await target.call(name, request, client.options.user or "")
            assert_clear(answer)
            assert (answer.code, answer.reason) == (Code.ABORTED, "ERROR_REASON_ETAG_MISMATCH")
    assert await client.conversations.get(thread.id) == current
    memory = (await client.memory.insert("First")).memory
    changed = (await client.memory.update(memory.id, text="Second")).memory
    for etag in (memory.etag, SENTINEL, "v999", f"{changed.etag} ", changed.etag.upper()):
        for name in ("UpdateMemory", "DeleteMemory"):
            request = valid_request(BY_NAME[name])
            request.memory_id, request.etag = memory.id, etag
            answer = await target.call(name, request, client.options.user or "")
            assert_clear(answer)
            assert (answer.code, answer.reason) == (Code.ABORTED, "ERROR_REASON_ETAG_MISMATCH")
    assert await client.memory.get(memory.id) == changed
    agents = Agents(client)
    first = await agents.create("scout")
    second = await agents.update("scout", description="Second")
    for etag in (first.etag, SENTINEL, "v999", f"{second.etag} ", second.etag.upper()):
        for name in ("UpdateAgent", "DeleteAgent"):
            request = valid_request(BY_NAME[name])
            request.agent, request.etag = "scout", etag
            answer = await target.call(name, request, client.options.user or "")
            assert_clear(answer)
            assert (answer.code, answer.reason) == (Code.ABORTED, "ERROR_REASON_ETAG_MISMATCH")
    assert await agents.get("scout") == second


async def test_a_request_id_with_another_body_is_refused_and_does_nothing(
    target: Target, client: sage_client.AsyncSageClient
) -> None:
    user = client.options.user or ""
    thread = await client.conversations.create("Source")
    changes: dict[str, Callable[[Any], Any]] = {
        "CreateConversation": lambda r: setattr(r, "title", SENTINEL),
        "AppendItems": lambda r: setattr(r.items[0], "text", SENTINEL),
        "ForkConversation": lambda r: setattr(r, "title", SENTINEL),
        "CreateApiKey": lambda r: setattr(r, "name", SENTINEL),
        "CreateBlock": lambda r: setattr(r, "value", SENTINEL),
        "InsertMemory": lambda r: setattr(r, "text", SENTINEL),
        "BatchInsertMemories": lambda r: setattr(r.requests[0], "text", SENTINEL),
        "IngestDocument": lambda r: setattr(r, "title", SENTINEL),
        "CreateAgent": lambda r: setattr(r, "description", SENTINEL),
    }
    for name, change in changes.items():
        request = valid_request(BY_NAME[name])
        request.request_id = str(uuid4())
        if "conversation_id" in request.DESCRIPTOR.fields_by_name:
            request.conversation_id = thread.id
        first = await target.call(name, request, user)
        assert first.code is Code.OK
        again = await target.call(name, request, user)
        assert again == first or name in SEALED_ANEW
        assert again.code is Code.OK
        before = await _everything(client)
        change(request)
        other = valid_request(BY_NAME["CreateConversation"])
        other.title, other.request_id = SENTINEL, request.request_id
        refused = [(name, request)]
        if name != "CreateApiKey":  # whose request ids are the installation's and not the user's
            refused.append(("CreateConversation", other))
        for called, again in refused:
            answer = await target.call(called, again, user)
            assert_clear(answer)
            assert answer.code is Code.INVALID_ARGUMENT
            assert answer.reason == "ERROR_REASON_REQUEST_ID_REUSED"
        assert await _everything(client) == before


SEALED_ANEW = {"InsertMemory", "BatchInsertMemories", "IngestDocument"}
"""Their answers hold a memory token, of which no two look alike."""


async def _everything(client: sage_client.AsyncSageClient) -> list[Any]:
    threads = [thread async for thread in client.conversations.list()]
    keys = [key async for key in client.admin.list_api_keys()]
    kept = MemoryFilter(sources=[MemorySource.ARCHIVAL, MemorySource.DOCUMENT])
    memories = [memory async for memory in client.memory.list(kept)]
    documents = [document async for document in client.memory.documents.list()]
    items = [[item async for item in client.conversations.items(t.id)] for t in threads]
    return [threads, keys, items, memories, documents, await Agents(client).all()]


def _item(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda request: change(request.items[0])


def _in_two_days(item: Any) -> None:
    item.create_time.FromDatetime(datetime.now(UTC) + timedelta(days=2))


@pytest.mark.parametrize(
    ("field", "change"),
    {
        "items.tool": _item(lambda item: setattr(item.tool, "name", SENTINEL)),
        "items.tool of a call": _item(lambda item: setattr(item, "kind", item_pb2.ITEM_KIND_TOOL_CALL)),
        "items.kind": _item(lambda item: setattr(item, "kind", 0)),
        "items.create_time": _item(_in_two_days),
        "items.create_time before 1970": _item(lambda item: setattr(item.create_time, "seconds", -1)),
        "items": lambda request: request.ClearField("items"),
        "items beyond 500": lambda request: request.items.extend([request.items[0]] * 500),
        "items.tool.name": _item(lambda item: item.tool.SetInParent()),
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_item_that_cannot_be_is_refused_and_none_is_stored(
    target: Target, client: sage_client.AsyncSageClient, field: str, change: Callable[[Any], Any]
) -> None:
    thread = await client.conversations.create("Thread")
    request = valid_request(BY_NAME["AppendItems"])
    request.conversation_id = thread.id
    change(request)
    answer = await target.call("AppendItems", request, client.options.user or "")
    assert_invalid(answer, field.partition(" ")[0])
    assert await client.conversations.get(thread.id) == thread


async def test_a_bad_item_among_good_ones_is_named_by_its_index(
    target: Target, client: sage_client.AsyncSageClient
) -> None:
    thread = await client.conversations.create("Thread")
    changes: list[Callable[[Any], Any]] = [
        lambda item: setattr(item, "text", SENTINEL + "\0"),
        lambda item: setattr(item.tool, "name", SENTINEL),
        _in_two_days,
        lambda item: setattr(item.create_time, "nanos", -1),
    ]
    for change in changes:
        request = valid_request(BY_NAME["AppendItems"])
        request.conversation_id = thread.id
        request.items.extend([request.items[0]] * 4)
        change(request.items[3])
        answer = await target.call("AppendItems", request, client.options.user or "")
        assert_clear(answer)
        assert [name.partition(".")[0] for name, _ in answer.violations] == ["items[3]"]
    assert await client.conversations.get(thread.id) == thread


async def test_a_bad_time_in_a_filter_is_named_by_where_it_is(target: Target) -> None:
    for name, path in (
        ("ListMemories", "filter.created.start_time"),
        ("DeleteMemories", "filter.created.end_time"),
        ("SearchMemories", "created.end_time"),
        ("BatchSearchMemories", "requests[0].created.start_time"),
    ):
        request = valid_request(BY_NAME[name])
        owner = request
        for step in path.replace("[0]", "").split("."):
            owner = getattr(owner, step)
            owner = owner[0] if step == "requests" else owner
        owner.seconds, owner.nanos = 0, 10**9
        answer = await target.call(name, request)
        assert_clear(answer, name)
        assert [field for field, _ in answer.violations] == [path]


async def test_a_range_of_time_that_ends_before_it_begins_is_refused(target: Target) -> None:
    for name in ("ListMemories", "SearchMemories"):
        request = valid_request(BY_NAME[name])
        created = request.created if name == "SearchMemories" else request.filter.created
        created.start_time.seconds, created.end_time.seconds = 2, 2
        answer = await target.call(name, request)
        assert_clear(answer, name)
        assert answer.code is Code.INVALID_ARGUMENT


async def test_a_vector_with_a_number_that_is_none_is_refused_in_every_field(target: Target) -> None:
    tested = 0
    for method in METHODS:
        for path in fields(method.input_type):
            if path.field.type != FieldDescriptor.TYPE_FLOAT:
                continue
            for number in (float("nan"), float("inf"), float("-inf")):
                request = request_with(method, path, number)
                getattr(path.owner(request), path.field.name).extend([1.0] * 255)
                answer = await target.call(method, request)
                assert_clear(answer, method.full_name)
                # The memory to update is nobody's, which is seen first.
                missing = method.name == "UpdateMemory"
                assert answer.reason.endswith("NOT_FOUND" if missing else "EMBEDDING_INVALID"), answer
            long = request_with(method, path, 1.0)
            getattr(path.owner(long), path.field.name).extend([1.0] * 8192)
            assert_invalid(await target.call(method, long), path.name, method.full_name)
            tested += 1
    assert tested >= 5


@pytest.mark.parametrize(("count", "code"), [(0, Code.INVALID_ARGUMENT), (201, Code.INVALID_ARGUMENT)])
async def test_a_batch_has_its_limits(target: Target, count: int, code: grpc.StatusCode) -> None:
    request = request_of(BY_NAME["BatchDeleteConversations"])
    request.conversation_ids.extend(str(uuid4()) for _ in range(count))
    answer = await target.call("BatchDeleteConversations", request)
    assert answer.code is code
    assert_invalid(answer, "conversation_ids")


async def test_an_api_key_cannot_expire_in_the_past(target: Target) -> None:
    request = valid_request(BY_NAME["CreateApiKey"])
    for seconds in (0, 1, -5):
        request.expire_time.seconds = seconds
        assert_invalid(await target.call("CreateApiKey", request), "expire_time")


_THREAD = {"type": "conversation", "id": str(uuid4()), "title": "x", "create_time": "2024-01-01T00:00:00Z"}
_ITEM = {"type": "item", "id": str(uuid4()), "conversation_id": _THREAD["id"], "kind": "user", "text": "x"}
BAD_LINES: dict[str, bytes | dict[str, Any]] = {
    "not JSON": SENTINEL.encode(),
    "cut JSON": b'{"type": "item", "text": "' + SENTINEL.encode(),
    "not UTF-8": b'{"type": "item", "text": "\xff"}',
    "deeply nested": b"[" * 100_000,
    "nested objects": b'{"a":' * 50_000,
    "a huge number": b'{"type": "item", "n": ' + b"9" * 5000 + b"}",
    "an array": b"[]",
    "a string": b'"text"',
    "null": b"null",
    "NUL bytes": b"\0\0\0",
    "no type": {},
    "another type": {"type": SENTINEL},
    "a type of another type": {"type": ["item"]},
    "a thread without an id": {k: v for k, v in _THREAD.items() if k != "id"},
    "a thread whose id is a number": _THREAD | {"id": 7},
    "a thread whose id is no UUID": _THREAD | {"id": SENTINEL},
    "a thread without a time": {k: v for k, v in _THREAD.items() if k != "create_time"},
    "a thread with another time": _THREAD | {"create_time": SENTINEL},
    "a thread with a number for a time": _THREAD | {"create_time": 7},
    "a thread before 1970": _THREAD | {"create_time": "1969-12-31T23:59:59Z"},
    "a thread in year 1": _THREAD | {"create_time": "0001-01-01T00:00:00+14:00"},
    "a thread after the end of time": _THREAD | {"create_time": "9999-12-31T23:59:59-14:00"},
    "a thread with a long title": _THREAD | {"title": SENTINEL * 100},
    "a title of another type": _THREAD | {"title": 7},
    "a title with NUL": _THREAD | {"title": f"{SENTINEL}\0"},
    "a title with half a pair": _THREAD | {"title": f"{SENTINEL}\ud800"},
    "metadata of another type": _THREAD | {"metadata": [SENTINEL]},
    "too much metadata": _THREAD | {"metadata": {f"{SENTINEL}{n}": "x" for n in range(33)}},
    "an empty key": _THREAD | {"metadata": {"": "x"}},
    "a long key": _THREAD | {"metadata": {SENTINEL + "x" * 60: "x"}},
    "a value of another type": _THREAD | {"metadata": {SENTINEL: 7}},
    "half a pair in a key": _THREAD | {"metadata": {f"{SENTINEL}\udc00": "x"}},
    "private of another type": _THREAD | {"private": "yes"},
    "another memory": _THREAD | {"memory": SENTINEL},
    "an item without an id": {k: v for k, v in _ITEM.items() if k != "id"},
    "an item of no thread": {k: v for k, v in _ITEM.items() if k != "conversation_id"},
    "an item of an unknown thread": _ITEM | {"conversation_id": str(uuid4())},
    "an item without a kind": {k: v for k, v in _ITEM.items() if k != "kind"},
    "an item of another kind": _ITEM | {"kind": SENTINEL},
    "a kind of another type": _ITEM | {"kind": {}},
    "a long text": _ITEM | {"text": SENTINEL + "x" * 100_000},
    "a text of another type": _ITEM | {"text": None},
    "half a pair in a text": _ITEM | {"text": f"{SENTINEL}\ud83d"},
    "a long author": _ITEM | {"author": SENTINEL + "x" * 128},
    "hidden of another type": _ITEM | {"hidden": 1},
    "an item from the future": _ITEM | {"create_time": "2999-01-01T00:00:00Z"},
    "a tool of another type": _ITEM | {"kind": "tool_call", "tool": SENTINEL},
    "a tool on a user's item": _ITEM | {"tool": {"name": SENTINEL}},
    "a call without a tool": _ITEM | {"kind": "tool_call"},
    "a long tool name": _ITEM | {"kind": "tool_call", "tool": {"name": SENTINEL + "x" * 128}},
}


@pytest.mark.parametrize("kind", BAD_LINES)
async def test_an_import_with_a_bad_line_names_it_and_stores_nothing(
    target: Target, client: sage_client.AsyncSageClient, kind: str
) -> None:
    bad = BAD_LINES[kind]
    raw = bad if isinstance(bad, bytes) else json.dumps(bad).encode()
    good = [json.dumps(line).encode() for line in (_THREAD, _ITEM)]
    request = request_of(BY_NAME["ImportConversations"])
    request.jsonl = b"\n".join([*good, b"", raw, good[1]])
    answer = await target.call("ImportConversations", request, client.options.user or "")
    assert_invalid(answer, "jsonl")
    assert "line 4" in answer.message
    assert [thread async for thread in client.conversations.list()] == []
    request.jsonl = b"\n".join(good)
    answer = await target.call("ImportConversations", request, client.options.user or "")
    assert answer.code is Code.OK


async def test_an_import_without_a_line_stores_nothing_and_is_no_fault(target: Target) -> None:
    request = request_of(BY_NAME["ImportConversations"])
    assert_invalid(await target.call("ImportConversations", request), "jsonl")
    for empty in (b"\n", b"\n\n  \n", b"\r\n"):
        request.jsonl = empty
        assert (await target.call("ImportConversations", request)).code is Code.OK


async def test_an_unknown_method_is_unimplemented(target: Target) -> None:
    for path in ("/sage.v1.ConversationService/Nothing", "/sage.v2.ConversationService/GetConversation", "/"):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unary(target.channel, path)(b"")
        assert raised.value.code() is Code.UNIMPLEMENTED


async def test_unknown_fields_are_ignored(target: Target) -> None:
    """A newer client may send them."""
    answer = await target.call("CreateConversation", delimited(1999, b"\xff"))
    assert answer.code is Code.OK


@st.composite
def _requests(draw: st.DrawFn) -> tuple[MethodDescriptor, bytes]:
    """A method, and bytes for it: any, or nearly what belongs there."""
    method = draw(st.sampled_from(METHODS))
    raw = bytearray(VALID[method])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(["insert", "replace", "cut", "field", "repeat"])):
            case "insert":
                raw[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "replace":
                raw[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del raw[at:]
            case "repeat":
                raw += bytes(raw)
            case "field":
                number = draw(st.integers(1, 12))
                raw += delimited(number, draw(st.text(max_size=40)).encode("utf-8", "surrogatepass"))
    return method, draw(st.one_of(st.just(bytes(raw)), st.binary(max_size=64)))


@settings(
    max_examples=400,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=_requests())
async def test_no_bytes_make_the_server_fail(target: Target, case: tuple[MethodDescriptor, bytes]) -> None:
    method, raw = case
    if method.name == "WatchEvents":  # a request that is none would be watched for ever
        answer = await call(target.channel, method, raw, (("x-sage-user", "maria"),), timeout=0.5)
        assert answer.code is Code.DEADLINE_EXCEEDED or answer.domain == "sage", (raw, answer)
        return
    answer = await target.call(method, raw)
    if answer.code is not Code.OK:
        assert_clear(answer, (method.full_name, raw))
