"""What a step does: its messages and tool calls, as items, events and effects that are stored together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sage_server.domain.conversations import DraftItem, Item, ItemKind, ToolInvocation
from sage_server.domain.events import NewEvent, Payload, Said, Silent, ToolAnswered, ToolCalled
from sage_server.domain.ids import new_id
from sage_server.domain.model_output import ModelOutput, RequestedCall
from sage_server.domain.turns import Turn
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.tools.tool import Desk, ToolResult
from sage_server.engine.tools.toolbox import OfferedTool, Toolbox
from sage_server.ports.memories import NewMemory, Space
from sage_server.ports.tokens import TokenCounter
from sage_server.ports.turns import BlockEdit

CUT_OFF = "Your answer was cut off. Go on where it ended, and call again what you had not called yet."


@dataclass
class Work:
    """What a step has done so far."""

    turn: Turn
    step: int
    now: datetime
    items: list[DraftItem] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)
    external: bool = False
    ends: bool = False
    """Whether the tool `done` was called."""

    def tell(self, payload: Payload, item: int | None = None) -> None:
        """An event of this step."""
        self.events.append(NewEvent(new_id(self.now), payload, self.step, item))

    def as_items(self) -> list[Item]:
        """The items as the next step reads them; their positions do not matter there."""
        return [shown(item, self.turn.conversation_id) for item in self.items]


@dataclass(frozen=True)
class Effects:
    """What the tools changed in memory."""

    blocks: Sequence[BlockEdit]
    memories: Sequence[NewMemory]
    space: Space | None
    notes: tuple[str, ...] | None
    writes: int


def shown(draft: DraftItem, conversation_id: UUID) -> Item:
    """An item as events show it; the store adds its position."""
    return Item(
        id=draft.id,
        conversation_id=conversation_id,
        seq=0,
        kind=draft.kind,
        text=draft.text,
        author=draft.author,
        token_count=draft.token_count,
        created_at=draft.created_at,
        hidden=draft.hidden,
        tool=draft.tool,
        turn_id=draft.turn_id,
        step=draft.step,
        agent_id=draft.agent_id,
        recalled=draft.recalled,
    )


class ToolWork:
    """Carries a model's output out."""

    def __init__(self, toolbox: Toolbox, writer: MemoryWriter, tokens: TokenCounter) -> None:
        self._toolbox = toolbox
        self._writer = writer
        self._tokens = tokens

    async def done(
        self,
        output: ModelOutput,
        offered: Sequence[OfferedTool],
        desk: Desk,
        step: int,
        answered: dict[str, ToolResult],
    ) -> tuple[Work, Effects]:
        """Say the messages and call the tools, in order. Nothing is stored yet.

        `answered` remembers what tools without effects have said, for the case that the step is done again.
        """
        work = Work(desk.turn, step, desk.now)
        for index, text in enumerate(output.messages):
            item = self._item(work, ItemKind.ASSISTANT, text)
            work.tell(Said(shown(item, desk.thread.id), index), len(work.items) - 1)
        for number, call in enumerate(output.tool_calls):
            desk.call_id = f"{desk.turn.id.hex[-12:]}-{step}-{number}"
            await self._call(work, call, offered, desk, answered)
        if output.cut_off:
            self._item(work, ItemKind.SYSTEM, CUT_OFF, hidden=True)
        if not output.messages and not output.tool_calls and not desk.turn.message_count:
            silent = self._item(work, ItemKind.ASSISTANT, "", hidden=True)
            work.tell(Silent(silent.id))
        return work, await self._effects(desk)

    async def _call(
        self,
        work: Work,
        call: RequestedCall,
        offered: Sequence[OfferedTool],
        desk: Desk,
        answered: dict[str, ToolResult],
    ) -> None:
        call_id = desk.call_id
        asked = self._item(
            work, ItemKind.TOOL_CALL, "", tool=ToolInvocation(call_id, call.name, call.arguments_json)
        )
        work.tell(ToolCalled(call_id, call.name, call.arguments_json, asked.id))
        started = time.perf_counter()
        result = answered.get(call_id) or await self._toolbox.call(call, offered, desk)
        if not any(tool.has_effects for tool in offered if tool.name == call.name):
            answered[call_id] = result
        took = timedelta(seconds=time.perf_counter() - started)
        self._answer(work, call, result, call_id, took)

    def _answer(
        self, work: Work, call: RequestedCall, result: ToolResult, call_id: str, took: timedelta
    ) -> None:
        answer = self._item(
            work, ItemKind.TOOL_OUTPUT, result.output, tool=ToolInvocation(call_id, call.name, "")
        )
        if result.retrieved is not None:
            work.tell(result.retrieved)
        work.tell(
            ToolAnswered(
                call_id=call_id,
                name=call.name,
                outcome=result.outcome,
                output=result.output,
                item_id=answer.id,
                block_id=result.block_id,
                memory_id=result.memory_id,
                duration=took,
            )
        )
        work.external |= result.external
        work.ends |= result.ends

    def _item(
        self,
        work: Work,
        kind: ItemKind,
        text: str,
        *,
        hidden: bool = False,
        tool: ToolInvocation | None = None,
    ) -> DraftItem:
        item = DraftItem(
            id=new_id(work.now),
            kind=kind,
            text=text,
            author="",
            token_count=self._tokens.count(text),
            created_at=work.now,
            hidden=hidden,
            tool=tool,
            turn_id=work.turn.id,
            step=work.step,
            agent_id=work.turn.agent_id,
            recalled=work.turn.store,
        )
        work.items.append(item)
        return item

    async def _effects(self, desk: Desk) -> Effects:
        blocks = [
            BlockEdit(block, desk.actor, created=label in desk.created)
            for label, block in desk.edited.items()
        ]
        notes = desk.notes if desk.notes_written else None
        if not desk.inserted:
            return Effects(blocks, (), None, notes, desk.writes)
        space = await self._writer.space(desk.user_id)
        texts = [memory.text for memory in desk.inserted]
        vectors = await self._writer.embed(desk.user_id, texts, space, desk.spending)
        model = "" if vectors is None else space.model
        memories = [
            NewMemory(memory._replace(embedding_model=model), None if vectors is None else vectors[at])
            for at, memory in enumerate(desk.inserted)
        ]
        return Effects(blocks, memories, space, notes, desk.writes)
