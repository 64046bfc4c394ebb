"""`sage-server doctor` on language models and metrics: what is configured, and what is wrong with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr

from sage_server.doctor import Finding, examine
from support.provider import FakeProvider, ProviderReply, error_reply, json_reply
from support.server import ROOT_KEY, child_server, test_settings

NOBODY = "http://127.0.0.1:1/v1"
KEY = "sk-canary"


async def findings(dsn: str, subject: str, **settings: Any) -> list[Finding]:
    return [one for one in await examine(test_settings(dsn, **settings)) if one.subject == subject]


async def model(dsn: str, **settings: Any) -> tuple[str, str]:
    (found,) = await findings(dsn, "language model", **settings)
    return found.verdict, found.text


def models(*names: str) -> ProviderReply:
    return json_reply({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


async def test_without_a_call_it_says_which_model_is_this_servers_own(dsn: str) -> None:
    unset = "no model is configured: set SAGE_LLM_BASE_URL, SAGE_LLM_GGUF or OPENAI_API_KEY"
    assert await model(dsn) == ("ok", f"offline ({unset})")
    assert await model(dsn, offline_model=False) == ("ok", f"none ({unset})")
    assert await model(dsn, llm_gguf=__file__) == ("ok", "local (the file of SAGE_LLM_GGUF)")


async def test_a_model_that_nobody_can_be_asked_for_is_wrong(dsn: str) -> None:
    verdict, text = await model(dsn, llm_model="foo")
    assert (verdict, text.startswith("offline (SAGE_LLM_MODEL names nobody to ask")) == ("WRONG", True)
    verdict, text = await model(dsn, llm_model="foo", llm_gguf=__file__)
    assert (verdict, text.startswith("none (SAGE_LLM_MODEL names nobody to ask")) == ("WRONG", True)
    unnamed, near = await findings(dsn, "language model", llm_providers=f"near={NOBODY}")
    assert "SAGE_LLM_MODEL must name a model of a provider" in unnamed.text
    assert near.text == f"near at {NOBODY}: cannot be reached"
    assert not unnamed.fine
    assert not near.fine


@pytest.mark.parametrize(
    ("reply", "verdict", "text"),
    [
        (models("small", "large"), "ok", "answers and lists it"),
        (models("small:latest"), "ok", "answers and lists it"),
        (models("b", "a"), "CHECK", "answers, but does not list small. It lists a, b"),
        (
            models("d", "c", "b", "a", "\x1b[31m"),
            "CHECK",
            "answers, but does not list small. It lists a, b, c, …",
        ),
        (models(), "CHECK", "answers, but does not list small. It lists nothing"),
        (
            error_reply(404),
            "CHECK",
            "answers, but has no list of models there (does the address lack its /v1?)",
        ),
        (error_reply(401, f"bad key {KEY}"), "WRONG", "refuses the key"),
        (error_reply(503, KEY), "WRONG", "answers with the error 503"),
        (ProviderReply(body=b"<html>"), "WRONG", "answers, but not with OpenAI's protocol"),
    ],
)
async def test_a_provider_is_asked_for_what_costs_nothing(
    dsn: str, reply: ProviderReply, verdict: str, text: str
) -> None:
    async with FakeProvider.running() as provider:
        provider.script(reply)
        settings = {"llm_base_url": provider.url, "llm_model": "small", "llm_api_key": SecretStr(KEY)}
        assert await model(dsn, **settings) == (verdict, f"openai/small at {provider.url}: {text}")
        (asked,) = provider.requests
        assert asked.path == "/v1/models"


async def test_a_model_with_only_the_default_name_is_said_to_be_so(dsn: str) -> None:
    async with FakeProvider.running() as provider:
        provider.script(models("qwen3"), error_reply(401))
        verdict, text = await model(dsn, llm_base_url=provider.url)
        assert verdict == "CHECK"
        assert "gpt-5-mini (only the default name: SAGE_LLM_MODEL sets yours). It lists qwen3" in text
        assert await model(dsn, llm_base_url=provider.url) == (
            "WRONG",
            f"openai/gpt-5-mini at {provider.url}: wants a key",
        )


async def test_addresses_are_shown_without_what_may_be_secret(dsn: str) -> None:
    _, text = await model(dsn, llm_base_url=f"http://canary:{KEY}@127.0.0.1:1/v1?key=canary", llm_model="m")
    assert text == f"openai/m at {NOBODY}: cannot be reached"


async def test_metrics_are_free_or_of_the_server_that_answers(dsn: str) -> None:
    async def metrics(**settings: str) -> tuple[str, str]:
        (found,) = await findings(dsn, "metrics", **settings)
        return found.verdict, found.text

    assert await metrics() == ("ok", "off")
    taken = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    address = f"127.0.0.1:{taken.sockets[0].getsockname()[1]}"
    assert await metrics(metrics_listen=address) == (
        "WRONG",
        f"SAGE_METRICS_LISTEN: {address} is taken by another program. Choose another, or `off`.",
    )
    taken.close()
    await taken.wait_closed()
    assert await metrics(metrics_listen=address) == ("ok", f"{address}: free")
    async with child_server(database_url=dsn, root_key=ROOT_KEY, metrics_listen=address) as server:
        assert await metrics(metrics_listen=address, listen=server.address) == (
            "ok",
            f"{address}: a Sage answers there",
        )
        verdict, text = await metrics(metrics_listen=address, listen="127.0.0.1:1")
        assert (verdict, "is taken by another Sage" in text) == ("WRONG", True)
