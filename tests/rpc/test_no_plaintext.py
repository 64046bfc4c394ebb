"""Nothing that a person wrote is on disk or in a log in plaintext.

A word that occurs nowhere else goes into every text field of every request, also of requests that fail. Then
the database, every file of the data directory, and the server's output are searched for each of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor

from sage.v1 import admin_pb2, item_pb2, memory_pb2, turn_event_pb2
from sage_server.adapters.embedded_postgres import EmbeddedPostgres
from sage_server.adapters.postgres.schema import label_columns, metadata, sealed_columns, sealed_tables
from support.agents import answer as said
from support.contract import (
    BY_NAME,
    METHODS,
    Answer,
    call,
    fields,
    is_map,
    is_text,
    request_of,
    response_of,
    unary,
    valid_request,
)
from support.postgres import public_folder
from support.provider import FakeProvider, ProviderRequest, Step, chat_reply, error_reply
from support.server import ChildServer, child_server

USER = "maria"
Code = grpc.StatusCode
# Ids, names of things and tokens; a person writes none of them. An external id is an id of the application.
NO_TEXT = re.compile(r"(^|_)(ids?|etag|page_token|tenant|paths|agent|media_type|at_least_as_fresh)$")
ENDLESS = {"WatchEvents"}
# They take no text, and would remove the rows that are to be searched. The import comes at the end.
ERASING = {"EraseUser", "DeleteAllConversations", "ImportConversations"}


@dataclass
class Canaries:
    """Words to look for, and where each was put."""

    where: dict[str, str] = field(default_factory=dict)
    beginning: str = field(default_factory=lambda: f"Canary{secrets.token_hex(8)}")
    """All of them share it, so that one search finds any."""

    def new(self, where: str) -> str:
        word = f"{self.beginning}{secrets.token_hex(8)}"
        self.where[word] = where
        return word

    def found_in(self, data: bytes) -> list[str]:
        """The places of those that occur in the data in any of the forms that programs write text in."""
        low = data.lower()
        if not any(form in low for form in _forms(self.beginning)):
            return []
        found = [where for word, where in self.where.items() if any(form in low for form in _forms(word))]
        return found or ["a part of one"]


def _forms(word: str) -> Iterable[bytes]:
    """Lower case, as everything is compared in it; base64 of each alignment, without the ends."""
    text = word.encode()
    yield text.lower()
    yield word.encode("utf-16-le").lower()
    yield word.encode("utf-16-be").lower()
    yield text.hex().encode()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + text)
        yield encoded[4:-4].lower()
        yield encoded[4:-4].replace(b"+", b"-").replace(b"/", b"_").lower()


@dataclass(frozen=True)
class Aftermath:
    """All that a stopped server has left behind."""

    canaries: Canaries
    answers: dict[str, Answer]
    rows: dict[str, list[asyncpg.Record]]
    dump: bytes
    files: dict[Path, bytes]
    output: bytes
    control: str


@pytest.fixture(scope="module")
async def aftermath() -> AsyncIterator[Aftermath]:
    async with public_folder() as folder:
        data_dir = folder / "data"
        canaries = Canaries()
        control = secrets.token_hex(12)
        async with (
            _talking(canaries) as provider,
            child_server(
                data_dir=data_dir, log_level="debug", auth="none", llm_base_url=provider.url, llm_tries="1"
            ) as child,
        ):
            answers = await _write_everywhere(child, canaries)
            rows, dump = await _dumped(data_dir, control)
            child.process.terminate()
            await child.ended()
        files = {path: path.read_bytes() for path in data_dir.rglob("*") if _worth_reading(path)}
        output = "".join(child.lines).encode()
        yield Aftermath(canaries, answers, rows, dump, files, output, control)


@asynccontextmanager
async def _talking(canaries: Canaries) -> AsyncIterator[FakeProvider]:
    """A model that says canaries, in messages, in arguments of tools, in nonsense and in errors."""
    async with FakeProvider.running() as provider:
        asked = 0

        def chat(request: ProviderRequest) -> Step:
            nonlocal asked
            asked += 1
            canary = canaries.new
            system = request.body["messages"][0]["content"]
            if "You summarise" in system:
                return chat_reply(canary("a summary"))
            text = request.body["messages"][-1]["content"]
            if "nonsense" in text:
                return chat_reply('{"messages": {' + canary("nonsense"))
            if "broken model" in text:
                return error_reply(400, canary("a provider's error"), code="content_filter")
            if "tool_output" in text.rpartition("Now:")[2]:
                return chat_reply(said(canary("a message after tools")))
            label, missing = "human", canary("a missing label")
            calls: list[tuple[str, dict[str, Any]]] = [
                ("memory_append", {"label": label, "text": canary("an edited block")}),
                ("memory_append", {"label": missing, "text": canary("an edit in vain")}),
                ("memory_append", {canary("a wrong argument"): canary("its value")}),
                ("archival_insert", {"text": canary("kept by an agent"), "tags": [canary("an agent's tag")]}),
                ("archival_search", {"query": canary("an agent's query")}),
                ("scratchpad_write", {"items": [canary("an agent's note")]}),
                (canary("a tool that is none"), {}),
            ]
            return chat_reply(said(canary("a message"), calls=calls))

        provider.chat = chat
        yield provider
        assert asked > 5


def _worth_reading(path: Path) -> bool:
    """Everything but Postgres' own programs, which a root user gets a copy of."""
    return path.is_file() and not any(part.startswith("postgres-bin") for part in path.parts)


