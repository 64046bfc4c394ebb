"""What tests of agents share: a server with a scripted provider, and what it was sent and told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import sage_client
from sage.v1 import conversation_pb2, usage_pb2
from sage.v1 import conversation_service_pb2 as pb
from sage_client import AsyncChat, AsyncSageClient, ToolOutcome, Turn, TurnEvent, TurnToolResult
from sage_client.retry import Repeat
from sage_server.adapters.tokenizer import O200kCounter
from sage_server.domain.usage import UsagePurpose
from support.clock import FakeClock
from support.provider import FakeProvider, ProviderRequest, chat_reply
from support.server import RunningServer, running_server

COUNTER = O200kCounter()
MODEL = "openai/test-model"
E = TypeVar("E")
T = TypeVar("T", bound=TurnEvent | Turn)
Call = tuple[str, Mapping[str, Any]]


def answer(*messages: str, calls: Sequence[Call] = ()) -> str:
    """What a model returns for a step."""
    called = [{"name": name, "args": dict(args)} for name, args in calls]
    return json.dumps({"messages": list(messages), "tool_calls": called})


@dataclass(frozen=True)
class Stage:
    """A server whose model is scripted, and a user with an enabled main agent."""

    server: RunningServer
    provider: FakeProvider
    client: AsyncSageClient

    def chat(self, text: str, *steps: str, agent: str = "main", **options: Any) -> AsyncChat:
        """A message to an agent; the model answers with these, one a step."""
        self.provider.script_chat(*map(chat_reply, steps))
        return self.client.agent(agent).chat(text, **options)

    async def called(self, *calls: Call, **options: Any) -> list[TurnToolResult]:
        """What tools answer that the model calls in one step of a turn."""
        steps = (answer(calls=calls), answer("Well."))
        return only(await heard(self.chat("Go on.", *steps, **options)), TurnToolResult)


async def heard(chat: AsyncChat) -> list[TurnEvent]:
    """All events of a turn, so that two streams of it are equal."""
    return [plain(event) async for event in chat]


def plain(one: T) -> T:
    """Without its memory token, which is another text each time that it is shown."""
    if not hasattr(one, "memory_token"):
        return one
    changed: Any = one
    without: T = replace(changed, memory_token="")
    return without


def only(events: Sequence[TurnEvent], kind: type[E]) -> list[E]:
    """Those of one kind."""
    return [event for event in events if isinstance(event, kind)]


def outcomes(results: Sequence[TurnToolResult]) -> list[ToolOutcome]:
    """How calls went."""
    return [result.outcome for result in results]


def prompt_of(request: ProviderRequest) -> tuple[str, str]:
    """What a model was sent: the standing part, and the conversation."""
    system, user = request.body["messages"]
    return system["content"], user["content"]


def prompt_tokens(request: ProviderRequest) -> int:
    """How long a prompt is, in tokens of the server's own tokenizer."""
    return sum(COUNTER.count(message["content"]) for message in request.body["messages"])


def is_summary(request: ProviderRequest) -> bool:
    """Whether a model is asked to summarise."""
    return prompt_of(request)[0].startswith("You summarise")


async def usage(client: AsyncSageClient, purpose: UsagePurpose) -> list[usage_pb2.UsageRecord]:
    """What was counted for a purpose."""
    request = pb.GetUsageRequest(purpose=usage_pb2.UsagePurpose.ValueType(purpose))
    method = client.stubs.conversations.GetUsage
    return list((await client.transport.unary(method, request, repeat=Repeat.SAFE)).records)


async def summaries(
    client: AsyncSageClient, conversation_id: str
) -> list[conversation_pb2.ConversationSummary]:
    """Of a thread, the oldest first. Each begins where the one before it ends, and names it."""
    request = pb.ListSummariesRequest(conversation_id=conversation_id, page_size=200)
    method = client.stubs.conversations.ListSummaries
    page = await client.transport.unary(method, request, repeat=Repeat.SAFE)
    assert not page.next_page_token
    chain = list(page.summaries)[::-1]
    for before, after in pairwise(chain):
        assert after.from_seq == before.to_seq + 1
        assert after.previous_id == before.id
    return chain


def model_settings(provider: FakeProvider, **changes: Any) -> dict[str, Any]:
    """Settings of a server that asks this provider."""
    return {"llm_base_url": provider.url, "llm_model": "test-model", "llm_tries": 1} | changes


@asynccontextmanager
async def stage(dsn: str, clock: FakeClock | None = None, /, **changes: Any) -> AsyncIterator[Stage]:
    """A server and its provider; the main agent of `maria` is enabled."""
    async with FakeProvider.running() as provider:
        async with (
            running_server(dsn, clock, **model_settings(provider, **changes)) as server,
            sage_client.connect_async(server.address, user="maria") as client,
        ):
            await client.agent("main").enable()
            yield Stage(server, provider, client)
