"""How turns end that do not run to their end where they began: by a cancel, a switch, another server."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID, uuid4

import asyncpg
import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    CancelCause,
    FlagScope,
    OnBusy,
    TurnMessage,
    TurnStatus,
)
from sage_server.domain.events import ENDS, KIND_OF, EventKind
from support.agents import Call, answer, heard, plain
from support.provider import chat_reply, hang
from support.turn_checks import everything_told_is_there, nothing_happened_twice
from support.turn_replicas import Replicas, begun, cancelled, child, done, said, stuck, two_replicas
from support.turn_story import Story, Witness


@pytest.fixture
async def patient(dsn: str) -> AsyncIterator[Replicas]:
    """Replicas that renew no lease while a test looks."""
    async with two_replicas(dsn, turn_lease=600) as both:
        yield both


@pytest.fixture
async def replicas(dsn: str) -> AsyncIterator[Replicas]:
    async with two_replicas(dsn) as both:
        yield both


async def ends(dsn: str, turn_id: str) -> list[int]:
    """How a turn ended, as it is stored: a stream stops at the first end."""
    database = await asyncpg.connect(dsn)
    try:
        kinds = [int(KIND_OF[end]) for end in ENDS]
        rows = await database.fetch(
            "SELECT kind FROM events WHERE turn_id = $1 AND kind = ANY($2)", UUID(turn_id), kinds
        )
    finally:
        await database.close()
    return [row["kind"] for row in rows]


async def test_a_cancel_is_a_cancel_on_any_replica(replicas: Replicas) -> None:
    replicas.provider.script_chat(
        chat_reply(answer("One.", calls=[("memory_append", {"label": "human", "text": "Kept."})])),
        hang,
        chat_reply(answer("Three.")),
    )
    chats = [replicas.here.agent("main").chat(text) for text in ("One", "Two", "Three")]
    running, waiting, _ = [(await begun(chat)).turn_id for chat in chats]
    turn = await replicas.there.turns.cancel(waiting)
    assert (turn.status, turn.cancel_cause, turn.step) == (TurnStatus.CANCELLED, CancelCause.CALLER, 0)
    assert cancelled(await heard(chats[1])).cause is CancelCause.CALLER
    async for event in chats[0]:
        if isinstance(event, TurnMessage):
            break
    async with asyncio.timeout(10):
        while len(replicas.provider.chats) < 2:  # noqa: ASYNC110 (the provider has no event for the second)
            await asyncio.sleep(0.01)
    turn = await replicas.there.turns.cancel(running)
    assert (turn.status, turn.cancel_cause, turn.step) == (TurnStatus.CANCELLED, CancelCause.CALLER, 1)
    end = cancelled(await heard(chats[0]))
    assert (end.cause, end.step_count, end.message_count) == (CancelCause.CALLER, 1, 1)
    assert said(await heard(chats[2])) == ["Three."]
    async with asyncio.timeout(10):
        await replicas.provider.left.wait()
    assert (await replicas.here.memory.blocks.get("human")).value == "Kept."
    assert plain(await replicas.here.turns.cancel(running)) == plain(turn)
    numbers = [event.event_id for event in await heard(replicas.there.turns.attach(running))]
    assert numbers[-1] == turn.last_event_id


@pytest.mark.parametrize("interrupts", [False, True])
async def test_a_turn_that_ends_while_it_is_cancelled_has_one_end(
    patient: Replicas, interrupts: bool
) -> None:
    """Its last step is under way when it is cancelled."""
    goes_on = asyncio.Event()
    patient.provider.script_chat(chat_reply(answer("One."), hold=goes_on))
    chat = patient.here.agent("main").chat("One", store=False)
    turn_id = (await begun(chat)).turn_id
    await patient.provider.asked.wait()
    async with blocked(patient.dsn) as waiting:
        goes_on.set()
        await waiting(1)
        ending = asyncio.create_task(_end(patient, turn_id, interrupts=interrupts))
        await waiting(2)
    await ending
    assert await ends(patient.dsn, turn_id) == [EventKind.DONE]
    assert (await patient.here.turns.get(turn_id)).status is TurnStatus.DONE
    assert done(await heard(chat)).message_count == 1


@pytest.mark.parametrize("calls", [[], [("memory_append", {"label": "human", "text": "Too late."})]])
@pytest.mark.parametrize("interrupts", [False, True])
async def test_a_turn_that_is_cancelled_before_its_step_is_stored_stores_nothing(
    patient: Replicas, interrupts: bool, calls: list[Call]
) -> None:
    """Its cancellation is under way when the model answers."""
    goes_on = asyncio.Event()
    patient.provider.script_chat(chat_reply(answer("One.", calls=calls), hold=goes_on))
    chat = patient.here.agent("main").chat("One", store=False)
    turn_id = (await begun(chat)).turn_id
    await patient.provider.asked.wait()
    async with blocked(patient.dsn) as waiting:
        ending = asyncio.create_task(_end(patient, turn_id, interrupts=interrupts))
        await waiting(1)
        goes_on.set()
        await waiting(2)
    await ending
    assert cancelled(await heard(chat)).step_count == 0
    assert await ends(patient.dsn, turn_id) == [EventKind.CANCELLED]
    turn = await patient.here.turns.get(turn_id)
    assert (turn.status, turn.step) == (TurnStatus.CANCELLED, 0)
    assert "One." not in [item.text async for item in patient.here.agent("main").items()]
    assert (await patient.here.memory.blocks.get("human")).value == ""


async def _end(replicas: Replicas, turn_id: str, *, interrupts: bool) -> None:
    if interrupts:
        replicas.provider.script_chat(chat_reply(answer("Two.")))
        chat = replicas.there.agent("main").chat("Two", on_busy=OnBusy.INTERRUPT)
        assert await chat.text() == "Two."
    else:
        await replicas.there.turns.cancel(turn_id)


@asynccontextmanager
async def blocked(dsn: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Nothing that tells an event gets further, until the block ends. Gives what waits until so many are
    stuck; messages that are not stored for recall make nothing else get stuck."""
    database = await asyncpg.connect(dsn)
    try:
        async with database.transaction():
            await database.execute("SELECT 1 FROM heads FOR UPDATE")
            yield partial(stuck, database)
    finally:
        await database.close()


