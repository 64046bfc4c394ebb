"""A thread of 2,000 messages in a small window: nothing is too long, and nothing is lost."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from sage_client import (
    CompactionMode,
    CompactionSettings,
    MemorySource,
    NewItem,
    SearchQuery,
    TurnCompaction,
    TurnDone,
    TurnEvent,
)
from support.agents import Call, Stage, answer, heard, is_summary, only, prompt_of, prompt_tokens, stage
from support.agents import summaries as summaries_of
from support.memory import indexed
from support.provider import ProviderRequest, Step, chat_reply

MESSAGES = 2_000
WINDOW = 8_000


def word(number: int) -> str:
    """A word that one message has and no other."""
    return f"w{number:04d}q"


def said(number: int) -> str:
    length = Random(number).randrange(3, 40)
    return f"Note {word(number)}: " + "of beans, tea and the garden " * (length // 6) + "and so on."


class Talkative:
    """A model that searches now and then, and numbers its summaries."""

    def __init__(self) -> None:
        self.summaries = 0

    def __call__(self, request: ProviderRequest) -> Step:
        if is_summary(request):
            self.summaries += 1
            return chat_reply(f"Summary summed{self.summaries}up of beans, tea and the garden.")
        now = prompt_of(request)[1].rpartition("Now:\n")[2]
        search: Call = ("conversation_search", {"query": "beans and tea", "limit": 50})
        if "look" in now and "tool_output" not in now:
            return chat_reply(answer(calls=[search]))
        return chat_reply(answer("I see."))


def compacted(events: list[TurnEvent]) -> list[TurnCompaction]:
    """Of events of turns: each tells what it did."""
    told = only(events, TurnCompaction)
    for one in told:
        assert one.applied
        assert one.reason is None
        assert one.message_count > 0
    turns = {one.turn_id: one for one in told}
    for last in turns.values():  # those before it may know only a part of a long thread
        assert last.tokens_after < last.tokens_before
    for before, after in pairwise(told):
        assert after.from_seq == before.to_seq + 1
    return told


def by_word(text: str, source: MemorySource) -> SearchQuery:
    return SearchQuery(text, sources=[source], top_k=1, text_weight=1.0, vector_weight=0.0)


async def messages_are_found(s: Stage, count: int) -> None:
    """By their own words."""
    chosen = Random(1).sample(range(MESSAGES), count)
    for start in range(0, count, 25):
        some = chosen[start : start + 25]
        queries = [by_word(word(n), MemorySource.MESSAGE) for n in some]
        for number, results in zip(some, await s.client.memory.search_many(queries), strict=True):
            assert [one.memory.text for one in results.results] == [said(number)]


@pytest.mark.timeout(300)
async def test_two_thousand_messages_never_exceed_the_window_and_all_are_still_found(dsn: str) -> None:
    async with stage(dsn, llm_summary_model="cheap") as s:
        s.provider.chat = model = Talkative()
        await s.client.agents.update("main", max_context_tokens=WINDOW)
        thread = await s.client.conversations.create("Long")
        for start in range(0, MESSAGES, 500):
            some = [NewItem.user(said(n)) for n in range(start, start + 500)]
            await s.client.conversations.append(thread.id, some)
        events: list[TurnEvent] = []
        for text in ("Hello.", "Please look it up.", "And look again.", "Thanks." * 200, "Bye."):
            events += await heard(s.client.conversations.continue_(thread.id).respond(text))
        assert len(only(events, TurnDone)) == 5

        sizes = [prompt_tokens(request) for request in s.provider.chats]
        assert max(sizes) <= WINDOW
        models = {(is_summary(request), request.body["model"]) for request in s.provider.chats}
        assert models == {(True, "cheap"), (False, "test-model")}

        told = compacted(events)
        chain = await summaries_of(s.client, thread.id)
        assert [one.summary_id for one in told] == [one.id for one in chain]
        assert [(one.from_seq, one.to_seq) for one in told] == [(one.from_seq, one.to_seq) for one in chain]
        assert (chain[0].from_seq, model.summaries) == (1, len(chain))
        assert sum(one.message_count for one in chain) == chain[-1].to_seq > MESSAGES * 0.8

        await indexed(s.client)
        await messages_are_found(s, 200)
        by_words = [by_word(f"summed{n}up", MemorySource.SUMMARY) for n in range(1, len(chain) + 1)]
        found = [results.results[0].memory.id for results in await s.client.memory.search_many(by_words)]
        assert found == [one.id for one in chain]
        texts = [item.text async for item in s.client.conversations.items(thread.id, page_size=200)]
        assert texts[:MESSAGES] == [said(n) for n in range(MESSAGES)]


async def test_an_agents_own_endless_thread_never_exceeds_the_window(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        s.provider.chat = Talkative()
        await s.client.agents.update("main", max_context_tokens=4_000)
        events: list[TurnEvent] = []
        for number in range(40):
            look = "look " if number % 7 == 6 else ""
            text = f"{look}{word(number)} " + "many words of one message " * (number % 30)
            events += await heard(s.client.agent("main").chat(text))
        assert len(only(events, TurnDone)) == 40
        assert max(map(prompt_tokens, s.provider.chats)) <= 4_000
        told = compacted(events)
        assert len(told) > 2
        assert told[0].from_seq == 1
        last = [request for request in s.provider.chats if not is_summary(request)][-1]
        assert "Summary of what was said before that:" in prompt_of(last)[0]
        assert f"summed{len(told)}up" in prompt_of(last)[0]


async def test_messages_are_counted_where_the_agent_wants_it(dsn: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        s.provider.chat = Talkative()
        rules = CompactionSettings(mode=CompactionMode.MESSAGES, message_threshold=6, keep_newest=2)
        await s.client.agents.update("main", compaction=rules)
        by_turn = [
            only(await heard(s.client.agent("main").chat(f"Message {n}.")), TurnCompaction) for n in range(6)
        ]
        assert [len(told) for told in by_turn] == [0, 0, 0, 1, 0, 0]
        (told,) = by_turn[3]
        assert (told.applied, told.from_seq, told.to_seq, told.message_count) == (True, 1, 5, 5)
        shown = prompt_of(s.provider.chats[-3])[1].splitlines()
        assert [line.rpartition('"text": ')[2] for line in shown if line.startswith("{")] == [
            '"I see."}',
            '"Message 3."}',
        ]
