"""Nobody reads or changes another user's anything.

Every method of the contract has an entry below. One that takes an id and forgets the user fails here, and so
does one that is implemented and has no entry.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import asyncpg
import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

import sage_client
from sage_client import NewItem
from support.contract import (
    BY_NAME,
    METHODS,
    Answer,
    call,
    fields,
    names_something,
    request_of,
    response_of,
    valid_request,
)
from support.postgres import TestPostgres
from support.server import RunningServer, running_server

Code = grpc.StatusCode


@dataclass(frozen=True)
class Ids:
    """What a request may name."""

    conversation: str
    item: str

    @classmethod
    def random(cls) -> Ids:
        return cls(str(uuid4()), str(uuid4()))


@dataclass(frozen=True)
class Foreign:
    """What a stranger must be answered when they name somebody's ids."""

    request: Callable[[Any, Ids], None]
    resource: str = "conversation"


def _conversation(request: Any, ids: Ids) -> None:
    request.conversation_id = ids.conversation


def _item(request: Any, ids: Ids) -> None:
    request.conversation_id = ids.conversation
    request.item_id = ids.item


def _conversations(request: Any, ids: Ids) -> None:
    request.conversation_ids.append(ids.conversation)


NOT_FOUND = {
    "GetConversation": Foreign(_conversation),
    "UpdateConversation": Foreign(_conversation),
    "DeleteConversation": Foreign(_conversation),
    "UndeleteConversation": Foreign(_conversation),
    "ForkConversation": Foreign(_conversation),
    "ListItems": Foreign(_conversation),
    "AppendItems": Foreign(_conversation),
    "DeleteItem": Foreign(_item),
    "ExportConversations": Foreign(_conversations),
}
"""Methods that answer NOT_FOUND, in the same words as for an id that nobody has."""

TESTED_ON_THEIR_OWN = {
    "BatchDeleteConversations": "test_a_batch_delete_takes_foreign_ids_for_missing",
    "ImportConversations": "test_an_import_into_a_foreign_conversation_is_refused",
}
"""Methods that name ids and answer otherwise."""

NAMES_NOBODYS_THINGS = {
    "CreateConversation": "test_lists_exports_and_delete_all_stay_with_their_user",
    "ListConversations": "test_lists_exports_and_delete_all_stay_with_their_user",
    "DeleteAllConversations": "test_lists_exports_and_delete_all_stay_with_their_user",
}
"""Methods of a user that take no id at all."""

ADMINS = {"CreateApiKey", "ListApiKeys", "RevokeApiKey", "GetUser", "RotateUserKey", "EraseUser"} | {
    "RotateRootKey",
    "GetServerInfo",
}
"""Methods that act for no user; test_credentials holds them to their tenant."""


@dataclass(frozen=True)
class Stage:
    """A user with a conversation, and a stranger."""

    server: RunningServer
    channel: grpc.aio.Channel
    owner: sage_client.AsyncSageClient
    stranger: sage_client.AsyncSageClient
    ids: Ids

    async def as_owner(self, method: MethodDescriptor, request: Any) -> Answer:
        return await call(self.channel, method, request, self.owner.options.metadata())

    async def as_stranger(self, method: MethodDescriptor, request: Any) -> Answer:
        return await call(self.channel, method, request, self.stranger.options.metadata())

    async def owned(self) -> tuple[Any, ...]:
        """Everything that the owner has."""
        mine = self.owner.conversations
        listed = [c async for c in mine.list()]
        deleted = [c async for c in mine.list(deleted_only=True)]
        return listed, deleted, [[i async for i in mine.items(c.id)] for c in (*listed, *deleted)]


@pytest.fixture(scope="module")
async def shared(postgres: TestPostgres) -> AsyncIterator[RunningServer]:
    """One server for all: each test has users of its own."""
    async with postgres.database() as dsn, running_server(dsn) as running:
        yield running


@pytest.fixture
async def stage(shared: RunningServer) -> AsyncIterator[Stage]:
    server, name = shared, uuid4().hex
    async with (
        grpc.aio.insecure_channel(server.address) as channel,
        sage_client.connect_async(server.address, user=f"owner-{name}") as owner,
        sage_client.connect_async(server.address, user=f"stranger-{name}") as stranger,
    ):
        thread = await owner.conversations.create("Diary", metadata={"a": "b"})
        items = await owner.conversations.append(thread.id, [NewItem.user("one"), NewItem.assistant("two")])
        gone = await owner.conversations.create("Old diary")
        await owner.conversations.delete(gone.id)
        yield Stage(server, channel, owner, stranger, Ids(thread.id, items[0].id))


