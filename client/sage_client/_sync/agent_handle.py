# Generated from client/sage_client/_async/agent_handle.py by scripts/sync_client.py: do not edit.
"""One agent, to talk to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Unpack
from uuid import uuid4

from sage.v1 import agent_service_pb2 as pb
from sage_client._sync.agents import Agents
from sage_client._sync.chat import Chat
from sage_client._sync.transport import Transport
from sage_client._wire.agent_enums import on_busy_to
from sage_client._wire.progress import TurnProgress
from sage_client.models.agents import Agent, AgentSettings, ClearedThread, ContextPreview, ToolInfo
from sage_client.models.items import Item, ItemKind, ItemOrder
from sage_client.models.turns import OnBusy

if TYPE_CHECKING:
    from sage.v1.agent_service_pb2_grpc import AgentServiceStub


class AgentHandle:
    """`client.agent(name)`: one agent. Making it asks the server nothing."""

    def __init__(self, transport: Transport, stub: AgentServiceStub, agents: Agents, name: str) -> None:
        self.name = name
        self._transport = transport
        self._stub = stub
        self._agents = agents

    def chat(
        self,
        input: str,  # noqa: A002 -- as the contract names it
        *,
        on_busy: OnBusy = OnBusy.QUEUE,
        deltas: bool = False,
        store: bool = True,
        request_id: str | None = None,
    ) -> Chat:
        """Send a message: iterate over what happens, or take `chat.text()`.

        Sends a request id, the same on every attempt, so that a retry never runs the turn twice. Give your
        own `request_id` (a UUID) to be as safe across restarts of your program.

        - `on_busy`: what to do while another turn runs in the agent's thread.
        - `deltas`: True for words as the model produces them.
        - `store`: False keeps message and answer out of recall; they stay in the thread.
        """
        request = pb.ChatRequest(
            agent=self.name,
            input=input,
            request_id=request_id or str(uuid4()),
            on_busy=on_busy_to(on_busy),
            include_deltas=deltas,
            store=store,
        )
        begin = partial(self._transport.stream_once, self._stub.Chat, request)
        return Chat(self._transport, self._stub, TurnProgress(), deltas=deltas, begin=begin)

    def get(self) -> Agent:
        """Read its settings. NotFound for `main` until it has been enabled once."""
        return self._agents.get(self.name)

    def enable(self, **settings: Unpack[AgentSettings]) -> Agent:
        """Let it run turns, and change what is given of its settings.

        Enabling `main` for the first time creates it, its thread and the blocks `persona` and `human`.
        """
        settings["enabled"] = True
        return self._agents.update(self.name, **settings)

    def preview_context(
        self,
        *,
        input: str = "",  # noqa: A002 -- as the contract names it
        conversation_id: str = "",
    ) -> ContextPreview:
        """What the next turn would send to the model. Calls none and stores nothing."""
        return self._agents.preview_context(self.name, input=input, conversation_id=conversation_id)

    def tools(self, *, page_size: int = 0) -> Iterator[ToolInfo]:
        """All its tools by name, also those that a flag switches off, fetched while you iterate."""
        return self._agents.tools(self.name, page_size=page_size)

    def items(
        self,
        *,
        order: ItemOrder = ItemOrder.OLDEST_FIRST,
        kinds: Iterable[ItemKind] = (),
        show_hidden: bool = False,
        page_size: int = 0,
    ) -> Iterator[Item]:
        """The history of its own thread, fetched while you iterate. No `kinds` means all of them."""
        return self._agents.items(
            self.name, order=order, kinds=kinds, show_hidden=show_hidden, page_size=page_size
        )

    def clear(self) -> ClearedThread:
        """Delete all of its own thread, for good. Aborted while a turn runs or waits in it."""
        return self._agents.clear(self.name)
