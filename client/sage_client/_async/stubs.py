"""The generated stubs of every service, for what the client does not wrap."""

from __future__ import annotations

import grpc.aio

from sage.v1.admin_service_pb2_grpc import AdminServiceStub
from sage.v1.agent_service_pb2_grpc import AgentServiceStub
from sage.v1.conversation_service_pb2_grpc import ConversationServiceStub
from sage.v1.memory_service_pb2_grpc import MemoryServiceStub
from sage.v1.schedule_service_pb2_grpc import ScheduleServiceStub
from sage.v1.task_service_pb2_grpc import TaskServiceStub


class AsyncStubs:
    """Raw methods that take and return protobuf messages.

    Called directly they send no credentials. Send them through the client's transport:
    `await client.transport.unary(client.stubs.agents.GetAgent, request, repeat=Repeat.SAFE)`.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.admin = AdminServiceStub(channel)
        self.agents = AgentServiceStub(channel)
        self.conversations = ConversationServiceStub(channel)
        self.memory = MemoryServiceStub(channel)
        self.schedules = ScheduleServiceStub(channel)
        self.tasks = TaskServiceStub(channel)
