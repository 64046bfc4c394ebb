"""The context of a turn's next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from sage_server.domain.agents import Agent, MemoryMode
from sage_server.domain.blocks import MAX_BLOCKS, Block
from sage_server.domain.conversations import ConversationMemory, Item, ItemKind
from sage_server.domain.errors import not_found
from sage_server.domain.labels import normalise_label
from sage_server.domain.memories import MemorySource
from sage_server.domain.summaries import Summary
from sage_server.domain.turns import Turn
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.engine.prompt_window import NOTHING_OLDER, Known, Material, Older, PromptWindow, Window
from sage_server.engine.tools.toolbox import OfferedTool, Toolbox
from sage_server.ports.agents import AgentStore
from sage_server.ports.blocks import BlockStore
from sage_server.ports.memories import MemoryStore
from sage_server.ports.scratchpads import ScratchpadStore
from sage_server.ports.transcripts import Reach, Thread, TranscriptStore

_ITEM_TOKENS = 28
"""No item takes fewer in a context, besides those of its text: so many of them can be of use."""
_FEWEST, _MOST = 200, 5_000


@dataclass
class Transcript:
    """What was said in the thread, as far as it matters to one turn."""

    thread: Thread
    summary: Summary | None
    before: list[Item]
    """After the summary and before this turn."""
    own: list[Item]
    """The turn's message, and what it has stored since."""
    whole: bool
    """Whether `before` and `older` begin right after the summary."""
    older: Older = NOTHING_OLDER
    names: Mapping[UUID, str] = field(default_factory=dict)
    store: bool = True
    """False if nothing of the turn may be remembered."""

    @property
    def unsummarised(self) -> int:
        """How many items come after the summary and before this turn, as far as the thread was looked at."""
        return len(self.before) + self.older.count


@dataclass(frozen=True)
class StepContext:
    """What a step begins with."""

    agent: Agent
    window: Window
    blocks: Mapping[str, Block]
    """Those that the agent sees, by label."""
    tools: Sequence[OfferedTool]
    notes: tuple[str, ...]
    first_time: bool


class Contexts:
    """Reads what a context is made of, and builds it."""

    def __init__(
        self,
        *,
        agents: AgentStore,
        transcripts: TranscriptStore,
        blocks: BlockStore,
        scratchpads: ScratchpadStore,
        memories: MemoryStore,
        indexes: IndexCache,
        toolbox: Toolbox,
        window: PromptWindow,
    ) -> None:
        self._agents = agents
        self._transcripts = transcripts
        self._blocks = blocks
        self._scratchpads = scratchpads
        self._memories = memories
        self._indexes = indexes
        self._toolbox = toolbox
        self._window = window

    async def transcript(
        self, user_id: UUID, agent: Agent, conversation_id: UUID, turn: Turn | None
    ) -> Transcript:
        """The thread as a turn finds it. A message that waits for a later turn is not in it.

        Raises NOT_FOUND if the turn's own message is gone.
        """
        thread, summary = await self._transcripts.opened(user_id, conversation_id)
        room = agent.profile.max_context_tokens
        reach = Reach(
            after=0 if summary is None else summary.to_seq,
            items=min(max(room // _ITEM_TOKENS, _FEWEST), _MOST),
            tokens=room,
            each=_ITEM_TOKENS,
            turn_id=None if turn is None else turn.id,
            input_item_id=None if turn is None else turn.input_item_id,
        )
        recent = await self._transcripts.recent(user_id, conversation_id, reach)
        own = [item for item in recent.items if turn is not None and item.turn_id == turn.id]
        if turn is not None and turn.input_item_id not in (None, *(item.id for item in own[:1])):
            own.insert(0, await self._message(user_id, turn))
        return Transcript(
            thread=thread,
            summary=summary,
            before=[item for item in recent.items if turn is None or item.turn_id != turn.id],
            own=own,
            whole=len(recent.items) + recent.older_count < reach.items,
            older=Older(recent.older_count, recent.older_tokens),
            names={} if thread.agent_id == agent.id else await self._names(user_id),
            store=turn is None or turn.store,
        )

    async def build(self, user_id: UUID, agent: Agent, transcript: Transcript, now: datetime) -> StepContext:
        """The context of the next step. Raises CONTEXT_BUDGET_EXCEEDED."""
        thread = transcript.thread
        tools = await self._toolbox.offered(user_id, agent, thread, store=transcript.store)
        blocks = await self._visible_blocks(user_id, agent, thread)
        pad = await self._scratchpads.get(user_id, thread.id, own=thread.agent_id is not None)
        notes = tuple(pad.items)
        archival, recall = await self._counts(user_id)
        material = Material(
            agent=agent,
            now=now,
            blocks=list(blocks.values()),
            known=Known(archival, recall, notes, transcript.names),
            tools=tools,
            summary=transcript.summary,
            items=transcript.before,
            older=transcript.older,
            input=transcript.own,
            first_time=_is_first_time(agent, transcript),
        )
        window = self._window.build(material)
        return StepContext(agent, window, blocks, tools, notes, material.first_time)

    def with_input(self, transcript: Transcript, item: Item) -> Transcript:
        """As if this message had been sent."""
        return replace(transcript, own=[item])

    async def _message(self, user_id: UUID, turn: Turn) -> Item:
        """The message of a turn that is not among the newest items: a summary covers it, or much has been
        said since."""
        assert turn.input_item_id is not None
        found = await self._transcripts.item(user_id, turn.conversation_id, turn.input_item_id)
        if found is None:
            raise not_found("item")
        return found

    async def _visible_blocks(self, user_id: UUID, agent: Agent, thread: Thread) -> dict[str, Block]:
        """By label; an agent's own hides a shared one of the same label."""
        if thread.memory is ConversationMemory.NONE:
            return {}
        page = await self._blocks.list(user_id, agent_id=agent.id, size=MAX_BLOCKS, after=None)
        shared = agent.memory_mode is not MemoryMode.ISOLATED
        return {
            normalise_label(block.label): block
            for block in sorted(page.rows, key=lambda block: block.agent_id is not None)
            if shared or block.agent_id is not None
        }

    async def _counts(self, user_id: UUID) -> tuple[int, int]:
        """Memories that archival_search and conversation_search look through."""
        entry = self._indexes.peek(user_id)
        counts = await self._memories.counts(user_id) if entry is None else entry.index.counts()
        kept = counts.get(MemorySource.ARCHIVAL, 0) + counts.get(MemorySource.DOCUMENT, 0)
        return kept, counts.get(MemorySource.MESSAGE, 0)

    async def _names(self, user_id: UUID) -> dict[UUID, str]:
        return {agent.id: agent.name for agent in await self._agents.list(user_id)}


def _is_first_time(agent: Agent, transcript: Transcript) -> bool:
    """Whether the agent has never talked with the user, here or in another thread."""
    own, last = transcript.own, agent.last_turn_at
    if (
        transcript.summary is not None
        or transcript.older.count
        or any(item.kind is ItemKind.ASSISTANT for item in (*transcript.before, *own))
    ):
        return False
    return last is None or (bool(own) and last >= own[0].created_at)
