"""Nobody reads or changes another user's anything.

Every method of the contract has an entry below. One that takes an id and forgets the user fails here, and so
does one that is implemented and has no entry.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

import sage_client
from sage_client import MemoryFilter, MemoryMode, MemorySource, NewItem
from support.agent_calls import Agents, with_thread
from support.agents import answer as said
from support.agents import model_settings
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
from support.provider import FakeProvider, chat_reply
from support.server import RunningServer, running_server

Code = grpc.StatusCode


@dataclass(frozen=True)
class Ids:
    """What a request may name."""

    conversation: str
    item: str
    memory: str
    document: str
    turn: str

    @classmethod
    def random(cls) -> Ids:
        return cls(str(uuid4()), str(uuid4()), str(uuid4()), str(uuid4()), str(uuid4()))


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


def _memory(request: Any, ids: Ids) -> None:
    request.memory_id = ids.memory


def _document(request: Any, ids: Ids) -> None:
    request.document_id = ids.document


def _turn(request: Any, ids: Ids) -> None:
    request.turn_id = ids.turn


def _conversation_and_document(request: Any, ids: Ids) -> None:
    request.conversation_id = ids.conversation
    request.document_id = ids.document


NOT_FOUND = {
    "GetConversation": Foreign(_conversation),
    "UpdateConversation": Foreign(_conversation),
    "DeleteConversation": Foreign(_conversation),
    "UndeleteConversation": Foreign(_conversation),
    "ForkConversation": Foreign(_conversation),
    "ListItems": Foreign(_conversation),
    "AppendItems": Foreign(_conversation),
    "DeleteItem": Foreign(_item),
    "ListSummaries": Foreign(_conversation),
    "SummarizeConversation": Foreign(_conversation),
    "ExportConversations": Foreign(_conversations),
    "GetScratchpad": Foreign(_conversation),
    "WriteScratchpad": Foreign(_conversation),
    "ClearScratchpad": Foreign(_conversation),
    "GetMemory": Foreign(_memory, "memory"),
    "UpdateMemory": Foreign(_memory, "memory"),
    "DeleteMemory": Foreign(_memory, "memory"),
    "SearchMemories": Foreign(_conversation_and_document),
    "GetDocument": Foreign(_document, "document"),
    "DeleteDocument": Foreign(_document, "document"),
    "GetTurn": Foreign(_turn, "turn"),
    "CancelTurn": Foreign(_turn, "turn"),
    "AttachTurn": Foreign(_turn, "turn"),
    "ListTurns": Foreign(_conversation),
}
"""Methods that answer NOT_FOUND, in the same words as for an id that nobody has."""

TESTED_ON_THEIR_OWN = {
    "BatchDeleteConversations": "test_a_batch_delete_takes_foreign_ids_for_missing",
    "ImportConversations": "test_an_import_into_a_foreign_conversation_is_refused",
    "ListMemories": "test_a_filter_that_names_foreign_things_is_not_found",
    "DeleteMemories": "test_a_filter_that_names_foreign_things_is_not_found",
    "BatchSearchMemories": "test_a_filter_that_names_foreign_things_is_not_found",
    "IngestDocument": "test_documents_of_one_name_stay_with_their_users",
    "ListDocuments": "test_documents_of_one_name_stay_with_their_users",
    "Respond": "test_agents_answer_in_nobody_elses_thread",
    "PreviewContext": "test_agents_answer_in_nobody_elses_thread",
    "MergeOverlay": "test_overlays_stay_with_their_users",
}
"""Methods that name ids and answer otherwise."""

NAMES_NOBODYS_THINGS = {
    "CreateConversation": "test_lists_exports_and_delete_all_stay_with_their_user",
    "ListConversations": "test_lists_exports_and_delete_all_stay_with_their_user",
    "DeleteAllConversations": "test_lists_exports_and_delete_all_stay_with_their_user",
    "CreateBlock": "test_blocks_of_one_label_stay_with_their_users",
    "GetBlock": "test_blocks_of_one_label_stay_with_their_users",
    "ListBlocks": "test_blocks_of_one_label_stay_with_their_users",
    "UpdateBlock": "test_blocks_of_one_label_stay_with_their_users",
    "DeleteBlock": "test_blocks_of_one_label_stay_with_their_users",
    "ListBlockRevisions": "test_blocks_of_one_label_stay_with_their_users",
    "RestoreBlock": "test_blocks_of_one_label_stay_with_their_users",
    "GetUsage": "test_usage_stays_with_its_user",
    "InsertMemory": "test_memories_of_one_text_stay_with_their_users",
    "BatchInsertMemories": "test_memories_of_one_text_stay_with_their_users",
    "EmbedText": "test_memories_of_one_text_stay_with_their_users",
    "GetMemoryStats": "test_memories_of_one_text_stay_with_their_users",
    "CreateAgent": "test_agents_of_one_name_stay_with_their_users",
    "GetAgent": "test_agents_of_one_name_stay_with_their_users",
    "ListAgents": "test_agents_of_one_name_stay_with_their_users",
    "UpdateAgent": "test_agents_of_one_name_stay_with_their_users",
    "DeleteAgent": "test_agents_of_one_name_stay_with_their_users",
    "FindAgents": "test_agents_of_one_name_stay_with_their_users",
    "ListAgentItems": "test_agents_of_one_name_stay_with_their_users",
    "ClearAgentConversation": "test_agents_of_one_name_stay_with_their_users",
    "Chat": "test_turns_and_events_stay_with_their_user",
    "WatchEvents": "test_turns_and_events_stay_with_their_user",
    "ListTools": "test_turns_and_events_stay_with_their_user",
    "ListOverlayChanges": "test_overlays_stay_with_their_users",
}
"""Methods of a user that take no id at all."""

ADMINS = {"CreateApiKey", "ListApiKeys", "RevokeApiKey", "GetUser", "RotateUserKey", "EraseUser"} | {
    "RotateRootKey",
    "GetServerInfo",
    "GetJobStats",
    "ListDeadJobs",
    "RetryDeadJob",
    "ListFlags",
    "SetFlag",
    "ClearFlag",
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
        notes = []
        for conversation in listed:
            request = request_of(BY_NAME["GetScratchpad"])
            request.conversation_id = conversation.id
            notes.append(await self.as_owner(BY_NAME["GetScratchpad"], request))
        blocks = await self.as_owner(BY_NAME["ListBlocks"], b"")
        items = [[i async for i in mine.items(c.id)] for c in (*listed, *deleted)]
        # Messages become memories in their own time.
        kept = MemoryFilter(sources=[MemorySource.ARCHIVAL, MemorySource.DOCUMENT])
        memories = [m async for m in self.owner.memory.list(kept)]
        documents = [d async for d in self.owner.memory.documents.list()]
        return listed, deleted, items, notes, blocks, memories, documents

    async def with_document(self) -> Ids:
        """The ids with that of a document that the owner has."""
        done = await self.owner.memory.documents.add(b"A diary of the garden", external_id="diary")
        return replace(self.ids, document=done.document.id)

    async def with_turn(self) -> Ids:
        """The ids with that of a turn that the owner's agent took."""
        await self.owner.agent().enable()
        chat = self.owner.agent().chat("Is the garden dry?")
        await chat.text()
        return replace(self.ids, turn=chat.turn_id)

    async def naming(self, method: MethodDescriptor) -> Ids:
        """What the owner has, with a document or a turn only for methods that name one."""
        if "document_id" in method.input_type.fields_by_name:
            return await self.with_document()
        if "turn_id" in method.input_type.fields_by_name:
            return await self.with_turn()
        return self.ids


