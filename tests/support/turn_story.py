"""Two messages to one agent: what the model makes of them, and what the callers are told."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import uuid4

import sage_client
from sage_client import AsyncChat, AsyncSageClient, CompactionMode, CompactionSettings, OnBusy, TurnEvent
from support.agents import answer, plain
from support.provider import FakeProvider, ProviderRequest, Step, chat_reply
from support.server import ChildServer

LINE = "Her name is Maria."
FACT = "Maria sows beans in May."
PROMPT_TOKENS = 7
"""Of each call for a step."""
EARLIER = ("one", "two", "three")
"""Messages in a thread that is too long."""
_SENT = ("I am Maria, and I sow beans.", "What is my name?")
_STEPS = (
    answer("Hello Maria.", calls=[("memory_append", {"label": "human", "text": LINE})]),
    answer(calls=[("archival_insert", {"text": FACT, "tags": ["garden"]})]),
    answer("Noted.", calls=[("scratchpad_write", {"items": ["beans"]})]),
    answer("Until tomorrow.", calls=[("done", {})]),
)
"""Of the first message's turn; that of the second is one answer."""


class Story(StrEnum):
    """What happens until the server is gone."""

    QUEUED = "queued"
    """The second message waits for the first turn."""
    COMPACTED = "compacted"
    """As QUEUED, in a thread that is too long."""
    SLOW = "slow"
    """As QUEUED, and the model is silent in the second step of the first turn, here and in what follows."""
    CANCELLED = "cancelled"
    """The first turn is cancelled."""
    INTERRUPTED = "interrupted"
    """The second message interrupts the first turn."""
    STOPPED = "stopped"
    """The server is told to stop."""

    @property
    def at_once(self) -> bool:
        """Whether the model answers as soon as both messages are sent."""
        return self in (Story.QUEUED, Story.COMPACTED)


@dataclass
class Witness:
    """A model that knows from what it is sent what it has said already, as its calls may repeat; and callers
    who write down what they are told."""

    story: Story
    provider: FakeProvider
    told: tuple[list[TurnEvent], list[TurnEvent]] = field(default_factory=lambda: ([], []))
    requests: tuple[str, str] = field(default_factory=lambda: (str(uuid4()), str(uuid4())))
    waited_for: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the model is silent."""
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets the model speak."""

    def __post_init__(self) -> None:
        self.provider.chat = self._answer

    def _answer(self, request: ProviderRequest) -> Step:
        system, said = (message["content"] for message in request.body["messages"])
        if system.startswith("You summarise"):
            return chat_reply(f"They talked, {len(self.provider.requests)} times.")
        lines = [json.loads(line) for line in said.rpartition("Now:\n")[2].splitlines()]
        if lines[0]["text"] != _SENT[0]:
            return chat_reply(answer(f"You said: {lines[0]['text']}"), usage=(PROMPT_TOKENS, 5))
        taken = sum(line["role"] == "tool_output" for line in lines)
        reply = chat_reply(_STEPS[taken], usage=(PROMPT_TOKENS, 5))
        if taken != (0 if self.story.at_once else 1):
            return reply

        async def wait(request: ProviderRequest) -> Any:
            self.waited_for.set()
            await self.goes_on.wait()
            return await reply(request)

        return wait

    def send(self, client: AsyncSageClient, number: int) -> AsyncChat:
        """Send one of the messages, for the first time or again."""
        interrupts = number == 1 and self.story is Story.INTERRUPTED
        return client.agent("main").chat(
            _SENT[number],
            request_id=self.requests[number],
            on_busy=OnBusy.INTERRUPT if interrupts else OnBusy.QUEUE,
        )

    async def act(self, client: AsyncSageClient, child: ChildServer) -> None:
        """Send both messages, do what the story says, and listen until the server is gone."""
        async with asyncio.TaskGroup() as tasks:
            gone = tasks.create_task(child.ended(60))
            first = tasks.create_task(self._listen(client, 0))
            silent = tasks.create_task(self.waited_for.wait())
            await asyncio.wait((silent, first, gone), return_when=asyncio.FIRST_COMPLETED)
            silent.cancel()
            second = tasks.create_task(self._listen(client, 1))
            while not (self.told[1] or second.done()):  # noqa: ASYNC110 (a list has no event)
                await asyncio.sleep(0.01)
            if self.story is Story.CANCELLED:
                with suppress(sage_client.SageError):
                    await client.turns.cancel(self.told[0][0].turn_id)
            elif self.story is Story.STOPPED:
                child.send(signal.SIGTERM)
            elif self.story.at_once:
                self.goes_on.set()
        self.goes_on.set()

    async def _listen(self, client: AsyncSageClient, number: int) -> None:
        with suppress(sage_client.SageError):
            async for event in self.send(client, number):
                self.told[number].append(plain(event))


async def make_too_long(client: AsyncSageClient) -> None:
    """Give the main agent a thread that its next turn has to compact."""
    await client.agent("main").enable()
    for text in EARLIER:
        await client.agent("main").chat(text).text()
    rules = CompactionSettings(mode=CompactionMode.MESSAGES, message_threshold=4, keep_newest=2)
    await client.agent("main").enable(compaction=rules)