async def _write_everywhere(child: ChildServer, canaries: Canaries) -> dict[str, Answer]:
    """Every implemented method with a canary in each of its texts, then requests that fail."""
    writer = _Writer(child, canaries)
    async with grpc.aio.insecure_channel(child.address) as channel:
        return await writer.run(channel)


class _Writer:
    def __init__(self, child: ChildServer, canaries: Canaries) -> None:
        self._child = child
        self._canaries = canaries
        self._answers: dict[str, Answer] = {}
        self._thread = ""

    async def run(self, channel: grpc.aio.Channel) -> dict[str, Answer]:
        self._channel = channel
        thread = response_of(BY_NAME["CreateConversation"], await self._send("CreateConversation"))
        self._thread = thread.conversation.id
        for method in METHODS:
            if method.name not in ERASING | ENDLESS and await self._has(method):
                await self._send(method.name)
        await self._talk()
        await self._import()
        await self._keep_blocks_and_notes()
        await self._keep_memories()
        await self._keep_documents()
        await self._fail_with_agents()
        await self._fail()
        await self._fail_with_memories()
        return self._answers

    async def _has(self, method: MethodDescriptor) -> bool:
        answer = await call(self._channel, method, valid_request(method))
        return answer.code is not Code.UNIMPLEMENTED

    async def _send(self, name: str, note: str = "", /, **changes: Any) -> Answer:
        """A valid request with a canary in each text, a request id, and these changes."""
        method = BY_NAME[name]
        request = self._filled(method, note)
        for key, value in changes.items():
            setattr(request, key, value)
        return await self._call(name, note, request)

    def _filled(self, method: MethodDescriptor, note: str = "") -> Any:
        request = valid_request(method)
        for path in fields(method.input_type):
            if not any(_is_choice(step) for step in path.steps):
                where = f"{method.name}.{path.name}{note}"
                self._fill(path.owner(request), path.field, where)
        if method.name == "AppendItems":
            request.items[0].kind = item_pb2.ITEM_KIND_TOOL_CALL
        if method.name == "UpdateConversation":
            request.update_mask.paths[:] = ["title", "metadata"]
        if method.name == "UpdateBlock":
            request.update_mask.paths[:] = ["description", "value"]
        if method.name == "UpdateMemory":
            request.update_mask.paths[:] = ["text", "tags", "metadata"]
        if method.name in {"CreateAgent", "UpdateAgent"}:
            self._describe(request)
        if method.name in {"SetFlag", "ClearFlag"}:
            # Names of flags are the code's; one that somebody makes up is refused.
            request.name, request.scope = "tools", admin_pb2.FLAG_SCOPE_USER
        return request

    def _describe(self, request: Any) -> None:
        """An agent has a name of its own form; zones, tools and models are those that the server knows."""
        request.time_zone, request.allowed_tools.names[:], request.model = "", ["done"], ""
        if request.DESCRIPTOR.name == "CreateAgentRequest":
            request.name = request.name.lower()
            return
        request.enabled = True
        request.update_mask.paths[:] = ["description", "enabled", "system_prompt", "preferences"]

    def _fill(self, owner: Any, field: FieldDescriptor, where: str) -> None:
        known = {"conversation_id": self._thread, "request_id": str(uuid4()), "external_id": USER}
        if field.name in known:
            setattr(owner, field.name, known[field.name])
        elif is_map(field):
            pairs = getattr(owner, field.name)
            pairs[self._canaries.new(f"{where} key")] = self._canaries.new(f"{where} value")
        elif _holds_text(field) and field.is_repeated:
            getattr(owner, field.name).append(self._canaries.new(where))
        elif _holds_text(field):
            setattr(owner, field.name, self._canaries.new(where))

    async def _import(self) -> None:
        canary = self._canaries.new
        thread, where = str(uuid4()), "ImportConversations"
        lines: list[dict[str, Any]] = [
            {
                "type": "conversation",
                "id": thread,
                "title": canary(f"{where} title"),
                "metadata": {canary(f"{where} key"): canary(f"{where} value")},
                "create_time": "2024-01-01T00:00:00Z",
                "unknown": canary(f"{where} unknown"),
            },
            {
                "type": "item",
                "id": str(uuid4()),
                "conversation_id": thread,
                "kind": "tool_output",
                "text": canary(f"{where} text"),
                "author": canary(f"{where} author"),
                "tool": {
                    "call_id": canary(f"{where} call_id"),
                    "name": canary(f"{where} tool"),
                    "arguments_json": json.dumps({"a": canary(f"{where} arguments")}),
                },
            },
        ]
        whole = b"\n".join(json.dumps(line).encode() for line in lines)
        await self._send("ImportConversations", jsonl=whole)
        for name, bad in {
            "not JSON": canary(f"{where} not JSON").encode(),
            "kind": json.dumps(lines[1] | {"kind": canary(f"{where} bad kind")}).encode(),
            "id": json.dumps(lines[1] | {"id": canary(f"{where} bad id")}).encode(),
            "type": json.dumps({"type": canary(f"{where} bad type")}).encode(),
            "time": json.dumps(lines[0] | {"create_time": canary(f"{where} bad time")}).encode(),
            "long": json.dumps(lines[1] | {"text": canary(f"{where} long") * 4000}).encode(),
            "NUL": json.dumps(lines[1] | {"text": canary(f"{where} NUL") + "\0"}).encode(),
            "half a pair": json.dumps(lines[1] | {"text": canary(f"{where} half") + "\ud800"}).encode(),
        }.items():
            await self._send("ImportConversations", f" {name}", jsonl=whole + b"\n" + bad)

    async def _keep_blocks_and_notes(self) -> None:
        """So far every method named a block of its own, and the notes were emptied last."""
        create = BY_NAME["CreateBlock"]
        label = response_of(create, await self._send("CreateBlock", " kept")).block.label
        for name in ("GetBlock", "UpdateBlock", "ListBlockRevisions", "RestoreBlock"):
            await self._send(name, " kept", label=label)
        await self._send("WriteScratchpad", " kept")
        await self._send("CreateBlock", " taken", label=label)
        await self._send("CreateBlock", " long", value=self._canaries.new("long block") * 200)
        await self._send("UpdateBlock", " etag", label=label, etag=self._canaries.new("block etag"))
        await self._send("WriteScratchpad", " etag", etag=self._canaries.new("notes etag"))

    async def _keep_memories(self) -> None:
        """So far every method named a memory of its own, and no message was a person's."""
        canary = self._canaries.new
        insert = BY_NAME["InsertMemory"]
        memory = response_of(insert, await self._send("InsertMemory", " kept")).memory
        for name in ("GetMemory", "UpdateMemory"):
            await self._send(name, " kept", memory_id=memory.id)
        await self._send("UpdateMemory", " etag", memory_id=memory.id, etag=canary("memory etag"))
        said = self._filled(BY_NAME["AppendItems"], " said")
        for item in said.items:
            item.kind = item_pb2.ITEM_KIND_USER
            item.ClearField("tool")
        long = said.items.add(kind=item_pb2.ITEM_KIND_ASSISTANT, author=canary("author of a long message"))
        long.text = " ".join(canary("a long message") for _ in range(100))
        await self._call("AppendItems", " said", said)
        await self._indexed()
        for name in ("ListMemories", "SearchMemories", "BatchSearchMemories", "EmbedText"):
            await self._send(name, " kept")
        search = self._filled(BY_NAME["SearchMemories"], " own words")
        search.query = memory.text
        search.ClearField("tags")
        await self._call("SearchMemories", " own words", search)
        deletion = request_of(BY_NAME["DeleteMemories"])
        deletion.filter.tags.append(canary("DeleteMemories.filter.tags"))
        await self._call("DeleteMemories", " by tag", deletion)

    async def _keep_documents(self) -> None:
        """Their content is no text in the eyes of the contract, and their external id no id."""
        canary = self._canaries.new
        for note, media_type, content in (
            (" text", "text/plain", "{} and {}"),
            (" markdown", "text/markdown", "# {}\n\n{}"),
            (" html", "text/html", "<html><head><title>{}</title></head><body>{}</body></html>"),
        ):
            filled = content.format(canary(f"content{note}"), canary(f"more content{note}")).encode()
            external_id = canary(f"external id{note}")
            await self._send(
                "IngestDocument", note, content=filled, media_type=media_type, external_id=external_id
            )
            await self._send("ListDocuments", note, external_id=external_id)
            replaced = canary(f"new content{note}").encode()
            await self._send("IngestDocument", f"{note} again", content=replaced, external_id=external_id)
        broken = b"%PDF-1.7 " + canary("a broken PDF").encode()
        await self._send("IngestDocument", " broken PDF", content=broken)
        await self._send("IngestDocument", " no UTF-8", content=canary("no UTF-8").encode() + b"\xff\xfe")

    async def _talk(self) -> None:
        """With an agent whose model says canaries too; turns end well, badly, and before they begin."""
        await self._send("UpdateAgent", " main", agent="main")
        everything = self._filled(BY_NAME["UpdateAgent"], " tools")
        everything.agent, everything.update_mask.paths[:] = "main", ["allowed_tools"]
        everything.ClearField("allowed_tools")
        await self._call("UpdateAgent", " tools", everything)
        for name in ("Chat", "Respond"):
            for note, begins in (("", ""), (" failed", "nonsense "), (" refused", "broken model ")):
                await self._send(name, f" kept{note}", input=begins + self._canaries.new(f"{name}{note}"))
        reused = str(uuid4())
        for note in (" first", " reused"):
            await self._send("Chat", note, request_id=reused)
        await self._send("PreviewContext", " kept")
        await self._send("SummarizeConversation", " kept", keep_newest=0)
        watch = self._filled(BY_NAME["WatchEvents"])
        watch.after_event_id = 0
        watch.channels.append(turn_event_pb2.EVENT_CHANNEL_TURN)
        self._answers["WatchEvents"] = await call(
            self._channel, BY_NAME["WatchEvents"], watch, (("x-sage-user", USER),), timeout=2
        )

    async def _fail_with_agents(self) -> None:
        canary = self._canaries.new
        create = BY_NAME["CreateAgent"]
        agent = response_of(create, await self._send("CreateAgent", " kept")).agent
        await self._send("UpdateAgent", " kept", agent=agent.name)
        await self._send("FindAgents", " kept")
        await self._send("CreateAgent", " taken", name=agent.name)
        await self._send("CreateAgent", " name", name=canary("bad agent name"))
        await self._send("CreateAgent", " zone", time_zone=canary("bad time zone"))
        await self._send("CreateAgent", " model", model=canary("bad model"))
        await self._send("CreateAgent", " long", description=canary("a long description") * 50)
        await self._send("UpdateAgent", " etag", agent=agent.name, etag=canary("agent etag"))
        await self._send("GetAgent", " missing", agent=canary("no such agent").lower())
        await self._send("ListAgents", " token", page_token=canary("agents page token"))

    async def _fail_with_memories(self) -> None:
        canary = self._canaries.new
        for name in ("InsertMemory", "BatchInsertMemories"):
            reused = str(uuid4())
            for note in (" first", " reused"):
                await self._send(name, note, request_id=reused)
        await self._send("InsertMemory", " NUL", text=canary("NUL in a memory") + "\0")
        await self._send("InsertMemory", " long", text=canary("a long memory") * 4000)
        await self._send("SearchMemories", " long", query=canary("a long query") * 400)
        await self._send("ListMemories", " token", page_token=canary("memories page token"))
        token = self._filled(BY_NAME["SearchMemories"], " token")
        token.consistency.at_least_as_fresh = canary("memory token")
        await self._call("SearchMemories", " token", token)
        model = self._filled(BY_NAME["InsertMemory"], " model")
        model.embedding.extend([1.0] * 256)
        await self._call("InsertMemory", " model", model)
        model.embedding.append(1.0)
        await self._call("InsertMemory", " dimensions", model)

    async def _indexed(self) -> None:
        """Wait until what was said is in memory, which is all of it at once."""
        listing = request_of(BY_NAME["ListMemories"])
        listing.filter.sources.append(memory_pb2.MEMORY_SOURCE_MESSAGE)
        async with asyncio.timeout(30):
            answer = await self._call("ListMemories", " said", listing)
            while not response_of(BY_NAME["ListMemories"], answer).memories:
                await asyncio.sleep(0.05)
                answer = await self._call("ListMemories", " said", listing)

    async def _call(self, name: str, note: str, request: Any) -> Answer:
        answer = await call(self._channel, BY_NAME[name], request, (("x-sage-user", USER),))
        self._answers[f"{name}{note}"] = answer
        return answer

    async def _fail(self) -> None:
        canary = self._canaries.new
        reused = str(uuid4())
        for note in (" first", " reused", " reused again"):
            await self._send("CreateConversation", note, request_id=reused)
            await self._send("CreateApiKey", note, request_id=reused)
        for name in ("AppendItems", "ForkConversation"):
            reused = str(uuid4())
            for note in (" first", " reused"):
                await self._send(name, note, request_id=reused)
        long = canary("too long") * 20
        await self._send("CreateConversation", " long", title=long)
        await self._send("CreateApiKey", " long", name=long)
        await self._send("UpdateConversation", " long", title=long)
        await self._send("CreateConversation", " NUL", title=canary("NUL") + "\0")
        await self._send("UpdateConversation", " etag", etag=canary("etag"))
        await self._send("ListConversations", " token", page_token=canary("page token"))
        await self._send("GetConversation", " id", conversation_id=canary("bad id"))
        await self._send("CreateConversation", " id", request_id=canary("bad request id"))
        await self._send("CreateApiKey", " tenant", tenant=canary("bad tenant") + " !")
        for made_up in (canary("made up flag"), canary("made up flag too").lower()):
            await self._send("SetFlag", f" {made_up[:1]}", name=made_up)
        await self._send("AppendItems", " missing", conversation_id=str(uuid4()))
        broken = canary("broken UTF-8").encode()
        raw = b"\x0a" + bytes([len(broken) + 1]) + broken + b"\xff"
        self._answers["broken"] = await call(self._channel, BY_NAME["CreateConversation"], raw)
        path = f"/sage.v1.ConversationService/{canary('unknown method')}"
        with pytest.raises(grpc.aio.AioRpcError):
            await unary(self._channel, path)(b"")
        headers = (
            ("x-request-id", canary("request id header") + " !"),
            ("x-other", canary("another header")),
        )
        await call(self._channel, BY_NAME["ListConversations"], b"", headers)


