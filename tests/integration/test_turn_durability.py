"""Turns survive `kill -9` at every named point: what was told is there, and nothing happens twice.

`make torture ROUNDS=5` adds five rounds of points by chance, also at the second and third time, and with one
process dying after the other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.postgres import TestPostgres
from support.turn_deaths import DEATHS, Death, dies
from support.turn_story import Story

_AT_ONCE = 4
"""Servers that start and die at the same time."""

_NAMES = sorted({death.points[0].partition(":")[0] for death in DEATHS if death.story is Story.QUEUED})
_REACHED = {"accept": 2, "start": 2, "claim": 2, "end": 1}
"""How often the story reaches a point, others three times or more."""
_AGAIN = ("recover.before", "recover.after", "context.before", "model.after", "tools.after", "commit.before")
"""What a process reaches that takes over."""


def by_chance(rounds: int) -> list[Death]:
    """Always the same, and more rounds begin with those of fewer."""
    chance = random.Random(7)
    found = []
    for _ in range(rounds * len(_NAMES)):
        name = chance.choice(_NAMES)
        time = chance.randint(1, _REACHED.get(name.partition(".")[0], 3))
        again = chance.sample(_AGAIN, chance.choice((0, 0, 1, 2)))
        if (name, time) == ("accept.before", 1):  # nothing is there to be taken over
            again = []
        found.append(Death((f"{name}:{time}", *again), beside=not again and chance.random() < 0.5))
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "death" in metafunc.fixturenames:
        deaths = DEATHS + by_chance(metafunc.config.getoption("rounds"))
        metafunc.parametrize("death", deaths, ids=[f"{n}-{death}" for n, death in enumerate(deaths)])


@pytest.fixture(scope="module")
async def deaths(
    request: pytest.FixtureRequest, postgres: TestPostgres
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Those that were chosen, a few at a time: a server takes seconds to start."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(death: Death) -> None:
        async with room:
            await dies(postgres, death)

    items: list[Any] = request.session.items
    chosen = [item for item in items if item.module is request.module]
    tasks = {item.callspec.id: asyncio.create_task(one(item.callspec.params["death"])) for item in chosen}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_what_was_told_survives_the_death_of_the_server_and_nothing_happens_twice(
    death: Death, deaths: dict[str, asyncio.Task[None]], request: pytest.FixtureRequest
) -> None:
    await deaths[request.node.callspec.id]
