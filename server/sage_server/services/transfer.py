"""Conversations out of Sage and into it, as JSON Lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import groupby
from typing import TypeAlias
from uuid import UUID, uuid5

from sage_server.domain.agents import Agent, MemoryMode
from sage_server.domain.conversations import (
    Conversation,
    ConversationMemory,
    ConversationOrder,
    DraftItem,
    Item,
    ItemFilter,
    check_new_items,
    check_times,
    draft,
)
from sage_server.domain.errors import SageError, invalid, not_found
from sage_server.domain.transfer import (
    ConversationLine,
    ItemLine,
    Line,
    LineError,
    conversation_line,
    item_line,
    parse_line,
)
from sage_server.engine.pauses import Pauses
from sage_server.ports.agents import AgentStore
from sage_server.ports.clock import Clock
from sage_server.ports.stores import ConversationStore, ItemStore
from sage_server.ports.tokens import TokenCounter
from sage_server.ports.transcripts import TranscriptStore

_CHUNK_BYTES = 256 * 1024
_PAGE = 200
_BATCH = 500
_EVERYTHING = ItemFilter(show_hidden=True)


@dataclass(frozen=True)
class ExportProgress:
    """How far an export is."""

    conversations: int
    items: int
    total_conversations: int


ExportEvent: TypeAlias = bytes | ExportProgress
"""Some whole lines, or how far the export is."""


@dataclass(frozen=True)
class ImportProgress:
    """How far an import is, and what it has done."""

    lines: int
    total_lines: int
    conversations_created: int = 0
    conversations_skipped: int = 0
    items_created: int = 0
    items_skipped: int = 0


@dataclass(frozen=True)
class ExportWanted:
    """What to export: these conversations, or all, and what else."""

    ids: Sequence[UUID] = ()
    show_deleted: bool = False
    include_agents: bool = False
    """The agents' own threads, together with all conversations."""


@dataclass(frozen=True)
class _Thread:
    """A conversation as the export shows it, and where its items are."""

    conversation: Conversation
    place: UUID


