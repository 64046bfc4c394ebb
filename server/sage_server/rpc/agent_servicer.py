"""AgentService, the agents themselves: decode, one call, encode."""

from __future__ import annotations

from sage.v1 import agent_pb2
from sage.v1 import agent_service_pb2 as pb
from sage_server.domain.identity import Caller
from sage_server.domain.paging import page_size
from sage_server.rpc.agent_mapping import (
    AgentMapping,
    decode_name,
    encode_name,
    from_agent_change,
    from_new_agent,
    to_own_item,
)
from sage_server.rpc.conversation_mapping import from_filter
from sage_server.rpc.mapping import once
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.rpc.page_tokens import PageTokens, decode_seq, encode_seq
from sage_server.services.agents import Agents

_TOP_K = 5


class AgentServicer:
    """Agents, their settings and their own threads."""

    def __init__(
        self, agents: Agents, mapping: AgentMapping, pages: PageTokens, tokens: MemoryTokens
    ) -> None:
        self._agents = agents
        self._mapping = mapping
        self._pages = pages
        self._tokens = tokens

    async def create_agent(self, request: pb.CreateAgentRequest, caller: Caller) -> pb.CreateAgentResponse:
        """A subagent."""
        created = await self._agents.create(caller.user_id, from_new_agent(request), once(request))
        return pb.CreateAgentResponse(agent=self._mapping.to_agent(created))

    async def get_agent(self, request: pb.GetAgentRequest, caller: Caller) -> pb.GetAgentResponse:
        """One agent."""
        found = await self._agents.get(caller.user_id, request.agent)
        return pb.GetAgentResponse(agent=self._mapping.to_agent(found))

    async def list_agents(self, request: pb.ListAgentsRequest, caller: Caller) -> pb.ListAgentsResponse:
        """A page of agents."""
        page = await self._agents.list(
            caller.user_id,
            enabled_only=request.enabled_only,
            size=page_size(request.page_size),
            after=await self._pages.read(caller.user_id, request, decode_name),
        )
        return pb.ListAgentsResponse(
            agents=[self._mapping.to_agent(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_name(page.next)),
        )

    async def update_agent(self, request: pb.UpdateAgentRequest, caller: Caller) -> pb.UpdateAgentResponse:
        """The settings that the mask names."""
        changed = await self._agents.update(
            caller.user_id, request.agent, from_agent_change(request), request.etag
        )
        return pb.UpdateAgentResponse(agent=self._mapping.to_agent(changed))

    async def delete_agent(self, request: pb.DeleteAgentRequest, caller: Caller) -> pb.DeleteAgentResponse:
        """For good."""
        deleted = await self._agents.delete(caller.user_id, request.agent, request.etag)
        return pb.DeleteAgentResponse(
            deleted_item_count=deleted.items,
            deleted_memory_count=len(deleted.memories.ids),
            deleted_block_count=deleted.blocks,
            memory_token=await self._tokens.write(caller.user_id, deleted.memories.revision),
        )

    async def find_agents(self, request: pb.FindAgentsRequest, caller: Caller) -> pb.FindAgentsResponse:
        """The agents that fit a task."""
        matches = await self._agents.find(
            caller.user_id,
            request.task,
            request.top_k or _TOP_K,
            request.min_score if request.HasField("min_score") else None,
        )
        return pb.FindAgentsResponse(
            matches=[
                agent_pb2.AgentMatch(agent=self._mapping.to_agent(match.agent), score=match.score)
                for match in matches
            ]
        )

    async def list_agent_items(
        self, request: pb.ListAgentItemsRequest, caller: Caller
    ) -> pb.ListAgentItemsResponse:
        """A page of an agent's own thread."""
        page = await self._agents.items(
            caller.user_id,
            request.agent,
            from_filter(request),
            page_size(request.page_size),
            await self._pages.read(caller.user_id, request, decode_seq),
        )
        return pb.ListAgentItemsResponse(
            items=[to_own_item(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_seq(page.next)),
        )

    async def clear_agent_conversation(
        self, request: pb.ClearAgentConversationRequest, caller: Caller
    ) -> pb.ClearAgentConversationResponse:
        """An agent's own thread, empty again."""
        cleared = await self._agents.clear(caller.user_id, request.agent)
        return pb.ClearAgentConversationResponse(
            deleted_item_count=cleared.items,
            deleted_summary_count=cleared.summaries,
            deleted_memory_count=len(cleared.memories.ids),
            memory_token=await self._tokens.write(caller.user_id, cleared.memories.revision),
        )
