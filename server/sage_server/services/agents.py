"""Agents and their settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID

import numpy as np

from sage_server.domain.agents import (
    MAIN,
    Agent,
    AgentChange,
    AgentProfile,
    MemoryMode,
    agent_protected,
    agent_taken,
    check_profile,
    tools_unknown,
)
from sage_server.domain.blocks import DEFAULT_CHAR_LIMIT, Block
from sage_server.domain.conversations import Item, ItemFilter
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.events import Event
from sage_server.domain.idempotency import Once
from sage_server.domain.ids import new_id
from sage_server.domain.paging import Page
from sage_server.engine.agent_vectors import AgentVectors
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.ports.agents import AgentStore, ClearedThread, DeletedAgent
from sage_server.ports.clock import Clock
from sage_server.ports.language_model import LanguageModels, Purpose
from sage_server.ports.transcripts import TranscriptStore

Publish: TypeAlias = Callable[[UUID, Sequence[Event]], None]
"""Tells whoever watches this user's events in this process what was just stored."""
_PERSONA = "I am a friendly and honest assistant who remembers what matters to the person I talk with."
_FIRST_BLOCKS = (
    ("persona", "Who I am: my name, my character, and how I speak.", _PERSONA),
    ("human", "What I know about the person I talk with: their name, life, work, likes and plans.", ""),
)


@dataclass(frozen=True)
class NewAgent:
    """An agent as a caller asks for it."""

    profile: AgentProfile
    enabled: bool
    memory_mode: MemoryMode


@dataclass(frozen=True)
class AgentMatch:
    """An agent, and how well its description fits a task: a cosine."""

    agent: Agent
    score: float


