"""What clients that speak gRPC-Web may rely on, through Envoy: `buf curl`, and connect-web in Node.

The latter runs once `make setup-web` has brought it, as CI does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.agents import Stage, answer, stage
from support.postgres import TestPostgres
from support.provider import chat_reply
from support.server import running_server
from support.web import BROWSER, Browser, BufCurl, Proxy, RefusedError, WebClient, running_proxy

CHAT = "AgentService/Chat"
CREATE = "ConversationService/CreateConversation"
GET = "ConversationService/GetConversation"

CLIENTS: list[WebClient] = [BufCurl()]
if (BROWSER / "node_modules" / ".ready").exists():
    CLIENTS.append(Browser())


@pytest.fixture(params=CLIENTS, ids=lambda client: type(client).__name__)
def web(request: pytest.FixtureRequest) -> WebClient:
    client: WebClient = request.param
    return client


@pytest.fixture(scope="module")
async def talk(postgres: TestPostgres) -> AsyncIterator[tuple[Stage, Proxy]]:
    """A server with a scripted model behind Envoy; the main agent of `maria` is enabled."""
    async with (
        postgres.database() as dsn,
        stage(dsn) as there,
        running_proxy(there.server.address) as proxy,
    ):
        yield there, proxy


async def all_of(messages: AsyncIterator[Any]) -> list[Any]:
    return [message async for message in messages]


def said(events: list[Any]) -> list[str]:
    return [event["message"]["item"]["text"] for event in events if "message" in event]


async def test_a_unary_call_is_answered_for_the_user_who_is_named(
    web: WebClient, talk: tuple[Stage, Proxy]
) -> None:
    there, proxy = talk
    (made,) = await all_of(web.call(proxy, CREATE, {"title": "Käse"}, x_sage_user="maria"))
    found = await there.client.conversations.get(made["conversation"]["id"])
    assert found.title == made["conversation"]["title"] == "Käse"


async def test_events_arrive_one_by_one(web: WebClient, talk: tuple[Stage, Proxy]) -> None:
    """The model goes on only after the caller has seen what came before."""
    there, proxy = talk
    second, third = asyncio.Event(), asyncio.Event()
    there.provider.script_chat(
        chat_reply(answer("First.", calls=[("scratchpad_read", {})])),
        chat_reply(answer("Second.", calls=[("scratchpad_read", {})]), hold=second),
        chat_reply(answer("Third."), hold=third),
    )
    released = {"First.": second, "Second.": third}
    seen = []
    async with asyncio.timeout(30):
        async for message in web.call(proxy, CHAT, {"input": "Hi"}, x_sage_user="maria"):
            seen.append(message["event"])
            if text := said(seen[-1:]):
                released.get(text[0], third).set()
    assert said(seen) == ["First.", "Second.", "Third."]
    ids = [int(event["eventId"]) for event in seen]
    assert ids == sorted(set(ids))
    assert "accepted" in seen[0]
    assert "done" in seen[-1]


async def test_an_error_has_its_code_reason_and_metadata(web: WebClient, talk: tuple[Stage, Proxy]) -> None:
    _, proxy = talk
    missing = {"conversationId": "01a1ef12-ee61-787a-b821-aa6f773b7147"}
    with pytest.raises(RefusedError) as refused:
        await all_of(web.call(proxy, GET, missing, x_sage_user="maria"))
    assert refused.value.args == ("not_found", "ERROR_REASON_NOT_FOUND", {"resource": "conversation"})
    with pytest.raises(RefusedError) as refused:
        await all_of(web.call(proxy, CHAT, {"input": "Hi", "agent": "x"}, x_sage_user="maria"))
    assert (refused.value.code, refused.value.reason) == ("not_found", "ERROR_REASON_NOT_FOUND")


async def test_a_call_without_credentials_is_unauthenticated(web: WebClient, dsn: str) -> None:
    async with running_server(dsn, auth="required") as server, running_proxy(server.address) as proxy:
        for method, body in ((CREATE, {}), (CHAT, {"input": "Hi"})):
            for headers in ({}, {"authorization": "Bearer sage_sk_wrong", "x_sage_user": "maria"}):
                with pytest.raises(RefusedError) as refused:
                    await all_of(web.call(proxy, method, body, **headers))
                assert refused.value.code == "unauthenticated"
                assert refused.value.reason.startswith("ERROR_REASON_")