@pytest.fixture(scope="module")
async def shared(postgres: TestPostgres) -> AsyncIterator[RunningServer]:
    """One server for all: each test has users of its own."""
    async with FakeProvider.running() as provider, postgres.database() as dsn:
        provider.chat = lambda _: chat_reply(said("It is dry."))
        async with running_server(dsn, **model_settings(provider)) as running:
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
        memory = (await owner.memory.insert("The garden is dry", tags=["diary"])).memory
        ids = Ids(thread.id, items[0].id, memory.id, str(uuid4()), str(uuid4()))
        yield Stage(server, channel, owner, stranger, ids)


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
    method, case = BY_NAME[name], NOT_FOUND[name]
    own = await stage.naming(method)
    before = await stage.owned()
    gone = before[1][0].id
    answers = []
    for ids in (own, replace(own, conversation=gone), Ids.random()):
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
    answer = await stage.as_owner(method, _naming(method, case, await stage.naming(method)))
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


async def test_blocks_of_one_label_stay_with_their_users(stage: Stage) -> None:
    async def call_named(name: str, label: str) -> Answer:
        request = valid_request(BY_NAME[name])
        request.label = label
        return await stage.as_stranger(BY_NAME[name], request)

    create = valid_request(BY_NAME["CreateBlock"])
    create.label, create.value = "diary", "private"
    assert (await stage.as_owner(BY_NAME["CreateBlock"], create)).code is Code.OK
    before = await stage.owned()
    for name in ("GetBlock", "UpdateBlock", "DeleteBlock", "ListBlockRevisions", "RestoreBlock"):
        foreign, missing = await call_named(name, "diary"), await call_named(name, "nobody's")
        assert foreign == missing
        assert (foreign.code, dict(foreign.metadata)) == (Code.NOT_FOUND, {"resource": "block"})
    listed = await stage.as_stranger(BY_NAME["ListBlocks"], b"")
    assert listed.responses == (b"",)
    create.value = "mine"
    assert (await stage.as_stranger(BY_NAME["CreateBlock"], create)).code is Code.OK
    for name in ("UpdateBlock", "RestoreBlock", "DeleteBlock"):
        assert (await call_named(name, "diary")).code is Code.OK
    assert await stage.owned() == before