def _naming(method: MethodDescriptor, case: Foreign, ids: Ids) -> Any:
    """A valid request with these ids and no others."""
    request = valid_request(method)
    for field in method.input_type.fields:
        if names_something(field):
            request.ClearField(field.name)
    case.request(request, ids)
    return request


def test_every_method_that_takes_an_id_has_a_case() -> None:
    cases = [set(NOT_FOUND), set(TESTED_ON_THEIR_OWN), set(NAMES_NOBODYS_THINGS), ADMINS]
    assert sum(map(len, cases)) == len(set().union(*cases))
    for name in (*TESTED_ON_THEIR_OWN.values(), *NAMES_NOBODYS_THINGS.values()):
        assert name in globals()
    for name in NAMES_NOBODYS_THINGS:
        assert not [path.name for path in fields(BY_NAME[name].input_type) if names_something(path.field)]
    for name, case in NOT_FOUND.items():
        request = request_of(BY_NAME[name])
        case.request(request, Ids.random())
        set_fields = {field.name for field, _ in request.ListFields()}
        own = {f.name for f in BY_NAME[name].input_type.fields if names_something(f)}
        assert set_fields == own, f"{name}: the case leaves out an id"


async def test_a_method_without_a_case_is_not_implemented(stage: Stage) -> None:
    """Whoever implements one is sent here: add its case above."""
    covered = {*NOT_FOUND, *TESTED_ON_THEIR_OWN, *NAMES_NOBODYS_THINGS, *ADMINS}
    for method in METHODS:
        if method.name in covered:
            continue
        answer = await stage.as_stranger(method, valid_request(method))
        assert answer.code is Code.UNIMPLEMENTED, f"{method.full_name} needs a case in {__name__}"
        assert answer.reason == "ERROR_REASON_NOT_IMPLEMENTED"
        path = f"{method.containing_service.full_name}/{method.name}"
        assert dict(answer.metadata) == {"method": path}


@pytest.mark.parametrize("name", NOT_FOUND)
async def test_foreign_ids_are_not_found_in_the_words_for_missing_ones(stage: Stage, name: str) -> None:
    before = await stage.owned()
    method, case = BY_NAME[name], NOT_FOUND[name]
    gone = before[1][0].id
    answers = []
    for ids in (stage.ids, Ids(gone, stage.ids.item), Ids.random()):
        request = _naming(method, case, ids)
        answers.append(await stage.as_stranger(method, request))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].code is Code.NOT_FOUND
    assert answers[0].reason == "ERROR_REASON_NOT_FOUND"
    assert dict(answers[0].metadata) == {"resource": case.resource}
    assert await stage.owned() == before


@pytest.mark.parametrize("name", NOT_FOUND)
async def test_the_owner_is_not_refused(stage: Stage, name: str) -> None:
    """So that the refusals above are for the user and nothing else."""
    method, case = BY_NAME[name], NOT_FOUND[name]
    if name == "UndeleteConversation":
        await stage.owner.conversations.delete(stage.ids.conversation)
    answer = await stage.as_owner(method, _naming(method, case, stage.ids))
    assert answer.code is Code.OK


async def test_an_item_is_not_found_in_another_conversation_than_its_own(stage: Stage) -> None:
    """Neither a stranger's nor one's own."""
    method = BY_NAME["DeleteItem"]
    mine = await stage.stranger.conversations.create("Mine")
    answers = []
    for item in (stage.ids.item, str(uuid4())):
        request = request_of(method)
        request.conversation_id, request.item_id = mine.id, item
        answers.append(await stage.as_stranger(method, request))
    assert answers[0] == answers[1]
    assert dict(answers[0].metadata) == {"resource": "item"}
    another = await stage.owner.conversations.create("Another")
    with pytest.raises(sage_client.NotFound):
        await stage.owner.conversations.delete_item(another.id, stage.ids.item)
    assert (await stage.owner.conversations.get(stage.ids.conversation)).message_count == 2
    assert stage.ids.item in {i.id async for i in stage.owner.conversations.items(stage.ids.conversation)}


async def test_a_batch_delete_takes_foreign_ids_for_missing(stage: Stage) -> None:
    before = await stage.owned()
    mine = await stage.stranger.conversations.create("Mine")
    nobodys = str(uuid4())
    result = await stage.stranger.conversations.batch_delete([stage.ids.conversation, mine.id, nobodys])
    assert result.deleted_count == 1
    assert result.not_found == (stage.ids.conversation, nobodys)
    assert await stage.owned() == before