async def test_deleting_an_agent_ends_its_turns(replicas: Replicas) -> None:
    replicas.provider.script_chat(hang)
    await replicas.here.agents.create("cook", description="Cooks.")
    chats = [replicas.here.agent("cook").chat(text) for text in ("One", "Two")]
    for chat in chats:
        await begun(chat)
    await replicas.provider.asked.wait()
    await replicas.there.agents.delete("cook")
    for chat in chats:
        assert cancelled(await heard(chat)).cause is CancelCause.DELETED
    async with asyncio.timeout(10):
        await replicas.provider.left.wait()


async def test_the_kill_switch_ends_turns_at_their_next_step_and_lets_no_new_ones_in(
    replicas: Replicas,
) -> None:
    goes_on = asyncio.Event()
    replicas.provider.script_chat(
        chat_reply(answer("One.", calls=[("scratchpad_read", {})]), hold=goes_on),
        chat_reply(answer("Again.")),
    )
    request_id = str(uuid4())
    running = replicas.here.agent("main").chat("One", request_id=request_id)
    waiting = replicas.there.agent("main").chat("Two")
    for chat in (running, waiting):
        await begun(chat)
    await replicas.here.admin.set_flag("turns", FlagScope.GLOBAL, enabled=False)
    async with asyncio.timeout(20):
        for client in (replicas.here, replicas.there):
            assert await _refused(client) == "FEATURE_DISABLED"
    goes_on.set()
    end = cancelled(await heard(running))
    assert (end.cause, end.step_count, end.message_count) == (CancelCause.OPERATOR, 1, 1)
    assert cancelled(await heard(waiting)).cause is CancelCause.OPERATOR
    again = await heard(replicas.there.agent("main").chat("One", request_id=request_id))
    assert cancelled(again) == plain(end)
    await replicas.there.admin.clear_flag("turns", FlagScope.GLOBAL)
    async with asyncio.timeout(20):
        while True:
            try:
                assert await replicas.here.agent("main").chat("Three").text() == "Again."
            except sage_client.FailedPrecondition:
                await asyncio.sleep(0.05)
            else:
                break


