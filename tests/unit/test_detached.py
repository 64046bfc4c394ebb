"""Work that goes on when whoever asked for it goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sage_server.domain.errors import Reason, SageError
from sage_server.engine.detached import Detached


def counting(gate: asyncio.Event) -> Detached[int, str]:
    async def work(tell: Callable[[int], None]) -> str:
        tell(1)
        await gate.wait()
        tell(2)
        return "done"

    return Detached(work, "test")


async def test_every_listener_hears_what_is_told_from_then_on() -> None:
    gate = asyncio.Event()
    run = counting(gate)
    early = run.events()
    assert await anext(early) == 1
    late = run.events()
    gate.set()
    assert ([event async for event in early], [event async for event in late]) == ([2], [2])
    assert await run.result() == "done"
    assert [event async for event in run.events()] == []


async def test_a_listener_who_goes_away_stops_nothing() -> None:
    gate = asyncio.Event()
    run = counting(gate)
    waiting = asyncio.create_task(run.result())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await run.result() == "done"


async def test_what_is_raised_reaches_whoever_asks() -> None:
    async def work(_tell: Callable[[int], None]) -> None:
        raise LookupError

    run = Detached(work, "test")
    assert [event async for event in run.events()] == []
    with pytest.raises(LookupError):
        await run.result()


async def test_stopped_work_is_a_server_that_shuts_down() -> None:
    run = counting(asyncio.Event())
    ended: list[bool] = []
    run.when_done(lambda: ended.append(True))
    await run.stop()
    with pytest.raises(SageError) as refused:
        await run.result()
    assert refused.value.reason is Reason.SHUTTING_DOWN
    assert ended == [True]
