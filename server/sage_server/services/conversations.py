"""Threads and their history, without a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from sage_server.domain.conversations import (
    AppendedItem,
    Conversation,
    ConversationChange,
    ConversationMemory,
    ConversationOrder,
    Fork,
    Item,
    ItemFilter,
    NewItem,
    check_new_items,
    conversation_not_deleted,
    draft,
)
from sage_server.domain.errors import not_found
from sage_server.domain.idempotency import Once
from sage_server.domain.ids import new_id
from sage_server.domain.paging import Page, TimeCursor
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.pauses import Pauses
from sage_server.ports.clock import Clock
from sage_server.ports.stores import ConversationStore, ForkStore, ItemStore
from sage_server.ports.tokens import TokenCounter

EndTurns: TypeAlias = Callable[[UUID, Collection[UUID]], Awaitable[None]]
"""Ends all turns in threads of a user that were deleted."""


class Conversations:
    """What callers do with threads. Every method acts for one user."""

    def __init__(
        self,
        *,
        conversations: ConversationStore,
        items: ItemStore,
        forks: ForkStore,
        memory: MemoryWriter,
        end_turns: EndTurns,
        clock: Clock,
        tokens: TokenCounter,
    ) -> None:
        self._conversations = conversations
        self._items = items
        self._forks = forks
        self._memory = memory
        self._end_turns = end_turns
        self._clock = clock
        self._tokens = tokens

    async def create(
        self,
        user_id: UUID,
        *,
        title: str,
        metadata: Mapping[str, str],
        private: bool,
        memory: ConversationMemory,
        once: Once | None,
    ) -> Conversation:
        """A new, empty thread."""
        now = self._clock.now()
        conversation = Conversation(
            id=new_id(now),
            title=title,
            metadata=metadata,
            private=private,
            memory=memory,
            created_at=now,
            updated_at=now,
        )
        return await self._conversations.create(user_id, conversation, once)

    async def get(self, user_id: UUID, conversation_id: UUID) -> Conversation:
        """One thread, a deleted one too."""
        return await self._conversations.get(user_id, conversation_id)

    async def list(
        self,
        user_id: UUID,
        *,
        order: ConversationOrder,
        deleted: bool,
        size: int,
        after: TimeCursor | None,
    ) -> Page[Conversation, TimeCursor]:
        """A page, newest first."""
        return await self._conversations.list(user_id, order=order, deleted=deleted, size=size, after=after)

    async def update(
        self, user_id: UUID, conversation_id: UUID, change: ConversationChange, etag: str
    ) -> Conversation:
        """Change what `change` names."""
        return await self._conversations.update(user_id, conversation_id, change, etag, self._clock.now())

    async def delete(self, user_id: UUID, conversation_id: UUID, etag: str) -> Conversation:
        """Delete softly. What is deleted already is not found."""
        now = self._clock.now()
        deleted = await self._conversations.set_deleted(user_id, conversation_id, now, etag, now)
        if deleted is None:
            raise not_found("conversation")
        await self._forgotten(user_id, [conversation_id])
        return deleted

    async def undelete(self, user_id: UUID, conversation_id: UUID) -> Conversation:
        """Bring a deleted thread back."""
        now = self._clock.now()
        restored = await self._conversations.set_deleted(user_id, conversation_id, None, "", now)
        if restored is None:
            raise conversation_not_deleted()
        return restored

    async def delete_many(self, user_id: UUID, ids: Sequence[UUID]) -> tuple[int, Sequence[UUID]]:
        """Delete softly; answers with how many, and the ids that named no live thread."""
        wanted = list(dict.fromkeys(ids))
        deleted = set(await self._conversations.delete_many(user_id, wanted, self._clock.now()))
        await self._forgotten(user_id, deleted)
        return len(deleted), [wanted_id for wanted_id in wanted if wanted_id not in deleted]

    async def delete_all(self, user_id: UUID) -> int:
        """Delete every thread softly."""
        deleted = await self._conversations.delete_many(user_id, None, self._clock.now())
        await self._forgotten(user_id, deleted)
        return len(deleted)

    async def _forgotten(self, user_id: UUID, deleted: Collection[UUID]) -> None:
        """What was deleted is no longer searched, and no longer answered in."""
        await self._end_turns(user_id, deleted)
        await self._memory.refresh(user_id)

    async def fork(
        self,
        user_id: UUID,
        source_id: UUID,
        *,
        up_to_seq: int | None,
        title: str | None,
        once: Once | None,
    ) -> Conversation:
        """Copy a thread, or its beginning."""
        now = self._clock.now()
        return await self._forks.fork(user_id, Fork(source_id, new_id(now), up_to_seq, title, now), once)

    async def append(
        self, user_id: UUID, conversation_id: UUID, items: Sequence[NewItem], once: Once | None
    ) -> Sequence[AppendedItem]:
        """Store items at the end of a thread."""
        now = self._clock.now()
        check_new_items(items, now)
        drafts, pauses = [], Pauses()
        for item in items:
            drafts.append(draft(item, new_id(now), self._tokens.count(item.text), now))
            await pauses.take()
        return await self._items.append(user_id, conversation_id, drafts, once)

    async def list_items(
        self, user_id: UUID, conversation_id: UUID, which: ItemFilter, size: int, after: int | None
    ) -> Page[Item, int]:
        """A page of a thread's history."""
        return await self._items.list(user_id, conversation_id, which, size, after)

    async def delete_item(self, user_id: UUID, conversation_id: UUID, item_id: UUID) -> None:
        """Delete one item for good."""
        await self._items.delete(user_id, conversation_id, item_id)
        await self._memory.refresh(user_id)
