"""Tools that edit core memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TypeVar

from pydantic import Field

from sage_server.domain.agents import MemoryMode
from sage_server.domain.blocks import Block, BlockBase, BlockChange
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.ids import new_id
from sage_server.domain.labels import normalise_label
from sage_server.domain.turns import ToolOutcome
from sage_server.engine.tools.tool import NOT_LED, PERSONA, Arguments, Desk, Tool, ToolResult, refused, wrong


class _Label(Arguments, ABC):
    label: str = Field(description="The label of the block.", min_length=1, max_length=64)

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What the block is to say."""


class AppendArguments(_Label):
    """Of memory_append."""

    text: str = Field(description="What to add at the end, on a line of its own.", min_length=1)

    @property
    def wanted(self) -> str:
        """See _Label."""
        return self.text


class ReplaceArguments(_Label):
    """Of memory_replace."""

    old: str = Field(description="Text that stands in the block exactly once.", min_length=1)
    new: str = Field(description="What to put in its place. Empty removes it.")

    @property
    def wanted(self) -> str:
        """See _Label. What is only removed must be asked for too."""
        return self.new or self.old


class InsertArguments(_Label):
    """Of memory_insert."""

    text: str = Field(description="What to insert, as lines of its own.", min_length=1)
    line: int = Field(
        description="After how many lines: 0 for the beginning, -1 for the end.", ge=-1, le=100_000
    )

    @property
    def wanted(self) -> str:
        """See _Label."""
        return self.text


A = TypeVar("A", bound=_Label)


class _BlockTool(Tool[A]):
    """Changes one block."""

    has_effects = True
    of_memory = True

    @abstractmethod
    def edited(self, value: str, arguments: A) -> str | ToolResult:
        """The new value, or why there is none."""

    async def run(self, arguments: A, desk: Desk) -> ToolResult:
        """See Tool."""
        label = normalise_label(arguments.label)
        block = desk.blocks.get(label)
        if block is None:
            known = ", ".join(sorted(desk.blocks)) or "none"
            return wrong(f"There is no block with this label. The labels are: {known}.")
        if block.read_only:
            return refused("This block is read-only.")
        if label == PERSONA and not desk.led_by_user(arguments.wanted):
            return refused(NOT_LED)
        value = self.edited(block.value, arguments)
        if isinstance(value, ToolResult):
            return value
        return _store(desk, label, block, value)


class MemoryAppend(_BlockTool[AppendArguments]):
    """Adds to the end of a block."""

    name = "memory_append"
    description = "Add a line to the end of a block of your core memory."
    arguments = AppendArguments

    def edited(self, value: str, arguments: AppendArguments) -> str:
        """See _BlockTool."""
        return f"{value}\n{arguments.text}" if value else arguments.text


class MemoryReplace(_BlockTool[ReplaceArguments]):
    """Replaces a text in a block."""

    name = "memory_replace"
    description = "Replace a text in a block of your core memory. The old text must occur exactly once."
    arguments = ReplaceArguments

    def edited(self, value: str, arguments: ReplaceArguments) -> str | ToolResult:
        """See _BlockTool."""
        found = value.count(arguments.old)
        if found == 0:
            return wrong("The old text is not in the block. Copy it exactly.")
        if found > 1:
            return wrong(f"The old text is in the block {found} times. Give more of what is around it.")
        return value.replace(arguments.old, arguments.new)


class MemoryInsert(_BlockTool[InsertArguments]):
    """Inserts lines into a block."""

    name = "memory_insert"
    description = "Insert lines into a block of your core memory, at a place of your choice."
    arguments = InsertArguments

    def edited(self, value: str, arguments: InsertArguments) -> str | ToolResult:
        """See _BlockTool."""
        lines = value.split("\n") if value else []
        at = len(lines) if arguments.line == -1 else arguments.line
        if at > len(lines):
            return wrong(f"The block has only {len(lines)} lines.")
        return "\n".join([*lines[:at], arguments.text, *lines[at:]])


def _store(desk: Desk, label: str, block: Block, value: str) -> ToolResult:
    try:
        changed = block.changed(BlockChange(value=value), desk.now)
    except SageError as error:
        if error.reason is not Reason.BLOCK_LIMIT_EXCEEDED:
            raise
        return refused(
            f"The block would have {error.metadata['length']} characters, and may have "
            f"{error.metadata['limit']}. It is unchanged: shorten it first."
        )
    if changed is block:
        return ToolResult(ToolOutcome.OK, "The block is as it was.", block_id=block.id)
    too_much = desk.take_write()
    if too_much is not None:
        return too_much
    if desk.agent.memory_mode is MemoryMode.OVERLAY and block.agent_id is None:
        changed = replace(
            changed,
            id=new_id(desk.now),
            agent_id=desk.agent.id,
            revision=1,
            base=BlockBase(block.id, block.revision),
            created_at=desk.now,
        )
        desk.created.add(label)
    elif label in desk.edited:
        # One revision a step: what the step does to a block is one change.
        changed = replace(changed, revision=desk.edited[label].revision)
    desk.blocks[label] = desk.edited[label] = changed
    return ToolResult(
        ToolOutcome.OK,
        f"Done. The block has {len(value)} of {changed.char_limit} characters.",
        block_id=changed.id,
    )
