"""The raw methods of AgentService for agents themselves, and threads for agents to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from sage.v1 import agent_pb2
from sage.v1 import agent_service_pb2 as pb
from sage_client import AsyncSageClient, Conversation
from sage_client.retry import Repeat
from support.memory import said
from support.server import RunningServer


@dataclass(frozen=True)
class Agents:
    """The raw methods, sent with the client's credentials and never twice."""

    client: AsyncSageClient

    async def send(self, method: str, request: Any) -> Any:
        stub = getattr(self.client.stubs.agents, method)
        return await self.client.transport.unary(stub, request, repeat=Repeat.IF_REFUSED)

    async def create(self, name: str, **fields: Any) -> agent_pb2.Agent:
        created: pb.CreateAgentResponse = await self.send(
            "CreateAgent", pb.CreateAgentRequest(name=name, **fields)
        )
        return created.agent

    async def get(self, agent: str = "") -> agent_pb2.Agent:
        found: pb.GetAgentResponse = await self.send("GetAgent", pb.GetAgentRequest(agent=agent))
        return found.agent

    async def update(
        self, agent: str = "", *, etag: str = "", defaults: Sequence[str] = (), **fields: Any
    ) -> agent_pb2.Agent:
        """The mask names the fields that are given, and those of `defaults` besides."""
        request = pb.UpdateAgentRequest(agent=agent, etag=etag, **fields)
        request.update_mask.paths.extend([*fields, *defaults])
        updated: pb.UpdateAgentResponse = await self.send("UpdateAgent", request)
        return updated.agent

    async def enable_main(self, **fields: Any) -> agent_pb2.Agent:
        return await self.update(enabled=True, **fields)

    async def delete(self, agent: str, etag: str = "") -> pb.DeleteAgentResponse:
        deleted: pb.DeleteAgentResponse = await self.send(
            "DeleteAgent", pb.DeleteAgentRequest(agent=agent, etag=etag)
        )
        return deleted

    async def all(self, page_size: int = 0, *, enabled_only: bool = False) -> list[agent_pb2.Agent]:
        """Page by page."""
        found: list[agent_pb2.Agent] = []
        request = pb.ListAgentsRequest(page_size=page_size, enabled_only=enabled_only)
        while True:
            page: pb.ListAgentsResponse = await self.send("ListAgents", request)
            assert len(page.agents) <= (page_size or 50)
            found += page.agents
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def names(self) -> list[str]:
        return [agent.name for agent in await self.all()]

    async def find(self, task: str, **fields: Any) -> list[tuple[str, float]]:
        found: pb.FindAgentsResponse = await self.send(
            "FindAgents", pb.FindAgentsRequest(task=task, **fields)
        )
        return [(match.agent.name, match.score) for match in found.matches]

    async def items(self, agent: str = "", **fields: Any) -> pb.ListAgentItemsResponse:
        page: pb.ListAgentItemsResponse = await self.send(
            "ListAgentItems", pb.ListAgentItemsRequest(agent=agent, **fields)
        )
        return page

    async def clear(self, agent: str = "") -> pb.ClearAgentConversationResponse:
        cleared: pb.ClearAgentConversationResponse = await self.send(
            "ClearAgentConversation", pb.ClearAgentConversationRequest(agent=agent)
        )
        return cleared


async def user_of(client: AsyncSageClient) -> UUID:
    return UUID((await client.admin.get_user(client.options.user or "")).id)


async def with_thread(
    server: RunningServer, client: AsyncSageClient, agent: agent_pb2.Agent, *messages: str
) -> Conversation:
    """Make a thread with these messages the agent's own, known to search, as if they were said in it."""
    thread = await said(client, *messages)
    user_id, agent_id, thread_id = await user_of(client), UUID(agent.id), UUID(thread.id)
    connection = await asyncpg.connect(server.dsn)
    try:
        async with connection.transaction():
            empty = await connection.fetchval("SELECT conversation_id FROM agents WHERE id = $1", agent_id)
            await connection.execute(
                "UPDATE agents SET conversation_id = $2 WHERE id = $1", agent_id, thread_id
            )
            await connection.execute("DELETE FROM conversations WHERE id = $1", empty)
            await connection.execute("UPDATE conversations SET kind = 2 WHERE id = $1", thread_id)
            revision = await connection.fetchval(
                "UPDATE heads SET memory_revision = memory_revision + 1 WHERE user_id = $1"
                " RETURNING memory_revision",
                user_id,
            )
            await connection.execute(
                "UPDATE memories SET thread_agent_id = $2, revision = $3 WHERE conversation_id = $1",
                thread_id,
                agent_id,
                revision,
            )
    finally:
        await connection.close()
    await client.memory.search("anything", fully_consistent=True)
    return thread


async def with_turn(
    server: RunningServer, client: AsyncSageClient, agent: agent_pb2.Agent, thread_id: str, **changes: Any
) -> UUID:
    """A turn of the agent in a thread, with an event that shows something."""
    user_id, turn_id, now = await user_of(client), uuid4(), datetime.now(UTC)
    later = now + timedelta(days=1)  # nobody takes it over before
    values = {"own_thread": True, "status": 2, "fence": 1, "step": 3, "message_count": 2}
    values |= {"lease_until": later} | changes
    connection = await asyncpg.connect(server.dsn)
    try:
        seq = await connection.fetchval(
            "UPDATE heads SET last_event = last_event + 1 WHERE user_id = $1 RETURNING last_event", user_id
        )
        names = ", ".join(values)
        places = ", ".join(f"${n}" for n in range(7, 7 + len(values)))
        await connection.execute(
            "INSERT INTO turns (user_id, id, conversation_id, agent_id, origin, store, first_event,"
            f" last_event, created_at, {names}) VALUES ($1, $2, $3, $4, 1, true, $5, $5, $6, {places})",
            *(user_id, turn_id, UUID(thread_id), UUID(agent.id), seq, now),
            *values.values(),
        )
        await connection.execute(
            "INSERT INTO events (user_id, seq, id, kind, turn_id, step, agent_id, channel, payload_enc,"
            " created_at, expires_at, key_version) VALUES ($1, $2, $3, 13, $4, 1, $5, 1, $6, $7, $8, 1)",
            *(user_id, seq, uuid4(), turn_id, UUID(agent.id), b"sealed", now, later),
        )
    finally:
        await connection.close()
    return turn_id


async def rows(server: RunningServer, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """What is in the database."""
    connection = await asyncpg.connect(server.dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql, *values)]
    finally:
        await connection.close()
