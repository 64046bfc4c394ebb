"""A talk with an agent: messages, and commands that begin with a slash."""

from __future__ import annotations

import sys

from sage_client import Chat
from sage_client.cli import failures, memory_view, plain
from sage_client.cli.context import show as show_context
from sage_client.cli.event_lines import parts
from sage_client.cli.interrupts import CtrlC
from sage_client.cli.session import Session, first
from sage_client.cli.undo import Edits
from sage_client.cli.words import Words, Wrapped
from sage_client.errors import SageError
from sage_client.models.events import (
    TurnAccepted,
    TurnCancelled,
    TurnDelta,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnMessage,
    TurnRetrieval,
    TurnToolResult,
)
from sage_client.models.memory import MemoryFilter, MemorySource

HELP = (
    ("/memory", "core memory, and the newest archival memories"),
    ("/search WORDS", "search memory"),
    ("/context", "what the agent would be sent next"),
    ("/undo", "take back the agent's last change of core memory in this session"),
    ("/help", "this"),
    ("\\", "at the end of a line: the message goes on with the next one"),
    ('"""', "alone on a line: the message is all lines up to another of these"),
    ("/quit", "leave; so does Ctrl-D"),
    ("Ctrl-C", "cancel the turn that runs; twice leaves"),
)


class Talk:
    """What is said to one agent, in its own thread or in a conversation."""

    def __init__(self, session: Session, agent: str, conversation: str) -> None:
        self._session = session
        self._output = session.output
        self._agent = agent
        self._conversation = conversation
        self._edits = Edits(agent)
        self._found: set[str] = set()

    def take(self, text: str) -> int | None:
        """What the user typed: a message, or a command on one line. The exit code if it were the last, or
        None to leave. What fails is told, and the talk goes on."""
        line = text.strip()
        if line in {"/quit", "/exit"}:
            return None
        try:
            return self._command(line) if line.startswith("/") and "\n" not in line else self.say(text)
        except SageError as error:
            return failures.show(self._output, error, self._session.address)

    def say(self, text: str) -> int:
        """Send a message and show what happens. The exit code: 0, 1 or 130."""
        client, deltas = self._session.patient, not self._output.json
        if self._conversation:
            chat = client.conversations.continue_(self._conversation).respond(text, deltas=deltas)
        else:
            chat = client.agent(self._agent).chat(text, deltas=deltas)
        with CtrlC(chat) as ctrl_c:
            last = self._follow(chat, ctrl_c)
        self._edits.turns.add(chat.turn_id)
        if isinstance(last, TurnCancelled) and ctrl_c.asked:
            return failures.INTERRUPTED
        return 0 if isinstance(last, TurnDone) else failures.FAILED

    def _follow(self, chat: Chat, ctrl_c: CtrlC) -> TurnEvent | None:
        width = self._output.out.width if self._output.out.is_terminal else None
        words = Words(Wrapped(_write, width))
        last: TurnEvent | None = None
        try:
            for event in chat:
                last = event
                self._show(event, words)
                ctrl_c.event_seen()
        finally:
            words.pause()
        return last

    def _show(self, event: TurnEvent, words: Words) -> None:
        if self._output.json:
            self._output.record(plain.event_plain(event))
            return
        match event:
            case TurnDelta():
                words.delta(event)
                return
            case TurnMessage():
                words.message(event)
                return
        words.pause()
        match event:
            case TurnAccepted():
                if event.queue_position:
                    self._output.step(f"waits for {event.queue_position} before it")
            case TurnFailed():
                failures.show_turn(self._output, event)
            case TurnToolResult() if event.call_id in self._found:
                # The line about what was found says it better.
                return
            case _:
                if isinstance(event, TurnRetrieval):
                    self._found.add(event.call_id)
                if said := parts(event):
                    self._output.step("  ", *said)

    def _command(self, line: str) -> int:
        name, _, rest = line.partition(" ")
        match name:
            case "/memory":
                self._memory()
            case "/search" if rest.strip():
                self._search(rest.strip())
            case "/context":
                self._context()
            case "/undo":
                return self._undo()
            case "/help":
                if not self._record(dict(HELP)):
                    self._output.pairs(HELP)
            case _:
                self._output.problem(
                    f"{name} needs words" if name == "/search" else f"no command {name}: /help"
                )
                return failures.FAILED
        return 0

    def _memory(self) -> None:
        memory = self._session.client.memory
        # Without an agent's own, `main` sees all that is shared.
        blocks = list(memory.blocks.list(agent=self._agent))
        memories, _ = first(memory.list(MemoryFilter(sources=[MemorySource.ARCHIVAL])), 10)
        if not self._record({"blocks": blocks, "memories": memories}):
            memory_view.listing(self._output, blocks, memories)

    def _search(self, query: str) -> None:
        found = self._session.client.memory.search(query, top_k=5, fully_consistent=True)
        if not self._record(found):
            memory_view.results(self._output, found)

    def _context(self) -> None:
        agents = self._session.client.agents
        preview = agents.preview_context(self._agent, conversation_id=self._conversation)
        if not self._record(preview):
            show_context(self._output, preview)

    def _undo(self) -> int:
        block, said = self._edits.undo(self._session.client)
        if block is None:
            self._output.problem(said)
            return failures.FAILED
        if not self._record(block):
            self._output.done(said)
            memory_view.block(self._output, block)
        return 0

    def _record(self, value: object) -> bool:
        if self._output.json:
            self._output.record(plain.plain(value))
        return self._output.json


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