class Agents:
    """What callers do with agents, for one user.

    An agent is named by its name or its id. Where that may be empty, it means `main`.
    """

    def __init__(
        self,
        *,
        agents: AgentStore,
        transcripts: TranscriptStore,
        writer: MemoryWriter,
        vectors: AgentVectors,
        models: LanguageModels,
        tool_names: Collection[str],
        publish: Publish,
        clock: Clock,
    ) -> None:
        self._agents = agents
        self._transcripts = transcripts
        self._writer = writer
        self._vectors = vectors
        self._models = models
        self._tool_names = frozenset(tool_names)
        self._publish = publish
        self._clock = clock

    async def create(self, user_id: UUID, new: NewAgent, once: Once | None) -> Agent:
        """A subagent. A repeat gets the first answer, whatever has become of agent and server since."""
        if once is not None:
            earlier = await self._agents.created_before(user_id, once)
            if earlier is not None:
                return earlier
        if new.profile.name == MAIN:
            raise agent_taken()
        self._check(new.profile)
        agent = _agent(new, self._clock.now())
        return await self._agents.create(user_id, agent, (), once)

    async def get(self, user_id: UUID, agent: str) -> Agent:
        """One agent."""
        return await self._agents.get(user_id, agent or MAIN)

    async def list(
        self, user_id: UUID, *, enabled_only: bool, size: int, after: str | None
    ) -> Page[Agent, str]:
        """A page by name."""
        rows = [
            agent
            for agent in await self._agents.list(user_id)
            if (agent.enabled or not enabled_only) and (after is None or agent.name > after)
        ]
        return Page(rows[:size], rows[size - 1].name if len(rows) > size else None)

    async def update(self, user_id: UUID, agent: str, change: AgentChange, etag: str) -> Agent:
        """Change the settings that `change` names. Enabling `main` creates it if it is not there."""
        enables = "enabled" in change.named and change.enabled
        while True:
            try:
                current = await self._agents.get(user_id, agent or MAIN)
            except SageError as error:
                if not (error.reason is Reason.NOT_FOUND and agent in ("", MAIN) and enables and not etag):
                    raise
                created = await self._create_main(user_id, change)
                if created is None:
                    continue
                return created
            current.check_etag(etag)
            changed = current.changed(change, self._clock.now())
            self._check(changed.profile, change.named)
            if await self._agents.update(user_id, changed):
                return changed

    async def delete(self, user_id: UUID, agent: str, etag: str) -> DeletedAgent:
        """A subagent and all that is its own, for good."""
        while True:
            current = await self._agents.get(user_id, agent)
            if current.name == MAIN:
                raise agent_protected()
            current.check_etag(etag)
            deleted = await self._agents.delete(user_id, current, self._clock.now())
            if deleted is not None:
                self._publish(user_id, deleted.events)
                await self._writer.removed(user_id, deleted.memories)
                return deleted

    async def find(
        self, user_id: UUID, task: str, top_k: int, min_score: float | None
    ) -> Sequence[AgentMatch]:
        """The enabled agents whose descriptions fit a task best, the best first."""
        generation = self._vectors.generation
        able = [
            agent
            for agent in await self._agents.list(user_id)
            if agent.enabled and agent.profile.description.strip()
        ]
        if not able:
            return []
        wanted, described = await self._vectors.embed(user_id, task, able, generation)
        scores: list[float] = (np.stack(described) @ wanted).clip(-1, 1).tolist()
        matches = [AgentMatch(agent, score) for agent, score in zip(able, scores, strict=True)]
        fitting = [match for match in matches if min_score is None or match.score >= min_score]
        return sorted(fitting, key=lambda match: -match.score)[:top_k]

    async def items(
        self, user_id: UUID, agent: str, which: ItemFilter, size: int, after: int | None
    ) -> Page[Item, int]:
        """A page of the agent's own thread."""
        current = await self.get(user_id, agent)
        return await self._transcripts.items(user_id, current.conversation_id, which, size, after)

    async def clear(self, user_id: UUID, agent: str) -> ClearedThread:
        """Delete all items and summaries of the agent's own thread, for good."""
        current = await self.get(user_id, agent)
        cleared = await self._agents.clear(user_id, current, self._clock.now())
        await self._writer.removed(user_id, cleared.memories)
        return cleared

    async def _create_main(self, user_id: UUID, change: AgentChange) -> Agent | None:
        """The main agent with what a change names; None if somebody else has just created it."""
        now = self._clock.now()
        plain = _agent(NewAgent(AgentProfile(MAIN), enabled=True, memory_mode=MemoryMode.SHARED), now)
        main = replace(plain.changed(change, now), version=1)
        self._check(main.profile, change.named)
        try:
            return await self._agents.create(user_id, main, _first_blocks(now), None)
        except SageError as error:
            if error.reason is not Reason.ALREADY_EXISTS:
                raise
            return None

    def _check(self, profile: AgentProfile, named: Collection[str] = ("model", "allowed_tools")) -> None:
        """Refuse settings that make no sense here. What a change does not name was judged before."""
        check_profile(profile)
        if "model" in named and profile.model:
            self._models.get(profile.model, Purpose.CHAT)
        if "allowed_tools" in named:
            unknown = set(profile.allowed_tools or ()) - self._tool_names
            if unknown:
                raise tools_unknown(unknown)


def _agent(new: NewAgent, now: datetime) -> Agent:
    return Agent(
        id=new_id(now),
        conversation_id=new_id(now),
        profile=new.profile,
        enabled=new.enabled,
        memory_mode=new.memory_mode,
        created_at=now,
        updated_at=now,
    )


def _first_blocks(now: datetime) -> list[Block]:
    """Blocks are shown in the order of their ids, which is that of their times."""
    return [
        Block(
            id=new_id(now + timedelta(microseconds=place)),
            label=label,
            agent_id=None,
            description=description,
            value=value,
            char_limit=DEFAULT_CHAR_LIMIT,
            read_only=False,
            created_at=now,
            updated_at=now,
        )
        for place, (label, description, value) in enumerate(_FIRST_BLOCKS)
    ]