async def test_an_import_into_a_foreign_conversation_is_refused(stage: Stage) -> None:
    before = await stage.owned()
    method = BY_NAME["ImportConversations"]
    answers = []
    for conversation in (stage.ids.conversation, str(uuid4())):
        line = {"type": "item", "id": str(uuid4()), "conversation_id": conversation, "kind": "user"}
        request = request_of(method)
        request.jsonl = json.dumps(line | {"text": "x"}).encode()
        answers.append(await stage.as_stranger(method, request))
    assert answers[0] == answers[1]
    assert answers[0].code is Code.INVALID_ARGUMENT
    assert await stage.owned() == before


async def test_an_import_of_anothers_export_makes_a_copy_and_leaves_the_original(stage: Stage) -> None:
    """Ids are the user's own: the same may exist at two users."""
    before = await stage.owned()
    chunks = [e async for e in stage.owner.conversations.export()]
    exported = b"".join(e.jsonl for e in chunks if isinstance(e, sage_client.ExportChunk))
    done = await stage.stranger.conversations.import_(exported)
    assert (done.conversations_created, done.items_created) == (1, 2)
    await stage.stranger.conversations.update(stage.ids.conversation, title="Theirs")
    await stage.stranger.conversations.delete_item(stage.ids.conversation, stage.ids.item)
    await stage.stranger.conversations.delete_all()
    assert await stage.owned() == before


async def test_reads_at_the_same_time_stay_with_their_users(stage: Stage) -> None:
    """Reads that share a round trip must not share answers, not even of one id that both have."""
    events = [event async for event in stage.owner.conversations.export()]
    exported = b"".join(e.jsonl for e in events if isinstance(e, sage_client.ExportChunk))
    await stage.stranger.conversations.import_(exported)
    await stage.stranger.conversations.update(stage.ids.conversation, title="Theirs")
    secret = await stage.owner.conversations.create("Secret")

    async def title(client: sage_client.AsyncSageClient, conversation_id: str) -> str:
        try:
            return (await client.conversations.get(conversation_id)).title
        except sage_client.NotFound:
            return "not found"

    expected = {
        (stage.owner, stage.ids.conversation): "Diary",
        (stage.stranger, stage.ids.conversation): "Theirs",
        (stage.owner, secret.id): "Secret",
        (stage.stranger, secret.id): "not found",
    }
    wanted = [*expected] * 25
    found = await asyncio.gather(*(title(*each) for each in wanted))
    assert list(zip(wanted, found, strict=True)) == [(each, expected[each]) for each in wanted]


async def test_lists_exports_and_delete_all_stay_with_their_user(stage: Stage) -> None:
    before = await stage.owned()
    theirs = stage.stranger.conversations
    assert [c async for c in theirs.list()] == []
    assert [c async for c in theirs.list(deleted_only=True)] == []
    for order in sage_client.ConversationOrder:
        assert (await theirs.list_page(order=order)).items == ()
    mine = await theirs.create("Mine")
    events = [event async for event in theirs.export(show_deleted=True)]
    text = b"".join(e.jsonl for e in events if isinstance(e, sage_client.ExportChunk))
    assert [json.loads(line)["id"] for line in text.splitlines()] == [mine.id]
    progress = [e for e in events if isinstance(e, sage_client.ExportProgress)]
    assert {p.total_conversations for p in progress} == {1}
    assert await theirs.delete_all() == 1
    assert await stage.owned() == before


async def test_a_request_id_of_another_user_is_not_replayed(stage: Stage) -> None:
    for name in ("CreateConversation", "AppendItems", "ForkConversation"):
        method = BY_NAME[name]
        request = valid_request(method)
        request.request_id = str(uuid4())
        if name != "CreateConversation":
            request.conversation_id = stage.ids.conversation
        first = await stage.as_owner(method, request)
        again = await stage.as_owner(method, request)
        assert first == again
        assert first.code is Code.OK
        stolen = await stage.as_stranger(method, request)
        if name == "CreateConversation":
            own = response_of(method, stolen).conversation.id
            assert own != response_of(method, first).conversation.id
        else:
            assert stolen.code is Code.NOT_FOUND


