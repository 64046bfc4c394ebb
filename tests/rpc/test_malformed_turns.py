"""Answers as models get them wrong, through whole turns: each ends well or with a reason, and leaves nothing
by halves."""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections import Counter
from dataclasses import dataclass, field

import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    ItemKind,
    MemoryFilter,
    MemorySource,
    ToolOutcome,
    TurnCompaction,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnMessage,
    TurnSilent,
    TurnToolCall,
    TurnToolResult,
)
from support.agents import answer, heard, is_summary, only, prompt_of, stage
from support.malformed import malformed_outputs
from support.memory import listed
from support.provider import Answering, ProviderRequest, chat_reply

COUNT = 1_000
USERS = 100
AT_ONCE = 16
REASONS = {"MODEL_OUTPUT_INVALID", "MODEL_OUTPUT_EMPTY", "CONTEXT_BUDGET_EXCEEDED"}


@dataclass
class Muddled:
    """A model that answers the nth message with the nth output, and then well. Of three corrections one is
    well, one is as muddled as what it corrects, one is muddled in its own way."""

    outputs: list[str]
    corrections: Counter[int] = field(default_factory=Counter)

    def __call__(self, request: ProviderRequest) -> Answering:
        system, said = prompt_of(request)
        if is_summary(request):
            return chat_reply("They talked.")
        if system.startswith("You repair"):
            return self._corrected(json.loads(said)["text"])
        now = [json.loads(line) for line in said.rpartition("Now:\n")[2].splitlines()]
        if len(now) > 1:
            return chat_reply(answer("That is all."))
        text = self.outputs[int(now[0]["text"])]
        return chat_reply(text, piece=max(8, len(text) // 40))

    def _corrected(self, raw: str) -> Answering:
        number = zlib.crc32(raw.encode())
        self.corrections[number % 3] += 1
        if number % 3 == 0:
            return chat_reply(answer("As I meant."))
        return chat_reply(raw if number % 3 == 1 else self.outputs[number % len(self.outputs)])


async def talk(client: AsyncSageClient, numbers: range) -> list[list[TurnEvent]]:
    await client.agent("main").enable()
    chat = client.agent("main").chat
    return [await heard(chat(str(number), deltas=number % 2 == 1)) for number in numbers]


async def nothing_is_half_done(client: AsyncSageClient, turns: list[list[TurnEvent]]) -> None:
    """What is stored is what was told, and the other way round."""
    told: list[str] = []
    for events in turns:
        messages = [message.item.id for message in only(events, TurnMessage)]
        calls = [call.item_id for call in only(events, TurnToolCall)]
        results = [result.item_id for result in only(events, TurnToolResult)]
        assert len(calls) == len(results)
        told += [*messages, *calls, *results, *(one.item_id for one in only(events, TurnSilent))]
    items = client.agent("main").items(show_hidden=True, page_size=200)
    stored = [item.id async for item in items if item.step and item.kind is not ItemKind.SYSTEM]
    assert sorted(told) == sorted(stored)
    every = [result for events in turns for result in only(events, TurnToolResult)]
    fine = [result for result in every if result.outcome is ToolOutcome.OK]
    kept = await listed(client, MemoryFilter(sources=[MemorySource.ARCHIVAL]))
    assert {result.memory_id for result in fine if result.memory_id} == {memory.id for memory in kept}
    changed = {result.turn_id for result in fine if result.name.startswith("memory_") and result.block_id}
    for label in ("human", "persona"):
        async for revision in client.memory.blocks.revisions(label):
            assert not revision.turn_id or revision.turn_id in changed


@pytest.mark.timeout(600)
async def test_a_thousand_malformed_answers_end_turns_well_or_with_a_reason(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="sage")
    async with stage(dsn, embedding="hash", llm_concurrency=64) as s:
        s.provider.chat = model = Muddled(malformed_outputs(COUNT, seed=4))
        room = asyncio.Semaphore(AT_ONCE)

        async def one(user: int) -> list[list[TurnEvent]]:
            async with room, sage_client.connect_async(s.server.address, user=f"user-{user}") as client:
                turns = await talk(client, range(user, COUNT, USERS))
                await nothing_is_half_done(client, turns)
                return turns

        turns = [turn for some in await asyncio.gather(*map(one, range(USERS))) for turn in some]
    assert len(turns) == COUNT
    ends = Counter(type(events[-1]) for events in turns)
    assert set(ends) == {TurnDone, TurnFailed}
    reasons = Counter(failed.reason for events in turns for failed in only(events, TurnFailed))
    assert set(reasons) <= REASONS
    assert reasons["MODEL_OUTPUT_INVALID"] > COUNT / 50
    assert ends[TurnDone] > COUNT / 3
    assert min(model.corrections[kind] for kind in range(3)) > COUNT / 100
    assert not [told for events in turns for told in only(events, TurnCompaction) if not told.applied]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
