"""Scratchpads of threads."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.scratchpads import Scratchpad
from sage_server.ports.agents import AgentDirectory
from sage_server.ports.clock import Clock
from sage_server.ports.scratchpads import ScratchpadStore

MAIN_AGENT = "main"


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
        return await self._scratchpads.get(user_id, await self._thread(user_id, conversation_id, agent))

    async def write(
        self, user_id: UUID, conversation_id: UUID | None, agent: str, items: Sequence[str], etag: str
    ) -> Scratchpad:
        """Replace all notes of a thread."""
        thread = await self._thread(user_id, conversation_id, agent)
        return await self._scratchpads.write(user_id, thread, items, etag=etag, now=self._clock.now())

    async def clear(self, user_id: UUID, conversation_id: UUID | None, agent: str) -> int:
        """Delete all notes of a thread; answers with how many there were.

        The notes are written as none, and not forgotten: an etag that was read before must not become
        current again.
        """
        thread = await self._thread(user_id, conversation_id, agent)
        while True:
            current = await self._scratchpads.get(user_id, thread)
            if not current.items:
                return 0
            try:
                await self._scratchpads.write(user_id, thread, (), etag=current.etag, now=self._clock.now())
            except SageError as error:
                if error.reason is not Reason.ETAG_MISMATCH:
                    raise
                continue  # somebody wrote other notes since they were counted
            return len(current.items)

    async def _thread(self, user_id: UUID, conversation_id: UUID | None, agent: str) -> UUID:
        if conversation_id is not None:
            return conversation_id
        return await self._agents.own_thread(user_id, agent or MAIN_AGENT)