async def test_a_page_token_of_another_user_is_refused(stage: Stage) -> None:
    for _ in range(2):
        await stage.owner.conversations.create("More")
        await stage.stranger.conversations.create("More")
    listing, items = BY_NAME["ListConversations"], BY_NAME["ListItems"]
    request = request_of(listing)
    request.page_size = 1
    page = await stage.as_owner(listing, request)
    request.page_token = response_of(listing, page).next_page_token
    assert request.page_token
    own = await stage.as_owner(listing, request)
    assert own.code is Code.OK
    answer = await stage.as_stranger(listing, request)
    assert answer.code is Code.INVALID_ARGUMENT
    assert answer.reason == "ERROR_REASON_INVALID_PAGE_TOKEN"

    request = request_of(items)
    request.conversation_id, request.page_size = stage.ids.conversation, 1
    page = await stage.as_owner(items, request)
    request.page_token = response_of(items, page).next_page_token
    assert request.page_token
    answer = await stage.as_stranger(items, request)
    assert answer.reason == "ERROR_REASON_INVALID_PAGE_TOKEN"


async def _make_agents_thread(stage: Stage) -> None:
    connection = await asyncpg.connect(stage.server.dsn)
    try:
        changed = await connection.execute(
            "UPDATE conversations SET kind = 2 WHERE id = $1", stage.ids.conversation
        )
    finally:
        await connection.close()
    assert changed == "UPDATE 1"


@pytest.mark.parametrize("name", NOT_FOUND)
async def test_an_agents_own_thread_is_not_found_here(stage: Stage, name: str) -> None:
    await _make_agents_thread(stage)
    before = await _stored(stage)
    method, case = BY_NAME[name], NOT_FOUND[name]
    answers = []
    for ids in (stage.ids, Ids.random()):
        request = _naming(method, case, ids)
        answers.append(await stage.as_owner(method, request))
    assert answers[0] == answers[1]
    assert answers[0].code is Code.NOT_FOUND
    assert await _stored(stage) == before


async def test_an_agents_own_thread_is_in_no_list_export_or_deletion(stage: Stage) -> None:
    await _make_agents_thread(stage)
    before = await _stored(stage)
    mine = stage.owner.conversations
    other = await mine.create("Another")
    assert [c.id async for c in mine.list()] == [other.id]
    for order in sage_client.ConversationOrder:
        page = await mine.list_page(order=order, page_size=1)
        assert ([c.id for c in page.items], page.next_page_token) == ([other.id], "")
    events = [event async for event in mine.export()]
    text = b"".join(e.jsonl for e in events if isinstance(e, sage_client.ExportChunk))
    assert [json.loads(line)["id"] for line in text.splitlines()] == [other.id]
    assert {e.total_conversations for e in events if isinstance(e, sage_client.ExportProgress)} == {1}
    batch = await mine.batch_delete([stage.ids.conversation])
    assert (batch.deleted_count, batch.not_found) == (0, (stage.ids.conversation,))
    assert await mine.delete_all() == 1
    assert await _stored(stage) == before


async def test_an_import_does_not_reach_an_agents_own_thread(stage: Stage) -> None:
    await _make_agents_thread(stage)
    before = await _stored(stage)
    new = str(uuid4())
    item = {"type": "item", "id": str(uuid4()), "conversation_id": stage.ids.conversation, "kind": "user"}
    thread = {"type": "conversation", "create_time": "2024-01-01T00:00:00Z"}
    for lines in (
        [thread | {"id": new}, item | {"text": "x"}],
        [thread | {"id": new}, thread | {"id": stage.ids.conversation}],
        [thread | {"id": new}, thread | {"id": stage.ids.conversation}, item | {"text": "x"}],
    ):
        request = request_of(BY_NAME["ImportConversations"])
        request.jsonl = b"\n".join(json.dumps(line).encode() for line in lines)
        answer = await stage.as_owner(BY_NAME["ImportConversations"], request)
        assert answer.code is Code.INVALID_ARGUMENT
        assert await _stored(stage) == before
        with pytest.raises(sage_client.NotFound):
            await stage.owner.conversations.get(new)


async def _stored(stage: Stage) -> list[tuple[Any, ...]]:
    """The agent's thread and its items as they are in the database."""
    connection = await asyncpg.connect(stage.server.dsn)
    try:
        thread = await connection.fetch(
            "SELECT * FROM conversations WHERE kind = 2 AND id = $1", stage.ids.conversation
        )
        items = await connection.fetch(
            "SELECT * FROM items WHERE conversation_id = $1 ORDER BY seq", stage.ids.conversation
        )
    finally:
        await connection.close()
    return [tuple(row) for row in (*thread, *items)]
