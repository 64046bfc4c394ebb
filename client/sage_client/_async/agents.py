"""Agents and their settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Unpack
from uuid import uuid4

from sage.v1 import agent_service_pb2 as pb
from sage_client._async.paging import every
from sage_client._async.transport import AsyncTransport
from sage_client._wire.agent_enums import conflict_policy_to
from sage_client._wire.agents import agent_from, agent_update_to, new_agent_to, preview_from, tool_from
from sage_client._wire.conversations import item_from
from sage_client._wire.enums import item_order_to, kind_to
from sage_client._wire.overlays import change_from, merged_from
from sage_client._wire.values import texts_to
from sage_client.models.agents import (
    Agent,
    AgentMatch,
    AgentSettings,
    ClearedThread,
    ContextPreview,
    DeletedAgent,
    ToolInfo,
)
from sage_client.models.items import Item, ItemKind, ItemOrder
from sage_client.models.overlays import MergedOverlay, OverlayChange, OverlayConflictPolicy
from sage_client.models.page import Page
from sage_client.retry import Repeat

if TYPE_CHECKING:
    from sage.v1.agent_service_pb2_grpc import AgentServiceAsyncStub

MAIN = "main"


class AsyncAgents:
    """`client.agents`: the main agent and subagents. AgentSettings says what can be said about one.

    An agent goes by name or id. To talk to one, take `client.agent(name)`.
    """

    def __init__(self, transport: AsyncTransport, stub: AgentServiceAsyncStub) -> None:
        self._transport = transport
        self._stub = stub

    async def create(
        self, name: str, *, request_id: str | None = None, **settings: Unpack[AgentSettings]
    ) -> Agent:
        """Create a subagent. AlreadyExists if the name is taken. A name never changes."""
        request = new_agent_to(name, settings, request_id=request_id or str(uuid4()))
        response = await self._transport.unary(self._stub.CreateAgent, request, repeat=Repeat.SAFE)
        return agent_from(response.agent)

    async def get(self, agent: str = MAIN) -> Agent:
        """Read one agent. NotFound for `main` until it has been enabled once."""
        request = pb.GetAgentRequest(agent=agent)
        response = await self._transport.unary(self._stub.GetAgent, request, repeat=Repeat.SAFE)
        return agent_from(response.agent)

    def list(self, *, enabled_only: bool = False, page_size: int = 0) -> AsyncIterator[Agent]:
        """All agents by name, fetched page by page while you iterate."""
        return every(partial(self.list_page, enabled_only=enabled_only, page_size=page_size))

    async def list_page(
        self, *, page_token: str = "", enabled_only: bool = False, page_size: int = 0
    ) -> Page[Agent]:
        """One page. A token works only with the filter and user that it came from."""
        request = pb.ListAgentsRequest(page_size=page_size, page_token=page_token, enabled_only=enabled_only)
        response = await self._transport.unary(self._stub.ListAgents, request, repeat=Repeat.SAFE)
        return Page(tuple(agent_from(message) for message in response.agents), response.next_page_token)

    async def update(self, agent: str = MAIN, *, etag: str = "", **settings: Unpack[AgentSettings]) -> Agent:
        """Change what is given and nothing else. Aborted if `etag` is old.

        Enabling `main` for the first time creates it, its thread and the blocks `persona` and `human`.
        """
        request = agent_update_to(agent, settings, etag=etag)
        # Writing the same values again is safe, but a repeat with an etag would find it changed by itself.
        repeat = Repeat.IF_REFUSED if etag else Repeat.SAFE
        response = await self._transport.unary(self._stub.UpdateAgent, request, repeat=repeat)
        return agent_from(response.agent)

    async def delete(self, agent: str, *, etag: str = "") -> DeletedAgent:
        """Delete a subagent with its thread, its own blocks and its own memories, for good.

        Its turns are cancelled. What it wrote into the user's memory stays.
        """
        request = pb.DeleteAgentRequest(agent=agent, etag=etag)
        # A repeat of a delete that was carried out is NOT_FOUND, which would hide that it worked.
        response = await self._transport.unary(self._stub.DeleteAgent, request, repeat=Repeat.IF_REFUSED)
        return DeletedAgent(
            response.deleted_item_count,
            response.deleted_memory_count,
            response.deleted_block_count,
            response.memory_token,
        )

    async def find(
        self, task: str, *, top_k: int = 0, min_score: float | None = None
    ) -> tuple[AgentMatch, ...]:
        """The enabled agents whose descriptions fit a task best, the best first. `top_k` of 0 means 5."""
        request = pb.FindAgentsRequest(task=task, top_k=top_k, min_score=min_score)
        response = await self._transport.unary(self._stub.FindAgents, request, repeat=Repeat.SAFE)
        return tuple(AgentMatch(agent_from(match.agent), match.score) for match in response.matches)

    async def preview_context(
        self,
        agent: str = MAIN,
        *,
        input: str = "",  # noqa: A002 -- as the contract names it
        conversation_id: str = "",
    ) -> ContextPreview:
        """What the next turn would send to the model. Calls none and stores nothing.

        `conversation_id` is the thread in which the turn would run. Default: the agent's own.
        """
        request = pb.PreviewContextRequest(agent=agent, conversation_id=conversation_id, input=input)
        response = await self._transport.unary(self._stub.PreviewContext, request, repeat=Repeat.SAFE)
        return preview_from(response.preview)

    def tools(self, agent: str = MAIN, *, page_size: int = 0) -> AsyncIterator[ToolInfo]:
        """All tools of an agent by name, also those that a flag switches off, fetched while you iterate."""
        return every(partial(self.tools_page, agent, page_size=page_size))

    async def tools_page(
        self, agent: str = MAIN, *, page_token: str = "", page_size: int = 0
    ) -> Page[ToolInfo]:
        """One page of tools."""
        request = pb.ListToolsRequest(page_size=page_size, page_token=page_token, agent=agent)
        response = await self._transport.unary(self._stub.ListTools, request, repeat=Repeat.SAFE)
        return Page(tuple(tool_from(message) for message in response.tools), response.next_page_token)

    def items(
        self,
        agent: str = MAIN,
        *,
        order: ItemOrder = ItemOrder.OLDEST_FIRST,
        kinds: Iterable[ItemKind] = (),
        show_hidden: bool = False,
        page_size: int = 0,
    ) -> AsyncIterator[Item]:
        """The history of an agent's own thread, fetched while you iterate. No `kinds` means all of them."""
        fetch = partial(
            self.items_page,
            agent,
            order=order,
            kinds=tuple(kinds),
            show_hidden=show_hidden,
            page_size=page_size,
        )
        return every(fetch)

    async def items_page(
        self,
        agent: str = MAIN,
        *,
        page_token: str = "",
        order: ItemOrder = ItemOrder.OLDEST_FIRST,
        kinds: Iterable[ItemKind] = (),
        show_hidden: bool = False,
        page_size: int = 0,
    ) -> Page[Item]:
        """One page of the history. `conversation_id` of the items is empty."""
        request = pb.ListAgentItemsRequest(
            agent=agent,
            page_size=page_size,
            page_token=page_token,
            order=item_order_to(order),
            kinds=[kind_to(kind) for kind in kinds],
            show_hidden=show_hidden,
        )
        response = await self._transport.unary(self._stub.ListAgentItems, request, repeat=Repeat.SAFE)
        return Page(tuple(item_from(message) for message in response.items), response.next_page_token)

    async def clear(self, agent: str = MAIN) -> ClearedThread:
        """Delete all of an agent's own thread, for good. Blocks and archival memories stay.

        Aborted while a turn runs or waits in it: cancel that first. After a lost connection it is tried
        again, and the counts are those of the attempt that was answered.
        """
        request = pb.ClearAgentConversationRequest(agent=agent)
        stub = self._stub.ClearAgentConversation
        response = await self._transport.unary(stub, request, repeat=Repeat.SAFE)
        return ClearedThread(
            response.deleted_item_count,
            response.deleted_summary_count,
            response.deleted_memory_count,
            response.memory_token,
        )

    def overlay_changes(
        self, agent: str, *, conflicting_only: bool = False, page_size: int = 0
    ) -> AsyncIterator[OverlayChange]:
        """What an agent of MemoryMode.OVERLAY has of its own, the newest first, fetched while you iterate.

        FailedPrecondition for an agent of another mode.
        """
        fetch = partial(
            self.overlay_changes_page, agent, conflicting_only=conflicting_only, page_size=page_size
        )
        return every(fetch)

    async def overlay_changes_page(
        self, agent: str, *, page_token: str = "", conflicting_only: bool = False, page_size: int = 0
    ) -> Page[OverlayChange]:
        """One page of changes."""
        request = pb.ListOverlayChangesRequest(
            agent=agent, page_size=page_size, page_token=page_token, conflicting_only=conflicting_only
        )
        stub = self._stub.ListOverlayChanges
        response = await self._transport.unary(stub, request, repeat=Repeat.SAFE)
        return Page(tuple(change_from(message) for message in response.changes), response.next_page_token)

    async def merge_overlay(
        self,
        agent: str,
        change_ids: Collection[str] = (),
        *,
        on_conflict: OverlayConflictPolicy = OverlayConflictPolicy.SKIP,
        request_id: str | None = None,
    ) -> MergedOverlay:
        """Move changes into the user's memory, all in one transaction. No ids means all changes.

        NotFound if one is not there. With OverlayConflictPolicy.FAIL a conflict is Aborted.
        """
        request = pb.MergeOverlayRequest(
            agent=agent,
            change_ids=texts_to(change_ids),
            on_conflict=conflict_policy_to(on_conflict),
            request_id=request_id or str(uuid4()),
        )
        response = await self._transport.unary(self._stub.MergeOverlay, request, repeat=Repeat.SAFE)
        return merged_from(response)
