"""AgentService, the turns: decode, one call, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from uuid import UUID

from sage.v1 import agent_pb2
from sage.v1 import agent_service_pb2 as pb
from sage.v1 import conversation_service_pb2 as conversation_pb
from sage_server.domain.agents import MAIN
from sage_server.domain.identity import Caller
from sage_server.domain.paging import page_size
from sage_server.domain.turns import Turn
from sage_server.rpc.event_mapping import TurnEvents
from sage_server.rpc.mapping import once
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.rpc.page_tokens import PageTokens, decode_id, encode_id
from sage_server.rpc.turn_mapping import from_on_busy, from_turn_filter, to_preview, to_tool, to_turn
from sage_server.services.agent_contexts import AgentContexts
from sage_server.services.turns import Message, Turns


class TurnServicer:
    """Messages to agents and what becomes of them."""

    def __init__(
        self,
        turns: Turns,
        contexts: AgentContexts,
        events: TurnEvents,
        pages: PageTokens,
        tokens: MemoryTokens,
    ) -> None:
        self._turns = turns
        self._contexts = contexts
        self._events = events
        self._pages = pages
        self._tokens = tokens

    async def chat(self, request: pb.ChatRequest, caller: Caller) -> AsyncIterator[pb.ChatResponse]:
        """The events of the turn until it ends."""
        message = Message(
            text=request.input,
            on_busy=from_on_busy(request.on_busy),
            deltas=request.include_deltas,
            store=request.store if request.HasField("store") else True,
        )
        events = self._turns.chat(caller.user_id, request.agent or MAIN, message, once(request))
        async with aclosing(events):
            async for event in events:
                yield pb.ChatResponse(event=await self._events.encode(caller.user_id, event))

    async def cancel_turn(self, request: pb.CancelTurnRequest, caller: Caller) -> pb.CancelTurnResponse:
        """The turn as it is now."""
        turn = await self._turns.cancel(caller.user_id, UUID(request.turn_id))
        return pb.CancelTurnResponse(turn=await self._turn(caller.user_id, turn))

    async def get_turn(self, request: pb.GetTurnRequest, caller: Caller) -> pb.GetTurnResponse:
        """One turn."""
        turn = await self._turns.get(caller.user_id, UUID(request.turn_id))
        return pb.GetTurnResponse(turn=await self._turn(caller.user_id, turn))

    async def list_turns(self, request: pb.ListTurnsRequest, caller: Caller) -> pb.ListTurnsResponse:
        """A page of turns."""
        user_id = caller.user_id
        agent_id = await self._turns.agent_id(user_id, request.agent) if request.agent else None
        page = await self._turns.list(
            user_id,
            from_turn_filter(request, agent_id),
            page_size(request.page_size),
            await self._pages.read(user_id, request, decode_id),
        )
        names = await self._turns.names(user_id)
        return pb.ListTurnsResponse(
            turns=[
                to_turn(
                    turn,
                    names.get(turn.agent_id, ""),
                    await self._tokens.write(user_id, turn.memory_revision),
                )
                for turn in page.rows
            ],
            next_page_token=await self._pages.write(user_id, request, encode_id(page.next)),
        )

    async def preview_context(
        self, request: pb.PreviewContextRequest, caller: Caller
    ) -> pb.PreviewContextResponse:
        """What the next turn would send."""
        preview = await self._contexts.preview(
            caller.user_id,
            request.agent or MAIN,
            UUID(request.conversation_id) if request.conversation_id else None,
            request.input,
        )
        return pb.PreviewContextResponse(preview=to_preview(preview))

    async def list_tools(self, request: pb.ListToolsRequest, caller: Caller) -> pb.ListToolsResponse:
        """A page of tools."""
        page = await self._contexts.tools(
            caller.user_id,
            request.agent or MAIN,
            page_size(request.page_size),
            await self._pages.read(caller.user_id, request, bytes.decode),
        )
        position = None if page.next is None else page.next.encode()
        return pb.ListToolsResponse(
            tools=[to_tool(tool) for tool in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, position),
        )

    async def _turn(self, user_id: UUID, turn: Turn) -> agent_pb2.Turn:
        names = await self._turns.names(user_id)
        token = await self._tokens.write(user_id, turn.memory_revision)
        return to_turn(turn, names.get(turn.agent_id, ""), token)


class RespondServicer:
    """ConversationService, the turns in threads."""

    def __init__(self, turns: Turns, events: TurnEvents) -> None:
        self._turns = turns
        self._events = events

    async def respond(
        self, request: conversation_pb.RespondRequest, caller: Caller
    ) -> AsyncIterator[conversation_pb.RespondResponse]:
        """The events of the turn until it ends."""
        message = Message(
            text=request.input,
            on_busy=from_on_busy(request.on_busy),
            deltas=request.include_deltas,
            store=request.store if request.HasField("store") else True,
            author=request.author,
        )
        thread = UUID(request.conversation_id)
        events = self._turns.respond(caller.user_id, thread, message, once(request))
        async with aclosing(events):
            async for event in events:
                shown = await self._events.encode(caller.user_id, event)
                yield conversation_pb.RespondResponse(event=shown)