class Transfer:
    """Export and import. Memory stays bounded: an export streams, an import's request is limited."""

    def __init__(
        self,
        *,
        conversations: ConversationStore,
        items: ItemStore,
        transcripts: TranscriptStore,
        agents: AgentStore,
        clock: Clock,
        tokens: TokenCounter,
    ) -> None:
        self._conversations = conversations
        self._items = items
        self._transcripts = transcripts
        self._agents = agents
        self._clock = clock
        self._tokens = tokens

    async def export(self, user_id: UUID, wanted: ExportWanted) -> AsyncIterator[ExportEvent]:
        """The lines, with progress after every piece; the last event is the final progress."""
        agents = [_agent_thread(agent) for agent in await self._exported_agents(user_id, wanted)]
        total = len(wanted.ids) or len(agents) + await self._total(user_id, wanted)
        buffer = bytearray()
        conversations = items = 0
        async for shown in self._shown(user_id, wanted, agents):
            if isinstance(shown, Item):
                buffer += item_line(shown)
                items += 1
            else:
                buffer += conversation_line(shown)
                conversations += 1
            if len(buffer) >= _CHUNK_BYTES:
                yield bytes(buffer)
                buffer.clear()
                yield ExportProgress(conversations, items, total)
        if buffer:
            yield bytes(buffer)
        yield ExportProgress(conversations, items, total)

    async def import_(self, user_id: UUID, jsonl: bytes) -> AsyncIterator[ImportProgress]:
        """Check every line, then store; the last event is the final one."""
        lines = await self._checked(user_id, jsonl)
        done = ImportProgress(0, len(lines))
        for key, group in groupby(lines, _run):
            run = list(group)
            for start in range(0, len(run), _BATCH):
                batch = run[start : start + _BATCH]
                done = await self._store(user_id, key, batch, done)
                yield done
        if not lines:
            yield done

    async def _store(
        self, user_id: UUID, conversation_id: UUID | None, batch: list[Line], done: ImportProgress
    ) -> ImportProgress:
        created = skipped = items = 0
        if conversation_id is None:
            for line in batch:
                assert isinstance(line, ConversationLine)
                new = await self._conversations.restore(user_id, line.conversation)
                created, skipped = created + new, skipped + (not new)
        else:
            drafts = await self._drafts(batch)
            items = await self._items.restore(user_id, conversation_id, drafts)
        stored = 0 if conversation_id is None else len(batch)
        return ImportProgress(
            lines=done.lines + len(batch),
            total_lines=done.total_lines,
            conversations_created=done.conversations_created + created,
            conversations_skipped=done.conversations_skipped + skipped,
            items_created=done.items_created + items,
            items_skipped=done.items_skipped + stored - items,
        )

    async def _checked(self, user_id: UUID, jsonl: bytes) -> list[Line]:
        numbered: list[tuple[int, Line]] = []
        known: set[UUID] = set()
        pauses = Pauses()
        for number, raw in enumerate(BytesIO(jsonl), 1):
            await pauses.take()
            if not raw.strip():
                continue
            try:
                line = parse_line(raw)
                await self._check(user_id, line, known)
            except LineError as error:
                raise invalid("jsonl", f"line {number} {error}") from None
            except SageError as error:
                raise invalid("jsonl", f"line {number}: {error.message}") from None
            numbered.append((number, line))
        created = {
            line.conversation.id: number for number, line in numbered if isinstance(line, ConversationLine)
        }
        for taken in await self._conversations.reserved(user_id, list(created)):
            raise invalid("jsonl", f"line {created[taken]}: the id cannot be used")
        return [line for _, line in numbered]

    async def _check(self, user_id: UUID, line: Line, known: set[UUID]) -> None:
        """An item must belong to a conversation of a line above or of the store."""
        now = self._clock.now()
        if isinstance(line, ConversationLine):
            check_times(line.conversation, now)
            known.add(line.conversation.id)
            return
        check_new_items([line.item], now)
        if line.conversation_id not in known:
            await self._conversations.get(user_id, line.conversation_id)
            known.add(line.conversation_id)

    async def _drafts(self, lines: Sequence[Line]) -> list[DraftItem]:
        now, drafts, pauses = self._clock.now(), [], Pauses()
        for line in lines:
            if isinstance(line, ItemLine):
                drafts.append(draft(line.item, line.id, self._tokens.count(line.item.text), now))
                await pauses.take()
        return drafts

    async def _total(self, user_id: UUID, wanted: ExportWanted) -> int:
        total = await self._conversations.count(user_id, deleted=False)
        if wanted.show_deleted:
            total += await self._conversations.count(user_id, deleted=True)
        return total

    async def _exported_agents(self, user_id: UUID, wanted: ExportWanted) -> list[Agent]:
        if not wanted.include_agents:
            return []
        return [agent for agent in await self._agents.list(user_id) if agent.message_count]

    async def _threads(
        self, user_id: UUID, wanted: ExportWanted, agents: Sequence[_Thread]
    ) -> AsyncIterator[_Thread]:
        for thread in agents:
            yield thread
        async for conversation in self._selected(user_id, wanted.ids, show_deleted=wanted.show_deleted):
            yield _Thread(conversation, conversation.id)

    async def _shown(
        self, user_id: UUID, wanted: ExportWanted, agents: Sequence[_Thread]
    ) -> AsyncIterator[Conversation | Item]:
        """Each conversation, followed by its items."""
        async for thread in self._threads(user_id, wanted, agents):
            yield thread.conversation
            async for item in self._items_of(user_id, thread):
                yield item

    async def _items_of(self, user_id: UUID, thread: _Thread) -> AsyncIterator[Item]:
        after: int | None = 0
        while after is not None:
            page = await self._transcripts.items(user_id, thread.place, _EVERYTHING, _BATCH, after)
            for item in page.rows:
                yield replace(item, conversation_id=thread.conversation.id)
            after = page.next

    async def _selected(
        self, user_id: UUID, ids: Sequence[UUID], *, show_deleted: bool
    ) -> AsyncIterator[Conversation]:
        for conversation_id in ids:
            conversation = await self._conversations.get(user_id, conversation_id)
            if conversation.deleted_at is not None and not show_deleted:
                raise not_found("conversation")
            yield conversation
        if ids:
            return
        for deleted in (False, True) if show_deleted else (False,):
            after = None
            while True:
                page = await self._conversations.list(
                    user_id, order=ConversationOrder.CREATED, deleted=deleted, size=_PAGE, after=after
                )
                for conversation in page.rows:
                    yield conversation
                after = page.next
                if after is None:
                    break


def _agent_thread(agent: Agent) -> _Thread:
    # An id of its own: the thread's is the server's own affair, and an import would refuse it.
    line = Conversation(
        id=uuid5(agent.conversation_id, "export"),
        title=agent.name,
        metadata={"agent": agent.name},
        private=agent.memory_mode is MemoryMode.ISOLATED,
        memory=ConversationMemory.AGENT,
        created_at=agent.created_at,
        updated_at=agent.updated_at,
    )
    return _Thread(line, agent.conversation_id)


def _run(line: Line) -> UUID | None:
    """Neighbours that can be stored together: conversations, or items of one conversation."""
    return None if isinstance(line, ConversationLine) else line.conversation_id
