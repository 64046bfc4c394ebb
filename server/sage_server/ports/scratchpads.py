"""The store of scratchpads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from sage_server.domain.scratchpads import Scratchpad


class ScratchpadStore(Protocol):
    """Scratchpads of one user's threads.

    Every method must raise NOT_FOUND if there is no such thread, or it is deleted. The notes of a deleted
    thread are kept for as long as it can come back. An agent's own thread must be found with `own`, and only
    then: a caller who learned its id must not reach it.
    """

    async def get(self, user_id: UUID, conversation_id: UUID, *, own: bool = False) -> Scratchpad:
        """The notes; none if there were never any."""
        ...

    async def write(
        self,
        user_id: UUID,
        conversation_id: UUID,
        items: Sequence[str],
        *,
        etag: str,
        now: datetime,
        own: bool = False,
    ) -> Scratchpad:
        """Replace all notes. Must raise ETAG_MISMATCH if `etag` is given and not current."""
        ...
