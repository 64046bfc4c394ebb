"""What a tool is, and what it works on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from sage_server.domain.agents import Agent
from sage_server.domain.blocks import Block, BlockActor, BlockActorKind
from sage_server.domain.events import Retrieved
from sage_server.domain.flags import Feature
from sage_server.domain.grounding import is_grounded
from sage_server.domain.memories import Memory, MemoryTrust
from sage_server.domain.turns import BY_A_PERSON, ToolOutcome, Turn
from sage_server.engine.model_calls import Spending
from sage_server.ports.language_model import JsonSchema
from sage_server.ports.transcripts import Thread

PERSONA = "persona"
"""The block that says who the agent is. Only a user's own words may lead to its change."""
NOT_LED = "Others' words are in view here, and the user's own message does not ask for this."
MAX_OUTPUT = 100_000
"""Characters of an output, as the contract promises."""
MAX_STEP_OUTPUT = 200_000
"""Characters of all outputs of a step together."""


class Arguments(BaseModel):
    """Typed arguments of a tool. A name that is not known is an error: it is a misspelt one."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=MAX_OUTPUT)


A = TypeVar("A", bound=Arguments)


@dataclass(frozen=True)
class ToolResult:
    """What a tool answers: an outcome, and a text that the model reads."""

    outcome: ToolOutcome
    output: str
    block_id: UUID | None = None
    memory_id: UUID | None = None
    retrieved: Retrieved | None = None
    external: bool = False
    """Whether the output holds words that are neither the user's nor an agent's."""
    ends: bool = False
    """Whether the turn ends with this step."""


def refused(why: str) -> ToolResult:
    """A rule forbids it. Nothing changed."""
    return ToolResult(ToolOutcome.REFUSED, why)


def wrong(why: str) -> ToolResult:
    """The arguments are wrong. Nothing changed."""
    return ToolResult(ToolOutcome.INVALID, why)


@dataclass
class Desk:
    """What the tools of one step work on. What they change here is stored with the step, or not at all."""

    user_id: UUID
    agent: Agent
    turn: Turn
    thread: Thread
    now: datetime
    spending: Spending
    blocks: dict[str, Block]
    """Those that the agent sees, by label."""
    writes_left: int
    notes: tuple[str, ...] | None = None
    """The thread's scratchpad, once somebody has read it."""
    message: str = ""
    """What the user wrote to begin the turn."""
    tainted: bool = False
    """Whether the steps before this one have read words that are neither the user's nor an agent's."""
    call_id: str = ""
    edited: dict[str, Block] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    """Labels of edited blocks that are new: an agent's own version of a shared one."""
    inserted: list[Memory] = field(default_factory=list)
    notes_written: bool = False
    writes: int = 0
    told: int = 0
    """Characters of the outputs so far."""

    def led_by_user(self, wanted: str) -> bool:
        """Whether the user's own words lead here. Where others' words are in view, what is wanted must be in
        the user's message: nothing may follow from those others' words alone."""
        if self.turn.origin not in BY_A_PERSON:
            return False
        return not self.others_in_view or is_grounded(wanted, self.message)

    @property
    def others_in_view(self) -> bool:
        """Whether words that are neither the user's nor an agent's were read here, in this turn or before."""
        return self.tainted or self.thread.tainted

    @property
    def actor(self) -> BlockActor:
        """Who changes blocks here."""
        return BlockActor(BlockActorKind.AGENT, self.agent.id, self.turn.id)

    @property
    def trust(self) -> MemoryTrust:
        """Of what is written here: what follows from others' words is no more to be trusted than they are."""
        return MemoryTrust.EXTERNAL if self.others_in_view else MemoryTrust.AGENT

    def take_write(self) -> ToolResult | None:
        """Count a change of memory, or refuse it."""
        if self.writes >= self.writes_left:
            return refused("This turn has changed memory as often as it may.")
        self.writes += 1
        return None


class Tool(ABC, Generic[A]):
    """A function that an agent may call."""

    name: ClassVar[str]
    description: ClassVar[str]
    arguments: type[A]
    feature: ClassVar[Feature | None] = None
    """The flag beside TOOLS that switches it off."""
    has_effects: ClassVar[bool] = False
    of_memory: ClassVar[bool] = False
    """Whether it reaches beyond the thread, into the user's memory."""

    @abstractmethod
    async def run(self, arguments: A, desk: Desk) -> ToolResult:
        """Do it. Must raise SageError only for what is no fault of the model's, and change nothing then."""

    @property
    def schema(self) -> JsonSchema:
        """Of the arguments."""
        schema = self.arguments.model_json_schema()
        _untitle(schema)
        return schema

    async def call(self, arguments_json: str, desk: Desk) -> ToolResult:
        """Read the arguments and do it; wrong ones come back as a result that says what was wrong."""
        try:
            arguments = self.arguments.model_validate_json(arguments_json)
        except ValidationError as error:
            return wrong(_problems(error))
        return await self.run(arguments, desk)


def _problems(error: ValidationError) -> str:
    problems = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "Wrong arguments. " + "; ".join(problems)


def _untitle(schema: dict[str, object]) -> None:
    """Titles repeat the names, for tokens."""
    schema.pop("title", None)
    schema.pop("description", None)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for inner in properties.values():
            inner.pop("title", None)