def _holds_text(field: FieldDescriptor) -> bool:
    """Whether a person, a model or a tool writes it."""
    return is_text(field) and (not NO_TEXT.search(field.name) or field.name == "call_id")


def _is_choice(field: FieldDescriptor) -> bool:
    """Whether to set it would unset another; an optional field is a choice of one, in protobuf's eyes."""
    return field.containing_oneof is not None and len(field.containing_oneof.fields) > 1


async def _dumped(data_dir: Path, control: str) -> tuple[dict[str, list[asyncpg.Record]], bytes]:
    """All rows of all tables, and a word in plaintext beside them, to see that it would be found."""
    postgres = await EmbeddedPostgres.start(data_dir)
    try:
        connection = await asyncpg.connect(postgres.dsn)
        try:
            await connection.execute("CREATE TABLE scratch (text text, bytes bytea)")
            await connection.execute("INSERT INTO scratch VALUES ($1, $2)", control, control.encode())
            dump = ""
            for name in [*metadata.tables, "scratch", "alembic_version"]:
                found = await connection.fetch(f"SELECT t::text FROM {name} t")
                dump += "".join(row[0] for row in found)
            # Statements that somebody could look at while they run.
            active = await connection.fetch("SELECT query FROM pg_stat_activity")
            dump += "".join(row[0] or "" for row in active)
            every = {name: list(await connection.fetch(f"SELECT * FROM {name}")) for name in metadata.tables}
            await connection.execute("CHECKPOINT")
            return every, dump.encode()
        finally:
            await connection.close()
    finally:
        await asyncio.wait_for(postgres.stop(), 30)