async def test_usage_stays_with_its_user(stage: Stage) -> None:
    user = await stage.owner.admin.get_user(stage.owner.options.user or "")
    stage.server.application.usage.record_embedding(UUID(user.id), "local/model", 5)
    assert (await stage.as_stranger(BY_NAME["GetUsage"], b"")).responses == (b"",)
    own = response_of(BY_NAME["GetUsage"], await stage.as_owner(BY_NAME["GetUsage"], b""))
    counted = [record for record in own.records if record.model == "local/model"]
    assert [record.embedding_tokens for record in counted] == [5]


async def test_a_filter_that_names_foreign_things_is_not_found(stage: Stage) -> None:
    ids = await stage.with_document()
    mine = (await stage.stranger.memory.insert("The garden is dry", tags=["diary"])).memory
    before = await stage.owned()
    for field, resource in (("conversation_id", "conversation"), ("document_id", "document")):
        answers: dict[str, list[Answer]] = {}
        for wanted in (getattr(ids, resource), str(uuid4())):
            search = request_of(BY_NAME["BatchSearchMemories"])
            setattr(search.requests.add(query="garden"), field, wanted)
            listing, deletion = request_of(BY_NAME["ListMemories"]), request_of(BY_NAME["DeleteMemories"])
            setattr(listing.filter, field, wanted)
            setattr(deletion.filter, field, wanted)
            for name, request in (
                ("BatchSearchMemories", search),
                ("ListMemories", listing),
                ("DeleteMemories", deletion),
            ):
                answers.setdefault(name, []).append(await stage.as_stranger(BY_NAME[name], request))
        for name, (foreign, missing) in answers.items():
            assert foreign == missing, name
            assert foreign.code is Code.NOT_FOUND
            assert dict(foreign.metadata)["resource"] == resource
    deleted = await stage.stranger.memory.delete_many([ids.memory, mine.id])
    assert (deleted.deleted_count, deleted.not_found) == (1, (ids.memory,))
    assert (await stage.stranger.memory.delete_all()).deleted_count == 0
    assert await stage.owned() == before


