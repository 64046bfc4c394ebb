"""ListSummaries and SummarizeConversation, and what conversations show of summaries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import uuid4

import grpc
import pytest

import sage_client
from sage.v1 import usage_pb2
from sage_client import AsyncSageClient, FlagScope, MemorySource, NewItem
from support.contract import BY_NAME, Answer, call, request_of, response_of
from support.memory import found, indexed, said
from support.postgres import TestPostgres
from support.provider import FakeProvider, chat_reply, error_reply
from support.server import RunningServer, running_server

Code = grpc.StatusCode


@dataclass(frozen=True)
class Caller:
    """A user of a server, and the provider that it asks."""

    client: AsyncSageClient
    channel: grpc.aio.Channel
    server: RunningServer
    provider: FakeProvider

    async def call(self, name: str, conversation_id: str, **fields: Any) -> Answer:
        request = request_of(BY_NAME[name])
        request.conversation_id = conversation_id
        for field, value in fields.items():
            setattr(request, field, value)
        return await call(self.channel, BY_NAME[name], request, self.client.options.metadata())

    async def summarize(self, conversation_id: str, *answers: str, **fields: Any) -> Any:
        """The response, if the model says these."""
        self.provider.script_chat(*map(chat_reply, answers))
        answer = await self.call("SummarizeConversation", conversation_id, **fields)
        return response_of(BY_NAME["SummarizeConversation"], answer)

    async def summaries(self, conversation_id: str, **fields: Any) -> Any:
        answer = await self.call("ListSummaries", conversation_id, **fields)
        return response_of(BY_NAME["ListSummaries"], answer)

    async def thread(self, count: int, **options: Any) -> str:
        thread = await self.client.conversations.create("Thread", **options)
        for start in range(0, count, 500):
            some = [NewItem.user(f"word {n}") for n in range(start, min(start + 500, count))]
            await self.client.conversations.append(thread.id, some)
        return thread.id


@dataclass(frozen=True)
class Shared:
    """One server for all: each test has a user of its own."""

    server: RunningServer
    provider: FakeProvider


@pytest.fixture(scope="module")
async def shared(postgres: TestPostgres) -> AsyncIterator[Shared]:
    async with (
        FakeProvider.running() as provider,
        postgres.database() as dsn,
        running_server(dsn, llm_base_url=provider.url, llm_model="small", llm_tries=1) as server,
    ):
        yield Shared(server, provider)


@asynccontextmanager
async def calling(server: RunningServer, provider: FakeProvider) -> AsyncIterator[Caller]:
    async with (
        sage_client.connect_async(server.address, user=f"user-{uuid4()}") as client,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield Caller(client, channel, server, provider)


@pytest.fixture
async def caller(shared: Shared) -> AsyncIterator[Caller]:
    async with calling(shared.server, shared.provider) as opened:
        yield opened


async def test_a_conversation_is_summarised_and_shows_it_everywhere(caller: Caller) -> None:
    thread = await caller.thread(16)
    before = await caller.client.conversations.get(thread)
    assert (before.summary, before.summarized_count) == ("", 0)
    done = await caller.summarize(thread, "They talked about words.")
    summary = done.summary
    assert done.applied
    assert (summary.text, summary.from_seq, summary.to_seq) == ("They talked about words.", 1, 4)
    assert (summary.message_count, summary.previous_id, summary.conversation_id) == (4, "", thread)
    assert summary.token_count > 0
    assert summary.HasField("create_time")
    mine = caller.client.conversations
    (listed,) = [one async for one in mine.list()]
    updated = await mine.update(thread, title="Words")
    deleted = await mine.delete(thread)
    (gone,) = [one async for one in mine.list(deleted_only=True)]
    restored = await mine.undelete(thread)
    for shown in (await mine.get(thread), listed, updated, deleted, gone, restored):
        assert (shown.summary, shown.summarized_count) == (summary.text, 4)
    assert listed.etag == before.etag
    fork = await mine.fork(thread)
    assert (fork.summary, (await mine.get(fork.id)).summarized_count) == ("", 0)


async def test_summaries_are_listed_the_newest_first_in_pages(caller: Caller) -> None:
    thread, other = await caller.thread(4), await caller.thread(4)
    made = []
    for n in range(3):
        await caller.client.conversations.append(thread, [NewItem.user(f"more {i}") for i in range(4)])
        made.append((await caller.summarize(thread, f"Summary {n}.", keep_newest=0)).summary)
    assert list((await caller.summaries(thread)).summaries) == made[::-1]
    for earlier, later in pairwise(made):
        assert (later.previous_id, later.from_seq) == (earlier.id, earlier.to_seq + 1)
    assert (await caller.client.conversations.get(thread)).summarized_count == 16
    page = await caller.summaries(thread, page_size=2)
    rest = await caller.summaries(thread, page_size=1, page_token=page.next_page_token)
    assert [*page.summaries, *rest.summaries] == made[::-1]
    assert rest.next_page_token == ""
    foreign = await caller.call("ListSummaries", other, page_token=page.next_page_token)
    assert (foreign.code, foreign.reason) == (Code.INVALID_ARGUMENT, "ERROR_REASON_INVALID_PAGE_TOKEN")
    assert (await caller.summaries(other)).summaries == []


async def test_the_newest_are_left_out_twelve_if_nothing_is_said(caller: Caller) -> None:
    assert (await caller.summarize(await caller.thread(20), "A.")).summary.to_seq == 8
    assert (await caller.summarize(await caller.thread(20), "A.", keep_newest=15)).summary.to_seq == 5
    assert (await caller.summarize(await caller.thread(20), "A.", keep_newest=0)).summary.to_seq == 20


async def test_if_there_is_nothing_to_summarise_no_model_is_asked(caller: Caller) -> None:
    for thread in (await caller.thread(0), await caller.thread(12)):
        done = await caller.summarize(thread)
        assert (done.applied, done.HasField("summary")) == (False, False)
    few = await caller.thread(3)
    assert not (await caller.summarize(few, keep_newest=0)).applied
    thread = await caller.thread(16)
    first = await caller.summarize(thread, "A summary.")
    again = await caller.summarize(thread)
    assert (again.applied, again.summary) == (False, first.summary)
    assert len((await caller.summaries(thread)).summaries) == 1


async def test_a_long_thread_is_covered_by_a_chain_without_gaps(caller: Caller) -> None:
    thread = await caller.thread(1100, private=True)
    caller.provider.script_chat(*(chat_reply(f"Summary {n}.") for n in range(3)))
    done = await caller.summarize(thread, request_id=str(uuid4()))
    chain = list((await caller.summaries(thread)).summaries)[::-1]
    assert (done.applied, done.summary) == (True, chain[-1])
    assert [one.text for one in chain] == ["Summary 0.", "Summary 1.", "Summary 2."]
    assert (chain[0].from_seq, chain[-1].to_seq) == (1, 1088)
    for earlier, later in pairwise(chain):
        assert (later.previous_id, later.from_seq) == (earlier.id, earlier.to_seq + 1)
    told = [
        json.loads(line)["text"]
        for request in caller.provider.chats[-3:]
        for line in request.body["messages"][-1]["content"].splitlines()
        if "summary_of_what_came_before" not in line
    ]
    assert told == [f"word {n}" for n in range(1088)]
    assert (await caller.client.conversations.get(thread)).summarized_count == 1088


async def test_a_long_thread_is_not_cut_between_a_call_and_its_output(caller: Caller) -> None:
    """Wherever the pages end in which it is read."""
    thread = await caller.thread(480, private=True)
    later = [NewItem.user(f"later {n}") for n in range(40)]
    later[0], later[30] = NewItem.tool_call("c", "tool", "{}"), NewItem.tool_output("c", "tool", "done")
    await caller.client.conversations.append(thread, later)
    await caller.summarize(thread, "Summary 0.", "Summary 1.", keep_newest=0)
    ends = [one.to_seq for one in (await caller.summaries(thread)).summaries]
    assert ends[0] == 520
    assert not [end for end in ends if 481 <= end < 511]


async def test_a_request_id_is_one_summary_and_one_call_of_the_model(caller: Caller) -> None:
    thread, once = await caller.thread(16), str(uuid4())
    first = await caller.summarize(thread, "A summary.", request_id=once)
    await caller.client.conversations.append(thread, [NewItem.user(f"more {n}") for n in range(8)])
    assert await caller.summarize(thread, request_id=once) == first
    await caller.client.conversations.delete(thread)
    assert await caller.summarize(thread, request_id=once) == first
    await caller.client.conversations.undelete(thread)
    reused = await caller.call("SummarizeConversation", thread, request_id=once, keep_newest=3)
    assert (reused.code, reused.reason) == (Code.INVALID_ARGUMENT, "ERROR_REASON_REQUEST_ID_REUSED")
    assert len((await caller.summaries(thread)).summaries) == 1


async def test_the_answer_that_there_was_nothing_is_kept_as_well(caller: Caller) -> None:
    thread, once = await caller.thread(2), str(uuid4())
    first = await caller.summarize(thread, request_id=once)
    assert not first.applied
    await caller.client.conversations.append(thread, [NewItem.user(f"more {n}") for n in range(20)])
    assert await caller.summarize(thread, request_id=once) == first
    assert (await caller.summarize(thread, "A summary.", request_id=str(uuid4()))).applied


async def test_a_request_id_sent_twice_at_once_is_answered_alike(caller: Caller) -> None:
    thread, once, release = await caller.thread(16), str(uuid4()), asyncio.Event()
    asked = len(caller.provider.chats)
    caller.provider.script_chat(*(chat_reply(f"Summary {n}.", hold=release) for n in range(2)))
    both = [asyncio.create_task(caller.summarize(thread, request_id=once)) for _ in range(2)]
    async with asyncio.timeout(20):
        while len(caller.provider.chats) < asked + 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    release.set()
    first, second = await asyncio.gather(*both)
    assert first == second
    assert first.applied
    assert list((await caller.summaries(thread)).summaries) == [first.summary]


async def test_a_summary_written_by_another_call_meanwhile_wins(caller: Caller) -> None:
    thread, release = await caller.thread(16), asyncio.Event()
    asked = len(caller.provider.chats)
    caller.provider.script_chat(chat_reply("Slow.", hold=release))
    slow = asyncio.create_task(caller.summarize(thread, request_id=str(uuid4())))
    async with asyncio.timeout(20):
        while len(caller.provider.chats) == asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    fast = await caller.summarize(thread, "Fast.")
    release.set()
    lost = await slow
    assert (fast.applied, lost.applied, lost.summary) == (True, False, fast.summary)
    assert list((await caller.summaries(thread)).summaries) == [fast.summary]


async def test_a_model_that_fails_is_a_status_and_the_old_summary_stays(caller: Caller) -> None:
    thread, once = await caller.thread(16), str(uuid4())
    first = await caller.summarize(thread, "A summary.")
    await caller.client.conversations.append(thread, [NewItem.user(f"more {n}") for n in range(8)])
    for step, code, reason in (
        (error_reply(503), Code.UNAVAILABLE, "MODEL_UNAVAILABLE"),
        (error_reply(429), Code.RESOURCE_EXHAUSTED, "MODEL_RATE_LIMITED"),
        (chat_reply(" \n "), Code.FAILED_PRECONDITION, "MODEL_OUTPUT_EMPTY"),
    ):
        caller.provider.script_chat(step)
        answer = await caller.call("SummarizeConversation", thread, request_id=once)
        assert (answer.code, answer.reason) == (code, f"ERROR_REASON_{reason}")
        assert "word" not in answer.text
    assert list((await caller.summaries(thread)).summaries) == [first.summary]
    later = await caller.summarize(thread, "Better.", request_id=once)
    assert (later.applied, later.summary.previous_id) == (True, first.summary.id)


async def test_without_a_model_nothing_is_summarised(dsn: str) -> None:
    async with (
        FakeProvider.running() as provider,
        running_server(dsn, offline_model=False) as server,
        calling(server, provider) as caller,
    ):
        answer = await caller.call("SummarizeConversation", await caller.thread(16))
        assert (answer.code, answer.reason) == (
            Code.FAILED_PRECONDITION,
            "ERROR_REASON_MODEL_NOT_CONFIGURED",
        )


async def test_a_flag_switches_it_off(caller: Caller) -> None:
    thread = await caller.thread(16)
    user = caller.client.options.user or ""
    await caller.client.admin.set_flag("compaction", FlagScope.USER, external_id=user, enabled=False)
    await caller.server.application.flags.cache.refresh()
    answer = await caller.call("SummarizeConversation", thread)
    assert answer.reason == "ERROR_REASON_FEATURE_DISABLED"
    assert dict(answer.metadata)["flag"] == "compaction"
    assert (await caller.summaries(thread)).summaries == []


async def test_a_deleted_conversation_is_not_summarised_and_keeps_its_summaries(caller: Caller) -> None:
    thread = await caller.thread(16)
    first = await caller.summarize(thread, "A summary.")
    await caller.client.conversations.delete(thread)
    answer = await caller.call("SummarizeConversation", thread, keep_newest=0)
    assert (answer.code, answer.reason) == (
        Code.FAILED_PRECONDITION,
        "ERROR_REASON_CONVERSATION_DELETED",
    )
    assert list((await caller.summaries(thread)).summaries) == [first.summary]


async def test_a_summary_is_found_by_search_and_what_it_cost_is_counted(caller: Caller) -> None:
    thread = await said(caller.client, *(f"word {n}" for n in range(5)))
    done = await caller.summarize(thread.id, "The piano was sold.", keep_newest=0)
    await indexed(caller.client)
    assert await found(caller.client, "piano", sources=[MemorySource.SUMMARY]) == [done.summary.text]
    request = request_of(BY_NAME["GetUsage"])
    request.purpose = usage_pb2.USAGE_PURPOSE_SUMMARY
    answer = await call(caller.channel, BY_NAME["GetUsage"], request, caller.client.options.metadata())
    (used,) = response_of(BY_NAME["GetUsage"], answer).records
    assert (used.model, used.calls) == ("openai/small", 1)
    assert (used.prompt_tokens, used.completion_tokens) == (7, 5)


async def test_a_summary_that_says_nothing_new_is_found_once_also_after_undeletion(caller: Caller) -> None:
    thread = await caller.thread(24)
    for keep, text in ((16, "Words."), (8, "Words."), (4, "More words.")):
        assert (await caller.summarize(thread, text, keep_newest=keep)).applied
    for _ in range(2):
        await indexed(caller.client)
        kept = [one.text async for one in caller.client.memory.list() if one.source is MemorySource.SUMMARY]
        assert sorted(kept) == ["More words.", "Words."]
        await caller.client.conversations.delete(thread)
        await caller.client.conversations.undelete(thread)
