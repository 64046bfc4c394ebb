"""Servers that die at a named place of a turn, and others that take over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import sage_client
from sage_client import AsyncSageClient, CancelCause, RetryPolicy, TurnCancelled, TurnDone, TurnEvent
from support.agents import model_settings
from support.postgres import TestPostgres
from support.provider import FakeProvider
from support.server import ROOT_KEY, child_server, running_server
from support.turn_checks import everything_told_is_there, nothing_happened_twice
from support.turn_story import Story, Witness, make_too_long

_LEASE = 2.0
_STARTING = asyncio.Lock()
"""Migrations of two databases at once get in each other's way in one process."""


@dataclass(frozen=True)
class Death:
    """Where the server dies; more than one point are those of one process after the other."""

    points: tuple[str, ...]
    story: Story = Story.QUEUED
    cancels: bool = False
    """Whether the first turn is cancelled by then."""
    beside: bool = False
    """Whether another replica runs beside it, or one is started after its death."""

    def __str__(self) -> str:
        story = "" if self.story is Story.QUEUED else f"{self.story}-"
        return story + "+".join(self.points)


DEATHS = [
    Death(("accept.before",)),
    Death(("accept.after",), beside=True),
    Death(("start.before",), beside=True),
    Death(("context.before",), beside=True),
    Death(("compaction.before",), Story.COMPACTED, beside=True),
    Death(("compaction.after",), Story.COMPACTED, beside=True),
    Death(("model.after:2",), beside=True),
    Death(("tools.before",)),
    Death(("tools.after:2",), beside=True),
    Death(("effects.before",)),
    Death(("effects.after:2",), beside=True),
    Death(("commit.before",), beside=True),
    Death(("publish.before",)),
    Death(("publish.after",), beside=True),
    Death(("end.before",)),
    Death(("end.after",), beside=True),
    Death(("claim.before:2",)),
    Death(("claim.after:2",), beside=True),
    Death(("renew.before",), Story.SLOW),
    Death(("renew.after",), Story.SLOW, beside=True),
    Death(("model.before:2", "recover.before")),
    Death(("commit.after", "recover.after")),
    Death(("cancel.before",), Story.CANCELLED),
    Death(("cancel.after",), Story.CANCELLED, cancels=True, beside=True),
    Death(("interrupt.before",), Story.INTERRUPTED),
    Death(("interrupt.after",), Story.INTERRUPTED, beside=True),
    Death(("accept.after:2",), Story.INTERRUPTED, cancels=True),
    Death(("release.before",), Story.STOPPED),
    Death(("release.after",), Story.STOPPED),
]
"""Each place at least once."""


async def dies(postgres: TestPostgres, death: Death) -> None:
    """Let the server die, let another one take over, and hold everything against what was told."""
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(postgres.database())
        provider = await stack.enter_async_context(FakeProvider.running())
        witness = Witness(death.story, provider)
        replica = _replica(dsn, provider)
        if death.beside:
            other = await stack.enter_async_context(replica)
            if death.story is Story.COMPACTED:
                await make_too_long(other)
        await _killed(dsn, death, witness)
        if not death.beside:
            other = await stack.enter_async_context(replica)
        async with asyncio.timeout(60):
            turns = await everything_told_is_there(other, witness)
            _ended_well(death, turns[-2][-1], turns[-1][-1])
            await nothing_happened_twice(other, dsn, turns)


@asynccontextmanager
async def _replica(dsn: str, provider: FakeProvider) -> AsyncIterator[AsyncSageClient]:
    async with AsyncExitStack() as stack:
        async with _STARTING:
            starting = running_server(dsn, **model_settings(provider, turn_lease=_LEASE))
            server = await stack.enter_async_context(starting)
        yield await stack.enter_async_context(sage_client.connect_async(server.address, user="maria"))


async def _killed(dsn: str, death: Death, witness: Witness) -> None:
    settings = model_settings(
        witness.provider, database_url=dsn, root_key=ROOT_KEY, turn_lease=_LEASE, drain=0.5
    )
    async with child_server(**settings, failpoint=death.points[0]) as child:
        once = RetryPolicy(max_attempts=1)
        async with sage_client.connect_async(child.address, user="maria", retry=once) as client:
            await client.agent("main").enable()
            await witness.act(client, child)
        assert await child.ended() == -signal.SIGKILL, "".join(child.lines)
    for point in death.points[1:]:
        async with child_server(**settings, failpoint=point) as child:
            assert await child.ended() == -signal.SIGKILL, "".join(child.lines)


def _ended_well(death: Death, first: TurnEvent, second: TurnEvent) -> None:
    """Both turns are complete, but for one that was cancelled."""
    assert isinstance(second, TurnDone)
    if death.cancels:
        interrupted = death.story is Story.INTERRUPTED
        assert isinstance(first, TurnCancelled)
        assert first.cause is (CancelCause.INTERRUPTED if interrupted else CancelCause.CALLER)
        assert first.interrupted_by_turn_id == (second.turn_id if interrupted else "")
    else:
        assert isinstance(first, TurnDone)
        assert (first.step_count, first.message_count, first.tool_call_count) == (4, 3, 4)
