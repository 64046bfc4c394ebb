"""Very many conversations of one user, built past the server but sealed with the user's own key."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from bench.environment import Environment
from sage_server.adapters.postgres.conversation_rows import sealed_conversation
from sage_server.domain.conversations import Conversation, ConversationMemory
from sage_server.domain.ids import new_id
from sage_server.domain.paging import TimeCursor
from sage_server.ports.keys import UserCipher

_BATCH = 20_000
_COLUMNS = (
    *("user_id", "id", "kind", "title_enc", "metadata_enc", "private", "memory"),
    *("active_at", "created_at", "updated_at", "key_version"),
)


async def build(environment: Environment, user_id: UUID, size: int) -> TimeCursor:
    """Store `size` conversations, one a second until now; answers with the position of the middle one."""
    cipher = await environment.keys.cipher(user_id)
    start = datetime.now(UTC) - timedelta(seconds=size)
    middle = None
    async with environment.connection() as connection:
        for first in range(0, size, _BATCH):
            numbers = range(first, min(first + _BATCH, size))
            rows = await asyncio.to_thread(_rows, cipher, user_id, start, numbers)
            await connection.copy_records_to_table("conversations", records=rows, columns=_COLUMNS)
            if size // 2 in numbers:
                row = rows[size // 2 - first]
                middle = TimeCursor(row[8], row[1])
            _show(numbers.stop, size)
    assert middle is not None
    return middle


def _rows(cipher: UserCipher, user_id: UUID, start: datetime, numbers: range) -> list[tuple[Any, ...]]:
    return [_row(cipher, user_id, number, start + timedelta(seconds=number)) for number in numbers]


def _row(cipher: UserCipher, user_id: UUID, number: int, at: datetime) -> tuple[Any, ...]:
    row = Conversation(
        id=new_id(at),
        title=f"Conversation {number} about the garden",
        metadata={"app": "garden", "number": str(number)},
        private=False,
        memory=ConversationMemory.AGENT,
        created_at=at,
        updated_at=at,
    )
    sealed = sealed_conversation(cipher, row)
    return (
        *(user_id, row.id, 1, sealed["title_enc"], sealed["metadata_enc"], False, int(row.memory)),
        *(at, at, at, sealed["key_version"]),
    )


def _show(done: int, size: int) -> None:
    live = sys.stderr.isatty()
    end = "\r" if live and done < size else "\n"
    if size > _BATCH and (live or done % (10 * _BATCH) == 0 or done == size):
        print(f"{done:,} of {size:,} conversations built", file=sys.stderr, end=end)
