"""Everything of a user, into a file and out of it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence

from sage_client._async.agents import MAIN, AsyncAgents
from sage_client._async.conversations import AsyncConversations
from sage_client._async.memory import AsyncMemories
from sage_client._async.transfer import save
from sage_client._wire.takeout import (
    AgentLine,
    Begin,
    BlockLine,
    End,
    MemoryLine,
    TakeoutError,
    TakeoutLine,
    agent_line,
    begin_line,
    block_line,
    end_line,
    memory_key,
    memory_line,
    separated,
)
from sage_client.errors import NotFound
from sage_client.files import JsonlSource, pieces, source_size
from sage_client.models.memory import MemoryFilter, MemorySource, NewMemory
from sage_client.models.takeout import TakeoutCounts, TakeoutEvent, TakeoutImported
from sage_client.models.transfer import ExportChunk, ExportDone, ExportProgress, ImportProgress

_KEPT = (MemorySource.ARCHIVAL, MemorySource.DOCUMENT)
_BATCH = 200


class AsyncTakeout:
    """`client.takeout`: all that is stored of the user as JSON Lines, to read, to keep, and to bring along.

    Agents (without what names their server's models and limits), core memory, archival memories, chunks of
    documents, conversations with their items, and the agents' own threads. Summaries, indexes and revisions
    are not in it: they follow from the rest, or speak of it.
    """

    def __init__(self, agents: AsyncAgents, memory: AsyncMemories, conversations: AsyncConversations) -> None:
        self._agents = agents
        self._memory = memory
        self._conversations = conversations

    async def export(self) -> AsyncIterator[TakeoutEvent]:
        """All of it: chunks, progress of conversations between them, and TakeoutCounts at the end.

        An iterator that ends without an error has given all of it.
        """
        agents = [agent async for agent in self._agents.list()]
        yield ExportChunk(begin_line())
        for agent in agents:
            yield ExportChunk(agent_line(agent))
        counts = TakeoutCounts(agents=len(agents))
        names = {"": "", **{agent.id: agent.name for agent in agents}}
        async for block in self._memory.blocks.list(page_size=_BATCH):
            if block.agent_id in names:  # else its agent was deleted in this moment, and it with it
                yield ExportChunk(block_line(block, names[block.agent_id]))
                counts += TakeoutCounts(blocks=1)
        async for memory in self._memory.list(MemoryFilter(sources=_KEPT), page_size=_BATCH):
            if memory.agent_id in names:
                yield ExportChunk(memory_line(memory, names[memory.agent_id]))
                counts += TakeoutCounts(memories=1)
        async for event in self._conversations.export(show_deleted=True, include_agents=True):
            if isinstance(event, ExportDone):
                yield ExportChunk(end_line())
                yield counts + TakeoutCounts(conversations=event.conversations, items=event.items)
            else:
                yield event

    async def export_to(
        self,
        path: str | os.PathLike[str],
        *,
        on_progress: Callable[[ExportProgress], None] | None = None,
    ) -> TakeoutCounts:
        """Export to a file, readable by its owner only. It appears, or is replaced, when it is complete."""
        return await save(path, self.export(), on_progress, TakeoutCounts())

    async def import_(
        self, source: JsonlSource, *, on_progress: Callable[[ImportProgress], None] | None = None
    ) -> TakeoutImported:
        """Bring in what `export_to` wrote: bytes, or the path of a file.

        What is there already stays as it is, so an import that failed on the way can simply be repeated. A
        block that nobody has changed yet is filled. Agents' own threads become conversations, and chunks of
        documents archival memories: search finds both. Raises ValueError for a file that is none, and for one
        that was cut short, when all that is in it has been brought in.
        """
        done, bytes_done, total_bytes = TakeoutImported(), 0, source_size(source)
        known, ends = _Known(), True
        for piece in pieces(source):
            own, rest = separated(piece)
            ends = _ends(own, before=ends)
            for start in range(0, len(own), _BATCH):
                done += await self._take(own[start : start + _BATCH], known)
            threads = await self._conversations.import_piece(rest, bytes_done, total_bytes, on_progress)
            done += TakeoutImported(
                TakeoutCounts(conversations=threads.conversations_created, items=threads.items_created),
                TakeoutCounts(conversations=threads.conversations_skipped, items=threads.items_skipped),
            )
            bytes_done += len(piece.jsonl)
        if not ends:
            raise TakeoutError("the file was cut short: its end is missing")
        return done

    async def _take(self, lines: Sequence[TakeoutLine], known: _Known) -> TakeoutImported:
        done = TakeoutImported()
        memories: list[NewMemory] = []
        for line in lines:
            match line:
                case AgentLine():
                    done += _counted(TakeoutCounts(agents=1), created=await self._take_agent(line))
                case BlockLine():
                    done += await self._take_block(line)
                case MemoryLine():
                    memories.append(line.memory)
        return done + await self._take_memories(memories, known)

    async def _take_agent(self, line: AgentLine) -> bool:
        try:
            await self._agents.get(line.name)
        except NotFound:
            if line.name == MAIN:
                await self._agents.update(MAIN, **line.settings)
            else:
                await self._agents.create(line.name, **line.settings)
            return True
        return False

    async def _take_block(self, line: BlockLine) -> TakeoutImported:
        one = TakeoutCounts(blocks=1)
        blocks = self._memory.blocks
        try:
            there = await blocks.get(line.label, agent=line.agent)
        except NotFound:
            await blocks.create(
                line.label,
                line.value,
                agent=line.agent,
                description=line.description,
                char_limit=line.char_limit,
                read_only=line.read_only,
            )
            return TakeoutImported(created=one)
        if there.value == line.value:
            return TakeoutImported(skipped=one)
        if there.revision > 1:
            return TakeoutImported(skipped=one, different_blocks=(line.label,))
        await blocks.update(
            line.label,
            agent=line.agent,
            value=line.value,
            description=line.description,
            char_limit=line.char_limit,
            read_only=line.read_only,
            etag=there.etag,
        )
        return TakeoutImported(created=one)

    async def _take_memories(self, memories: Sequence[NewMemory], known: _Known) -> TakeoutImported:
        if not memories:
            return TakeoutImported()
        if known.memories is None:
            there = self._memory.list(MemoryFilter(sources=_KEPT), page_size=_BATCH)
            known.memories = {memory_key(one.text, one.create_time) async for one in there}
        keys = [memory_key(memory.text, memory.create_time) for memory in memories]
        new = [one for one, key in zip(memories, keys, strict=True) if key not in known.memories]
        if new:
            await self._memory.insert_many(new)
        known.memories.update(keys)
        return TakeoutImported(
            TakeoutCounts(memories=len(new)), TakeoutCounts(memories=len(memories) - len(new))
        )


class _Known:
    """The memories that are there. They are asked for when the first one is to be brought in."""

    def __init__(self) -> None:
        self.memories: set[tuple[str, str]] | None = None


def _ends(lines: Sequence[TakeoutLine], *, before: bool) -> bool:
    """Whether what was begun is ended."""
    for line in lines:
        match line:
            case Begin():
                before = False
            case End():
                before = True
    return before


def _counted(counts: TakeoutCounts, *, created: bool) -> TakeoutImported:
    return TakeoutImported(created=counts) if created else TakeoutImported(skipped=counts)