async def test_memories_of_one_text_stay_with_their_users(stage: Stage) -> None:
    theirs = stage.stranger.memory
    own = (await stage.owner.memory.get(stage.ids.memory)).text
    before = await stage.owned()
    assert [memory async for memory in theirs.list()] == []
    stats = await theirs.stats()
    assert (stats.memory_count, stats.document_count, stats.pending_count) == (0, 0, 0)
    assert (await theirs.search(own)).candidate_count == 0
    inserted = await theirs.insert(own, tags=["diary"])
    await theirs.insert_many([sage_client.NewMemory(own)])
    await theirs.embed([own])
    found = await theirs.search(own, tags=["diary"], fully_consistent=True)
    assert [result.memory for result in found.results] == [inserted.memory]
    assert (await theirs.stats()).memory_count == 2
    assert (await theirs.delete_where(MemoryFilter(tags=["diary"]))).deleted_count == 1
    assert (await theirs.delete_all()).deleted_count == 1
    assert await stage.owned() == before
    (kept,) = (await stage.owner.memory.search(own, tags=["diary"], fully_consistent=True)).results
    assert kept.memory.id == stage.ids.memory


async def test_a_memory_token_of_another_user_is_refused(stage: Stage) -> None:
    token = (await stage.owner.memory.stats()).memory_token
    await stage.stranger.memory.insert("The garden is dry")
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await stage.stranger.memory.search("garden", at_least_as_fresh=token)
    assert refused.value.reason == "MEMORY_TOKEN_INVALID"


async def test_documents_of_one_name_stay_with_their_users(stage: Stage) -> None:
    ids = await stage.with_document()
    before = await stage.owned()
    theirs = stage.stranger.memory.documents
    assert [document async for document in theirs.list()] == []
    assert [document async for document in theirs.list(external_id="diary")] == []
    done = await theirs.add(b"A diary of the garden", external_id="diary")
    assert (done.skipped, done.document.id == ids.document) == (False, False)
    await theirs.add(b"Another diary, of the sea", external_id="diary")
    await theirs.delete(done.document.id)
    assert await stage.owned() == before
    assert (await stage.owner.memory.search("diary", document_id=ids.document)).candidate_count == 1


async def test_turns_and_events_stay_with_their_user(stage: Stage) -> None:
    """A stranger's agent of the same name has turns and events of its own."""
    ids = await stage.with_turn()
    before = await stage.owned()
    chat, tools = BY_NAME["Chat"], BY_NAME["ListTools"]
    named = (await stage.owner.agents.get("main")).id
    for method in (chat, tools):
        request = valid_request(method)
        request.agent = named
        refused = await stage.as_stranger(method, request)
        request.agent = str(uuid4())
        assert refused == await stage.as_stranger(method, request)
        assert (refused.code, dict(refused.metadata)) == (Code.NOT_FOUND, {"resource": "agent"})
    await stage.stranger.agent().enable()
    assert [turn async for turn in stage.stranger.turns.list()] == []
    theirs = stage.stranger.agent().chat("Is the garden wet?")
    assert [event.event_id async for event in theirs] == [1, 2, 3, 4]
    assert theirs.turn_id not in {turn.id async for turn in stage.owner.turns.list()}
    watched = []
    async for event in stage.stranger.watch(after_event_id=0, channels=[sage_client.EventChannel.TURN]):
        watched.append(event)
        if isinstance(event, sage_client.TurnDone):
            break
    assert {event.turn_id for event in watched} == {theirs.turn_id}
    assert ids.turn not in {event.turn_id for event in watched}
    assert await stage.owned() == before


async def test_agents_answer_in_nobody_elses_thread(stage: Stage) -> None:
    await stage.stranger.agent().enable()
    before = await stage.owned()
    for name in ("Respond", "PreviewContext"):
        method = BY_NAME[name]
        answers = []
        for conversation in (stage.ids.conversation, str(uuid4())):
            request = valid_request(method)
            request.conversation_id = conversation
            answers.append(await stage.as_stranger(method, request))
        assert answers[0] == answers[1]
        assert answers[0].code is Code.NOT_FOUND
        assert dict(answers[0].metadata) == {"resource": "conversation"}
    assert await stage.owned() == before
    assert [turn async for turn in stage.stranger.turns.list()] == []