async def _refused(client: AsyncSageClient) -> str | None:
    """Wait until the replica refuses turns, and say why it does."""
    while True:
        try:
            async with client.agent("main").chat("New", on_busy=OnBusy.REJECT) as chat:
                await begun(chat)
        except sage_client.FailedPrecondition as error:
            return error.reason
        except sage_client.Aborted:  # the replica does not know yet
            await asyncio.sleep(0.05)


async def test_a_server_that_stops_lets_its_turns_finish(replicas: Replicas) -> None:
    goes_on = asyncio.Event()
    replicas.provider.script_chat(
        chat_reply(answer("One.", calls=[("scratchpad_read", {})]), hold=goes_on), chat_reply(answer("Two."))
    )
    async with child(replicas, drain=20) as (server, client):
        chat = client.agent("main").chat("Hi")
        accepted = await begun(chat)
        await replicas.provider.asked.wait()
        server.send(signal.SIGTERM)
        async with asyncio.timeout(20):
            while not await _stopping(client):  # noqa: ASYNC110 (another process does it)
                await asyncio.sleep(0.02)
        goes_on.set()
        stream = [accepted, *await heard(chat)]
        assert said(stream) == ["One.", "Two."]
        assert await server.ended() == 0
    assert len(replicas.provider.chats) == 2
    assert await heard(replicas.here.turns.attach(accepted.turn_id)) == stream


async def _stopping(client: AsyncSageClient) -> bool:
    try:
        await client.turns.get(str(uuid4()))
    except sage_client.Unavailable as error:
        return error.reason == "SHUTTING_DOWN"
    except sage_client.NotFound:
        return False
    raise AssertionError("there is no such turn")


async def test_a_server_that_stops_hands_over_what_does_not_finish_in_time(replicas: Replicas) -> None:
    """At once, not when the lease runs out."""
    replicas.provider.script_chat(hang, chat_reply(answer("Here I am.")))
    async with child(replicas, drain=0.3, turn_lease=600) as (server, client):
        chat = client.agent("main").chat("Hi")
        accepted = await begun(chat)
        await replicas.provider.asked.wait()
        server.send(signal.SIGTERM)
        with pytest.raises(sage_client.Unavailable) as refused:
            await heard(chat)
        assert refused.value.reason == "SHUTTING_DOWN"
        assert await server.ended() == 0
    stream = await heard(replicas.here.turns.attach(accepted.turn_id))
    assert stream[0] == accepted
    assert said(stream) == ["Here I am."]


async def test_a_frozen_server_that_wakes_up_after_its_lease_changes_nothing(replicas: Replicas) -> None:
    witness = Witness(Story.SLOW, replicas.provider)
    async with child(replicas, log_level="info") as (server, client):
        first = witness.send(client, 0)
        told = [plain(await begun(first))]
        async with asyncio.timeout(20):
            await witness.waited_for.wait()
        server.send(signal.SIGSTOP)
        try:
            witness.waited_for.clear()
            async with asyncio.timeout(20):
                await witness.waited_for.wait()  # another replica asks
            witness.goes_on.set()
            witness.told[0].extend(told)
            turns = await everything_told_is_there(replicas.here, witness)
            before = await _stored(replicas.dsn)
        finally:
            server.send(signal.SIGCONT)
        async with asyncio.timeout(20):
            while not any("in other hands" in line for line in server.lines):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await _stored(replicas.dsn) == before
        await nothing_happened_twice(replicas.here, replicas.dsn, turns)
        server.send(signal.SIGTERM)
        assert await server.ended() == 0
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert not [line for line in lines if line["level"] in ("error", "warning")]
    assert not [line for line in server.lines if "Maria" in line]


async def _stored(dsn: str) -> list[object]:
    database = await asyncpg.connect(dsn)
    try:
        tables = ("events", "items", "memory_blocks", "block_revisions", "turns", "usage_records")
        return [
            [tuple(row) for row in await database.fetch(f"SELECT * FROM {table} ORDER BY 1, 2, 3")]
            for table in tables
        ]
    finally:
        await database.close()