async def test_no_canary_is_in_the_database(aftermath: Aftermath) -> None:
    """bytea is shown as hex there, which is one of the forms that are searched for."""
    assert aftermath.canaries.found_in(aftermath.dump) == []


async def test_no_canary_is_in_any_file_of_the_data_directory(aftermath: Aftermath) -> None:
    """Tables, indexes, the write-ahead log, Postgres' own log."""
    names = {path.name for path in aftermath.files}
    assert {"root.key", "postgres.log", "PG_VERSION", "pg_control"} <= names
    assert any(path.parent.name == "pg_wal" for path in aftermath.files)
    for path, content in aftermath.files.items():
        assert aftermath.canaries.found_in(content) == [], path


async def test_no_canary_is_in_the_servers_output(aftermath: Aftermath) -> None:
    assert aftermath.output.count(b'"event": "call"') >= len(aftermath.answers)
    assert aftermath.canaries.found_in(aftermath.output) == []


async def test_no_canary_comes_back_in_a_refusal(aftermath: Aftermath) -> None:
    """What a caller logs of an error is no content either."""
    refused = {n: a for n, a in aftermath.answers.items() if a.code is not Code.OK}
    assert len(refused) > 20
    for name, answer in refused.items():
        assert aftermath.canaries.found_in(answer.text.encode()) == [], name


