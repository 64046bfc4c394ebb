"""A program of somebody else's, for the type checker only: what it may do, and what it is warned of."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import assert_never, assert_type

import sage_client
from sage_client import (
    AsyncSageClient,
    Chat,
    Conversation,
    ConversationHandle,
    Item,
    Memory,
    SageClient,
    SearchResults,
    TurnAccepted,
    TurnCancelled,
    TurnCompaction,
    TurnDelta,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnHandoff,
    TurnHeartbeat,
    TurnMessage,
    TurnRetrieval,
    TurnSilent,
    TurnToolCall,
    TurnToolResult,
    TurnTyping,
)


def shown(event: TurnEvent) -> str:
    """Every kind of event is known: the checker would tell if one were missing."""
    match event:
        case TurnMessage():
            return event.text
        case TurnDelta(text=text):
            return text
        case TurnToolCall(name=name) | TurnToolResult(name=name):
            return name
        case TurnRetrieval(results=results):
            return ", ".join(result.memory.text for result in results)
        case TurnFailed(reason=reason):
            return reason
        case TurnDone(duration=duration):
            assert_type(duration, timedelta)
            return "done"
        case TurnAccepted() | TurnTyping() | TurnCompaction() | TurnHandoff() | TurnSilent():
            return ""
        case TurnHeartbeat() | TurnCancelled():
            return ""
    assert_never(event)


def plainly(client: SageClient) -> None:
    chat = client.agent("main").chat("Hi", deltas=True)
    assert_type(chat, Chat)
    for event in chat:
        assert_type(event, TurnEvent)
    assert_type(chat.text(), str)
    thread = client.conversations.new("Garden", private=True)
    assert_type(thread, ConversationHandle)
    assert_type(client.conversations.continue_(thread.id).respond("Hi").text(), str)
    assert_type(thread.items(), Iterator[Item])
    assert_type(client.memory.search("beans", top_k=3), SearchResults)
    with client.watch(after_event_id=0) as watch:
        assert_type(watch.cursor, int | None)
    try:
        assert_type(client.conversations.get(thread.id), Conversation)
    except sage_client.NotFound as error:
        assert_type(error.reason, str | None)


async def awaited(client: AsyncSageClient) -> None:
    assert_type(await client.agent().chat("Hi").text(), str)
    async for event in client.agent().chat("Hi"):
        assert_type(shown(event), str)
    assert_type(client.memory.list(), AsyncIterator[Memory])
    thread = await client.conversations.new()
    assert_type(await thread.get(), Conversation)
    async with client.with_options(user="ana") as ana:
        assert_type(ana, AsyncSageClient)


def wrongly(client: SageClient) -> None:
    """Each of these is an error; if one were not, the checker would call the comment unused."""
    client.agent("main").chat(1)  # type: ignore[arg-type]
    client.agent("main").chat("Hi", stream=True)  # type: ignore[call-arg]
    client.conversations.respond("Hi")  # type: ignore[attr-defined]
    client.memory.search("beans").results[0].score = 1.0  # type: ignore[misc]
    client.agents.create("cook", colour="red")  # type: ignore[call-arg]
    sage_client.connect(port=1)  # type: ignore[call-arg]


async def forgotten(client: AsyncSageClient) -> str:
    """To await."""
    return client.agent().chat("Hi").text()  # type: ignore[return-value]
