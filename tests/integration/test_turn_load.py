"""Many turns that wait for a slow model: none holds a connection to the database, and all else goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median

import pytest

import sage_client
from sage_client import AsyncSageClient, TurnDone, TurnMessage, TurnTyping
from support.agents import answer, heard, only, stage
from support.memory import said
from support.provider import FakeProvider, ProviderReply, ProviderRequest, StreamedReply, chat_reply

CHATS = 200
CALLS = 100


class SlowModel:
    """Answers nobody before `goes_on`."""

    def __init__(self, provider: FakeProvider) -> None:
        self.goes_on, self.everybody_waits = asyncio.Event(), asyncio.Event()
        self.waiting = 0
        provider.chat = lambda _: self._answer

    async def _answer(self, request: ProviderRequest) -> ProviderReply | StreamedReply:
        self.waiting += 1
        if self.waiting == CHATS:
            self.everybody_waits.set()
        await self.goes_on.wait()
        return await chat_reply(answer("At last."))(request)


@asynccontextmanager
async def users(address: str) -> AsyncIterator[list[AsyncSageClient]]:
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(sage_client.connect_async(address, user=f"user-{n}"))
            for n in range(CHATS)
        ]
        for start in range(0, CHATS, 20):
            some = clients[start : start + 20]
            await asyncio.gather(*(client.agent("main").enable() for client in some))
        yield clients


async def timed_calls(client: AsyncSageClient, thread_id: str) -> list[float]:
    """Reads and searches, one after the other; all of them are answered."""
    took = []
    for number in range(CALLS):
        began = time.perf_counter()
        if number % 2:
            assert (await client.conversations.get(thread_id)).id == thread_id
        else:
            assert (await client.memory.search("beans")).results
        took.append(time.perf_counter() - began)
    return took


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [3.0])
async def test_two_hundred_chats_wait_for_the_model_on_five_connections_and_hold_up_nobody(
    dsn: str, seconds: float, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    options = {"pool_max": 5, "llm_concurrency": 256, "embedding": "hash", "max_turns": 512}
    async with stage(dsn, **options) as s, users(s.server.address) as clients:
        thread = await said(s.client, "I sow beans in May.")
        idle = await timed_calls(s.client, thread.id)
        model = SlowModel(s.provider)
        chats = [asyncio.create_task(heard(one.agent("main").chat("Hello."))) for one in clients]
        await asyncio.wait_for(model.everybody_waits.wait(), 120)
        began = time.perf_counter()
        busy = await timed_calls(s.client, thread.id)
        # Everybody can still read and search, too, and not only whoever sends no message.
        await asyncio.gather(*(one.conversations.create("Meanwhile") for one in clients))
        assert not any(chat.done() for chat in chats)
        await asyncio.sleep(max(0.0, seconds - (time.perf_counter() - began)))
        assert not any(chat.done() for chat in chats)
        model.goes_on.set()
        for events in await asyncio.gather(*chats):
            assert [message.text for message in only(events, TurnMessage)] == ["At last."]
            assert isinstance(events[-1], TurnDone)
            assert len(only(events, TurnTyping)) == 1
    times = f"{median(idle) * 1000:.1f} ms idle, {median(busy) * 1000:.1f} ms beside {CHATS} turns"
    with capsys.disabled():
        pytestconfig.get_terminal_writer().line(f"\nmedian of a call: {times}")


async def test_more_turns_than_may_run_wait_their_turn_and_all_end(dsn: str) -> None:
    async with stage(dsn, pool_max=5, max_turns=8, llm_concurrency=4, embedding="hash") as s:
        s.provider.chat = lambda _: chat_reply(answer("At last."), delay=0.02)
        async with users(s.server.address) as clients:
            chats = (one.agent("main").chat("Hello.").text() for one in clients)
            assert set(await asyncio.gather(*chats)) == {"At last."}
