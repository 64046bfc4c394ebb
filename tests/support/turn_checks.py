"""What must be there after a server died in the middle of turns, whichever point it died at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise

import asyncpg

from sage_client import (
    AsyncSageClient,
    ToolOutcome,
    Turn,
    TurnAccepted,
    TurnCancelled,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnMessage,
    TurnToolCall,
    TurnToolResult,
)
from sage_server.domain.usage import UsagePurpose
from support.agents import heard
from support.memory import indexed, listed
from support.turn_story import EARLIER, FACT, LINE, PROMPT_TOKENS, Story, Witness

_ENDS = TurnDone | TurnFailed | TurnCancelled


async def everything_told_is_there(client: AsyncSageClient, witness: Witness) -> list[list[TurnEvent]]:
    """What was accepted ends by itself, and the messages sent again are the same turns. The events of all
    turns, the oldest turn first."""
    for told in filter(None, witness.told):
        shown = await heard(client.turns.attach(told[0].turn_id))
        assert shown[: len(told)] == told
    while any(turn.end_time is None for turn in await _turns(client)):  # noqa: ASYNC110 (nobody was told)
        await asyncio.sleep(0.05)
    sent = [await heard(witness.send(client, number)) for number in (0, 1)]
    turns = [await heard(client.turns.attach(turn.id)) for turn in reversed(await _turns(client))]
    assert len(turns) == 2 + (len(EARLIER) if witness.story is Story.COMPACTED else 0)
    assert turns[-2:] == sent
    for told, shown in zip(witness.told, sent, strict=True):
        assert shown[: len(told)] == told
    for shown in turns:
        assert isinstance(shown[0], TurnAccepted)
        assert [event for event in shown if isinstance(event, _ENDS)] == shown[-1:]
    return turns


async def nothing_happened_twice(
    client: AsyncSageClient, dsn: str, turns: Sequence[Sequence[TurnEvent]]
) -> None:
    """Memory, items and costs are what the events tell of, each once."""
    events = [event for shown in turns for event in shown]
    database = await asyncpg.connect(dsn)
    try:
        await _numbers_have_no_gaps(database, events)
        await _items_are_those_told(client, events)
        await _effects_are_those_told(client, database, events)
        await _costs_are_those_of_the_steps(client, database)
        await _summaries_are_a_chain(database)
    finally:
        await database.close()


async def _numbers_have_no_gaps(database: asyncpg.Connection, events: Sequence[TurnEvent]) -> None:
    numbers = sorted(event.event_id for event in events)
    assert numbers == list(range(1, len(numbers) + 1))
    assert [row["seq"] for row in await database.fetch("SELECT seq FROM events ORDER BY seq")] == numbers
    assert await database.fetchval("SELECT max(last_event) FROM heads") == len(numbers)


async def _items_are_those_told(client: AsyncSageClient, events: Iterable[TurnEvent]) -> None:
    items = [item async for item in client.agent("main").items(show_hidden=True)]
    assert [item.seq for item in items] == list(range(1, len(items) + 1))
    assert sorted(item.id for item in items) == sorted(one for event in events for one in _items(event))
    assert (await client.agents.get()).message_count == len(items)


async def _effects_are_those_told(
    client: AsyncSageClient, database: asyncpg.Connection, events: Iterable[TurnEvent]
) -> None:
    results = [event for event in events if isinstance(event, TurnToolResult)]
    done = [result.name for result in results if result.outcome is ToolOutcome.OK]
    assert len(set(done)) == len(done) == len(results)
    appended = "memory_append" in done
    assert (await client.memory.blocks.get("human")).value == (LINE if appended else "")
    assert len([one async for one in client.memory.blocks.revisions("human")]) == 1 + appended
    await indexed(client)
    remembered = [memory.text for memory in await listed(client)]
    assert len(set(remembered)) == len(remembered)
    assert (FACT in remembered) == ("archival_insert" in done)
    assert await database.fetchval("SELECT count(*) FROM scratchpads WHERE version = 1") == (
        "scratchpad_write" in done
    )
    assert await database.fetchval("SELECT count(*) FROM scratchpads WHERE version > 1") == 0


async def _costs_are_those_of_the_steps(client: AsyncSageClient, database: asyncpg.Connection) -> None:
    """A call whose answer was lost is not among them."""
    steps = sum(turn.step for turn in await _turns(client))
    spent = await database.fetch(
        "SELECT sum(calls) AS calls, sum(prompt_tokens) AS tokens FROM usage_records WHERE purpose = $1",
        UsagePurpose.STEP,
    )
    assert [(row["calls"], row["tokens"]) for row in spent] == [(steps, steps * PROMPT_TOKENS)]


async def _summaries_are_a_chain(database: asyncpg.Connection) -> None:
    rows = await database.fetch("SELECT * FROM conversation_summaries ORDER BY epoch")
    assert [row["epoch"] for row in rows] == list(range(1, len(rows) + 1))
    for earlier, later in pairwise(rows):
        assert later["previous_id"] == earlier["id"]
        assert later["to_seq"] > earlier["to_seq"]


def _items(event: TurnEvent) -> list[str]:
    """The items that an event tells of."""
    if isinstance(event, TurnAccepted):
        return [] if event.input is None else [event.input.id]
    if isinstance(event, TurnMessage):
        return [event.item.id]
    return [event.item_id] if isinstance(event, TurnToolCall | TurnToolResult) else []


async def _turns(client: AsyncSageClient) -> list[Turn]:
    return [turn async for turn in client.turns.list()]