async def test_the_search_finds_what_is_there_in_plaintext(aftermath: Aftermath) -> None:
    control = aftermath.control.encode()
    assert control in aftermath.dump
    places = {path.parent.name for path, content in aftermath.files.items() if control in content}
    assert "pg_wal" in places
    assert len(places) >= 2  # and the table
    canaries = Canaries()
    word = canaries.new("here")
    for before in ("", "x", "xy", "xyz"):
        text = f"{before}{word} and more".encode()
        for form in (text, text.upper(), text.hex().encode(), base64.b64encode(text)):
            assert canaries.found_in(b"\0\1" + form + b"\2") == ["here"]
        assert canaries.found_in(text.decode().encode("utf-16")) == ["here"]
    assert canaries.found_in(b"nothing") == []


async def test_every_text_of_an_implemented_request_had_a_canary_and_was_taken(aftermath: Aftermath) -> None:
    implemented = {name for name in aftermath.answers if name in BY_NAME}
    assert {"CreateConversation", "AppendItems", "CreateApiKey", "UpdateConversation"} <= implemented
    placed = " ".join(aftermath.canaries.where.values())
    for name in implemented:
        answer = aftermath.answers[name]
        ends = {Code.DEADLINE_EXCEEDED} if name in ENDLESS else set()
        assert answer.code in {Code.OK, Code.NOT_FOUND, Code.FAILED_PRECONDITION} | ends, (name, answer)
        for path in fields(BY_NAME[name].input_type):
            if _holds_text(path.field):
                assert f"{name}.{path.name}" in placed
    for name in (
        "CreateConversation",
        "AppendItems",
        "CreateApiKey",
        "UpdateConversation",
        "ForkConversation",
        "CreateBlock",
        "WriteScratchpad",
        *(f"{name} kept" for name in ("GetBlock", "UpdateBlock", "ListBlockRevisions", "RestoreBlock")),
        *(f"{name} kept" for name in ("GetMemory", "UpdateMemory", "ListMemories", "SearchMemories")),
        *(f"IngestDocument{note}" for note in (" text", " markdown", " html", " html again")),
        "BatchInsertMemories",
        "BatchSearchMemories",
        "EmbedText",
        "DeleteMemories by tag",
        "AppendItems said",
        *(f"{name}{note}" for name in ("CreateAgent", "UpdateAgent", "FindAgents") for note in ("", " kept")),
        *(f"{name} kept{note}" for name in ("Chat", "Respond") for note in ("", " failed", " refused")),
        "PreviewContext kept",
        "SummarizeConversation kept",
    ):
        assert aftermath.answers[name].code is Code.OK, name


