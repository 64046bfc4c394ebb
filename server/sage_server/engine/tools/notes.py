"""Tools for the thread's notes, and the one that ends a turn."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sage_server.domain.turns import ToolOutcome
from sage_server.engine.json_lines import json_line
from sage_server.engine.tools.tool import Arguments, Desk, Tool, ToolResult
from sage_server.ports.scratchpads import ScratchpadStore

_Note = Annotated[str, Field(min_length=1, max_length=240)]


class NoArguments(Arguments):
    """Of tools that take none."""


class NotesArguments(Arguments):
    """Of scratchpad_write."""

    items: tuple[_Note, ...] = Field(
        description="All notes from now on: at most 32 of up to 240 characters.", max_length=32
    )


class ScratchpadRead(Tool[NoArguments]):
    """Reads the notes."""

    name = "scratchpad_read"
    description = "Read your notes of this conversation."
    arguments = NoArguments

    def __init__(self, scratchpads: ScratchpadStore) -> None:
        self._scratchpads = scratchpads

    async def run(self, arguments: NoArguments, desk: Desk) -> ToolResult:  # noqa: ARG002
        """See Tool."""
        notes = await _notes(self._scratchpads, desk)
        return ToolResult(ToolOutcome.OK, json_line(notes))


class ScratchpadWrite(Tool[NotesArguments]):
    """Replaces the notes."""

    name = "scratchpad_write"
    description = "Replace your notes of this conversation, all of them."
    arguments = NotesArguments
    has_effects = True

    async def run(self, arguments: NotesArguments, desk: Desk) -> ToolResult:
        """See Tool."""
        too_much = desk.take_write()
        if too_much is not None:
            return too_much
        desk.notes, desk.notes_written = arguments.items, True
        return ToolResult(ToolOutcome.OK, f"You have {len(arguments.items)} notes.")


class ScratchpadClear(Tool[NoArguments]):
    """Removes the notes."""

    name = "scratchpad_clear"
    description = "Remove all your notes of this conversation."
    arguments = NoArguments
    has_effects = True

    async def run(self, arguments: NoArguments, desk: Desk) -> ToolResult:  # noqa: ARG002
        """See Tool."""
        too_much = desk.take_write()
        if too_much is not None:
            return too_much
        desk.notes, desk.notes_written = (), True
        return ToolResult(ToolOutcome.OK, "You have no notes.")


class EndTurn(Tool[NoArguments]):
    """Ends the turn."""

    name = "done"
    description = "End your turn when there is nothing more to say or to do."
    arguments = NoArguments

    async def run(self, arguments: NoArguments, desk: Desk) -> ToolResult:  # noqa: ARG002
        """See Tool."""
        return ToolResult(ToolOutcome.OK, "The turn ends.", ends=True)


async def _notes(scratchpads: ScratchpadStore, desk: Desk) -> tuple[str, ...]:
    if desk.notes is None:
        own = desk.thread.agent_id is not None
        desk.notes = (await scratchpads.get(desk.user_id, desk.thread.id, own=own)).items
    return desk.notes
