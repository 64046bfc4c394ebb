"""Descriptions of agents are embedded once, and what was forgotten stays so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest

from sage_server.adapters.embedding import HashEmbedder, InstalledEmbedders
from sage_server.domain.agents import Agent, AgentProfile, MemoryMode
from sage_server.engine.agent_vectors import AgentVectors
from sage_server.ports.embedding import Embedded

MARIA, ADA = UUID(int=1), UUID(int=2)
NOW = datetime(2024, 1, 1, tzinfo=UTC)


class Recording(HashEmbedder):
    """Remembers what it was asked. Goes by one name, whatever its length."""

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self.asked: list[list[str]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    @property
    def model(self) -> str:
        return "hash"

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.asked.append(list(texts))
        self.meanwhile()
        return await super().embed(texts)


class Meter:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[UUID, int]] = []

    def record_embedding(self, user_id: UUID, model: str, tokens: int) -> None:
        self.told.append((user_id, tokens))


def agent(number: int, description: str) -> Agent:
    profile = AgentProfile(f"agent-{number}", description=description)
    return Agent(
        id=UUID(int=number),
        conversation_id=UUID(int=number + 100),
        profile=profile,
        enabled=True,
        memory_mode=MemoryMode.SHARED,
        created_at=NOW,
        updated_at=NOW,
    )


COOK, LAWYER = agent(1, "cooks dinner"), agent(2, "reads contracts")


def built(embedder: Recording, capacity: int = 10) -> tuple[AgentVectors, Meter]:
    meter = Meter()
    embedders = InstalledEmbedders(embedder, lambda _, size: HashEmbedder(size))
    return AgentVectors(embedders, meter, capacity), meter


async def asked(vectors: AgentVectors, embedder: Recording, *agents: Agent, user: UUID = MARIA) -> list[str]:
    """What had to be embedded; the vectors must be the right ones."""
    before = len(embedder.asked)
    task, described = await vectors.embed(user, "a task", agents, vectors.generation)
    expected = await HashEmbedder(embedder.dimensions).embed(
        ["a task", *(one.profile.description for one in agents)]
    )
    np.testing.assert_array_equal(np.stack([task, *described]), expected.vectors)
    return [text for texts in embedder.asked[before:] for text in texts]


async def test_only_descriptions_that_are_new_or_changed_are_embedded() -> None:
    embedder = Recording()
    vectors, meter = built(embedder)
    assert await asked(vectors, embedder, COOK) == ["a task", "cooks dinner"]
    assert await asked(vectors, embedder, LAWYER, COOK) == ["a task", "reads contracts"]
    assert await asked(vectors, embedder, LAWYER, COOK) == ["a task"]
    changed = replace(COOK, profile=replace(COOK.profile, description="bakes bread"), version=2)
    assert await asked(vectors, embedder, LAWYER, changed) == ["a task", "bakes bread"]
    assert [user for user, _ in meter.told] == [MARIA] * 4
    one_task = meter.told[2][1]
    assert all(tokens > one_task for at, (_, tokens) in enumerate(meter.told) if at != 2)


async def test_vectors_of_another_length_are_embedded_anew() -> None:
    embedder, longer = Recording(), Recording(128)
    vectors, _ = built(embedder)
    await asked(vectors, embedder, COOK)
    vectors._embedders = InstalledEmbedders(longer, lambda _, size: HashEmbedder(size))
    assert await asked(vectors, longer, COOK) == ["a task", "cooks dinner"]


async def test_an_agent_of_another_user_is_another_agent() -> None:
    embedder = Recording()
    vectors, _ = built(embedder)
    await asked(vectors, embedder, COOK)
    theirs = replace(LAWYER, id=COOK.id)
    assert await asked(vectors, embedder, theirs, user=ADA) == ["a task", "reads contracts"]


@pytest.mark.parametrize("everybody", [True, False])
async def test_a_user_who_is_forgotten_leaves_no_vector(everybody: bool) -> None:
    embedder = Recording()
    vectors, _ = built(embedder)
    await asked(vectors, embedder, COOK)
    await asked(vectors, embedder, LAWYER, user=ADA)
    vectors.forget_all() if everybody else vectors.forget(MARIA)
    assert len(vectors._known) == (0 if everybody else 1)
    assert await asked(vectors, embedder, COOK) == ["a task", "cooks dinner"]
    assert len(await asked(vectors, embedder, LAWYER, user=ADA)) == (2 if everybody else 1)


async def test_what_was_read_before_a_user_is_forgotten_does_not_come_back() -> None:
    embedder = Recording()
    vectors, _ = built(embedder)
    read = vectors.generation
    vectors.forget(MARIA)
    await vectors.embed(MARIA, "a task", [COOK], read)
    assert len(vectors._known) == 0
    embedder.meanwhile = lambda: vectors.forget(MARIA)
    await vectors.embed(MARIA, "a task", [COOK], vectors.generation)
    assert len(vectors._known) == 0


async def test_vectors_beyond_the_capacity_make_room() -> None:
    embedder = Recording()
    vectors, _ = built(embedder, capacity=1)
    assert len(await asked(vectors, embedder, COOK, LAWYER)) == 3
    assert len(vectors._known) == 1
    assert await asked(vectors, embedder, COOK, LAWYER) == ["a task", "cooks dinner"]