EMPTY_AFTERWARDS = {
    "documents.content_enc",  # the text of a document while it is taken in
    "memories.vector_1_enc",  # vectors of another model, while memories are embedded again
}


async def test_every_sealed_column_was_written_to(aftermath: Aftermath) -> None:
    """A new sealed column without a canary in it fails here."""
    for table in sealed_tables():
        for column in sealed_columns(table):
            if f"{table.name}.{column.name}" in EMPTY_AFTERWARDS:
                continue
            cells = [row[column.name] for row in aftermath.rows[table.name] if row[column.name] is not None]
            # More than a header, a nonce, a tag and the shortest JSON.
            assert any(len(cell) > 33 + 24 for cell in cells), f"{table.name}.{column.name}"


async def test_every_column_that_could_hold_text_is_sealed_or_known(aftermath: Aftermath) -> None:
    """What stays plaintext is ids, times, kinds, statuses, counts, names of models: listed here."""
    known = {
        "users.tenant",
        "users.external_id",
        "user_keys.root_key_id",
        "user_keys.wrapped_key",
        "api_keys.tenant",
        "api_keys.prefix",
        "api_keys.secret_hash",
        "replicas.version",
        "usage_records.model",
        "heads.embedding_model",
        "memories.model_0",
        "memories.model_1",
        "documents.media_type",
        "documents.failure",  # the name of a reason
        "turns.error_reason",  # the name of one
        "flags.tenant",
        "flags.name",  # one that the code knows
    }
    for table in metadata.sorted_tables:
        sealed = {column.name for column in (*sealed_columns(table), *label_columns(table))}
        for column in table.columns:
            kind = column.type.python_type
            if kind in (str, bytes) and column.name not in sealed:
                assert f"{table.name}.{column.name}" in known