async def test_agents_of_one_name_stay_with_their_users(stage: Stage) -> None:
    """An agent is named by its name or its id, and neither reaches another user's."""
    mine, theirs = Agents(stage.owner), Agents(stage.stranger)
    main = await mine.enable_main(description="Knows the garden")
    scout = await mine.create("scout", description="Knows the garden")
    await with_thread(stage.server, stage.owner, scout, "The garden is dry")
    before = await mine.all(), await stage.owned()
    assert await theirs.all() == []
    assert await theirs.find("garden") == []
    refused = set()
    for agent in ("scout", "main", scout.id, main.id, "nobody", str(uuid4())):
        for name in ("GetAgent", "UpdateAgent", "DeleteAgent", "ListAgentItems", "ClearAgentConversation"):
            request = valid_request(BY_NAME[name])
            request.agent = agent
            refused.add(await stage.as_stranger(BY_NAME[name], request))
        for attempt in (
            stage.stranger.memory.insert("x", agent=agent),
            stage.stranger.memory.blocks.list_page(agent=agent),
            stage.stranger.memory.documents.add(b"x", agent=agent),
            stage.stranger.memory.scratchpads.get(agent=agent),
        ):
            with pytest.raises(sage_client.NotFound):
                await attempt
    (answer,) = refused
    assert (answer.code, dict(answer.metadata)) == (Code.NOT_FOUND, {"resource": "agent"})
    own = await theirs.create("scout", description="Knows the sea")
    await theirs.enable_main()
    assert (await theirs.get("scout")).id == own.id != scout.id
    assert [name for name, _ in await theirs.find("garden")] == ["scout"]
    assert list((await theirs.items("scout")).items) == []
    await theirs.clear("scout")
    await theirs.update("scout", description="Knows nothing")
    await theirs.delete("scout")
    assert (await mine.all(), await stage.owned()) == before
    assert [item.text for item in (await mine.items("scout")).items] == ["The garden is dry"]


async def test_overlays_stay_with_their_users(stage: Stage) -> None:
    mine, theirs = stage.owner.agents, stage.stranger.agents
    scout = await mine.create("scout", memory_mode=MemoryMode.OVERLAY)
    await stage.owner.memory.insert("The garden is wet", agent="scout")
    await stage.owner.memory.blocks.create("human", agent="scout")
    before = [one async for one in mine.overlay_changes("scout")], await stage.owned()
    await theirs.create("guide", memory_mode=MemoryMode.OVERLAY)
    refused = set()
    for agent in ("scout", scout.id, str(uuid4())):
        for name in ("ListOverlayChanges", "MergeOverlay"):
            request = valid_request(BY_NAME[name])
            request.agent = agent
            refused.add(await stage.as_stranger(BY_NAME[name], request))
    (answer,) = refused
    assert (answer.code, dict(answer.metadata)) == (Code.NOT_FOUND, {"resource": "agent"})
    merge, answers = BY_NAME["MergeOverlay"], set()
    for change in (*(one.id for one in before[0]), stage.ids.memory, str(uuid4())):
        request = request_of(merge)
        request.agent = "guide"
        request.change_ids.append(change)
        answers.add(await stage.as_stranger(merge, request))
    (answer,) = answers
    assert (answer.code, dict(answer.metadata)) == (Code.NOT_FOUND, {"resource": "change"})
    assert (await theirs.merge_overlay("guide")).merged_count == 0
    assert ([one async for one in mine.overlay_changes("scout")], await stage.owned()) == before
    assert (await mine.merge_overlay("scout", [one.id for one in before[0]])).merged_count == 2


async def test_a_request_id_of_another_user_is_not_replayed(stage: Stage) -> None:
    of_a_thread = ("AppendItems", "ForkConversation", "SummarizeConversation")
    for name in ("CreateConversation", "InsertMemory", *of_a_thread):
        method = BY_NAME[name]
        request = valid_request(method)
        request.request_id = str(uuid4())
        if name in of_a_thread:
            request.conversation_id = stage.ids.conversation
        first = await stage.as_owner(method, request)
        again = await stage.as_owner(method, request)
        if name == "InsertMemory":  # each token is sealed anew
            assert response_of(method, first).memory == response_of(method, again).memory
            stolen = await stage.as_stranger(method, request)
            assert response_of(method, stolen).memory.id != response_of(method, first).memory.id
            continue
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


# A search may know the thread from its messages, which no thread of a caller's would become an agent's with.
THREADS = [
    name for name, case in NOT_FOUND.items() if case.resource == "conversation" and name != "SearchMemories"
]


@pytest.mark.parametrize("name", THREADS)
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
