"""Counts what models are used for, on its way to the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from sage_server.domain.errors import SageError
from sage_server.domain.usage import UsageCounts, UsageEntry, UsageKey, UsagePurpose, UsageRecord
from sage_server.ports.clock import Clock
from sage_server.ports.usage import UsageStore

_log = logging.getLogger("sage.usage")


class EmbeddingMeter(Protocol):
    """Is told what embeddings cost."""

    def record_embedding(self, user_id: UUID, model: str, tokens: int) -> None:
        """One answered call of an embedding model."""
        ...


class UsageMeter:
    """Collects counts in memory, so that a call does not wait for them, and writes them together.

    What could not be written is kept for the next time. A process that is killed loses what it has not
    written yet; a connection that breaks while a write is committed may count that write twice.
    """

    def __init__(self, store: UsageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pending: dict[tuple[UUID, UsageKey], UsageCounts] = {}
        self._writing = asyncio.Lock()

    def record_embedding(self, user_id: UUID, model: str, tokens: int) -> None:
        """One answered call of an embedding model."""
        key = UsageKey(self._clock.now().date(), model, UsagePurpose.EMBEDDING)
        self._add(user_id, key, UsageCounts(calls=1, embedding_tokens=tokens))

    def record(self, user_id: UUID, records: Sequence[UsageRecord]) -> None:
        """What calls outside a turn have cost."""
        for one in records:
            self._add(user_id, one.key, one.counts)

    async def flush(self) -> None:
        """Write what was collected until now. When it returns, all of it is stored."""
        async with self._writing:
            if not self._pending:
                return
            taken, self._pending = self._pending, {}
            written = False
            try:
                await self._store.add(
                    [
                        UsageEntry(user_id, UsageRecord(key, counts))
                        for (user_id, key), counts in taken.items()
                    ]
                )
                written = True
            finally:
                if not written:
                    for (user_id, key), counts in taken.items():
                        self._add(user_id, key, counts)

    async def close(self) -> None:
        """Write for the last time. A database that is gone does not keep the server from stopping."""
        try:
            await self.flush()
        except SageError as error:
            _log.error("usage was not written: %s", error, extra={"records": len(self._pending)})

    def _add(self, user_id: UUID, key: UsageKey, counts: UsageCounts) -> None:
        self._pending[user_id, key] = self._pending.get((user_id, key), UsageCounts()) + counts
