"""Scratchpads of threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sage_server.domain.agents import MAIN
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.scratchpads import Scratchpad
from sage_server.ports.agents import AgentDirectory
from sage_server.ports.clock import Clock
from sage_server.ports.scratchpads import ScratchpadStore


@dataclass(frozen=True)
class _Thread:
    """A thread, and the agent whose own it is if it is one."""

    id: UUID
    agent_id: UUID | None = None

    @property
    def own(self) -> bool:
        return self.agent_id is not None


class Scratchpads:
    """What callers do with scratchpads, for one user.

    A thread is named by its conversation, or else by the agent whose own thread it is: a name or an id,
    by default `main`.
    """

    def __init__(self, *, scratchpads: ScratchpadStore, agents: AgentDirectory, clock: Clock) -> None:
        self._scratchpads = scratchpads
        self._agents = agents
        self._clock = clock

    async def get(self, user_id: UUID, conversation_id: UUID | None, agent: str) -> Scratchpad:
        """The notes of a thread."""
        thread = await self._thread(user_id, conversation_id, agent)
        found = await self._scratchpads.get(user_id, thread.id, own=thread.own)
        return replace(found, agent_id=thread.agent_id)

    async def write(
        self, user_id: UUID, conversation_id: UUID | None, agent: str, items: Sequence[str], etag: str
    ) -> Scratchpad:
        """Replace all notes of a thread."""
        thread = await self._thread(user_id, conversation_id, agent)
        written = await self._scratchpads.write(
            user_id, thread.id, items, etag=etag, now=self._clock.now(), own=thread.own
        )
        return replace(written, agent_id=thread.agent_id)

    async def clear(self, user_id: UUID, conversation_id: UUID | None, agent: str) -> int:
        """Delete all notes of a thread; answers with how many there were.

        The notes are written as none, and not forgotten: an etag that was read before must not become
        current again.
        """
        thread = await self._thread(user_id, conversation_id, agent)
        while True:
            current = await self._scratchpads.get(user_id, thread.id, own=thread.own)
            if not current.items:
                return 0
            try:
                await self._scratchpads.write(
                    user_id, thread.id, (), etag=current.etag, now=self._clock.now(), own=thread.own
                )
            except SageError as error:
                if error.reason is not Reason.ETAG_MISMATCH:
                    raise
                continue  # somebody wrote other notes since they were counted
            return len(current.items)

    async def _thread(self, user_id: UUID, conversation_id: UUID | None, agent: str) -> _Thread:
        if conversation_id is not None:
            return _Thread(conversation_id)
        agent_id = await self._agents.resolve(user_id, agent or MAIN)
        return _Thread(await self._agents.own_thread(user_id, str(agent_id)), agent_id)
