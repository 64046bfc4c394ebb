"""The language models' adapter against a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from sage_server.adapters.language_model import ConfiguredModels, ModelLimits, SchemaMode
from sage_server.adapters.tokenizer import O200kCounter
from sage_server.bootstrap.language_models import open_language_models
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.models import ModelProvider
from sage_server.domain.turns import TokenUsage
from sage_server.ports.language_model import (
    Completion,
    LanguageModel,
    Piece,
    Prompt,
    PromptMessage,
    Purpose,
    Reply,
    Restarted,
    Role,
)
from support.provider import (
    DroppedError,
    FakeProvider,
    ProviderReply,
    ProviderRequest,
    Step,
    StreamedReply,
    chat_reply,
    drop,
    error_reply,
    event,
    hang,
    json_reply,
    streamed,
)
from support.server import test_settings

QUICK = ModelLimits(backoff_seconds=0.001, tries=3)
TOKENS = O200kCounter()
PROMPT = Prompt([PromptMessage(Role.SYSTEM, "Be brief."), PromptMessage(Role.USER, "my diary: hello?")])
SCHEMA = replace(PROMPT, schema={"type": "object"})
ESTIMATE = TOKENS.count("Be brief.") + TOKENS.count("my diary: hello?")
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider.running() as running:
        yield running


@asynccontextmanager
async def connected(
    provider: FakeProvider, limits: ModelLimits = QUICK, json_schema: SchemaMode = "auto"
) -> AsyncIterator[LanguageModel]:
    models = ConfiguredModels(
        {"openai": ModelProvider(provider.url, "secret")},
        {},
        TOKENS,
        json_schema=json_schema,
        limits=limits,
    )
    try:
        yield models.get("openai/small", Purpose.CHAT)
    finally:
        await models.close()


@dataclass(frozen=True)
class Answered:
    """Everything that a call gave."""

    before: list[Reply]
    completion: Completion

    @property
    def pieces(self) -> str:
        """The pieces that count."""
        text = ""
        for reply in self.before:
            text = text + reply.text if isinstance(reply, Piece) else ""
        return text


async def ask(model: LanguageModel, prompt: Prompt = PROMPT, *, stream: bool = True) -> Answered:
    *before, last = [reply async for reply in model.ask(prompt, stream=stream)]
    assert isinstance(last, Completion)
    assert not any(isinstance(reply, Completion) for reply in before)
    answered = Answered(before, last)
    assert answered.pieces == (last.text if stream else "")
    assert stream or not before
    return answered


async def failure(model: LanguageModel, *, stream: bool = True, prompt: Prompt = PROMPT) -> SageError:
    with pytest.raises(SageError) as refused:
        [reply async for reply in model.ask(prompt, stream=stream)]
    error: BaseException = refused.value
    assert error.__cause__ is None
    assert error.__context__ is None
    return refused.value


@BOTH
async def test_the_answer_comes_with_the_providers_count(provider: FakeProvider, stream: bool) -> None:
    provider.script_chat(chat_reply("Good morning, Maria.", usage=(21, 6)))
    async with connected(provider) as model:
        assert model.name == "openai/small"
        answered = await ask(model, replace(PROMPT, max_tokens=50), stream=stream)
    assert answered.completion == Completion("Good morning, Maria.", TokenUsage(21, 6, model_calls=1))
    assert len(answered.before) == (3 if stream else 0)
    (request,) = provider.chats
    assert request.headers["authorization"] == "Bearer secret"
    assert request.body == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "my diary: hello?"},
        ],
        "stream": stream,
        "max_completion_tokens": 50,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    }


async def test_pieces_come_while_the_model_still_speaks(provider: FakeProvider) -> None:
    hold = asyncio.Event()
    provider.script_chat(chat_reply("one two three", piece=4, hold=hold))
    async with connected(provider) as model:
        replies = model.ask(PROMPT, stream=True)
        assert await anext(replies) == Piece("one ")
        hold.set()
        assert [reply.text async for reply in replies if isinstance(reply, Piece)] == ["two ", "thre", "e"]


@BOTH
@pytest.mark.parametrize("usage", [None, (10**400, 1), (-1, 1)], ids=["none", "too_many", "negative"])
async def test_without_a_count_of_the_providers_tokens_are_estimated(
    provider: FakeProvider, stream: bool, usage: tuple[int, int] | None
) -> None:
    provider.script_chat(chat_reply("Good morning, Maria.", usage=usage))
    async with connected(provider) as model:
        answered = await ask(model, stream=stream)
    assert answered.completion.usage == TokenUsage(ESTIMATE, TOKENS.count("Good morning, Maria."), 0, 1)


@BOTH
async def test_an_answer_that_reached_its_limit_says_so(provider: FakeProvider, stream: bool) -> None:
    provider.script_chat(chat_reply("half a sen", finish="length"))
    async with connected(provider) as model:
        assert (await ask(model, stream=stream)).completion.cut_off


@BOTH
async def test_an_answer_without_end_is_cut_off(provider: FakeProvider, stream: bool) -> None:
    provider.script_chat(chat_reply("x" * 5000))
    async with connected(provider, replace(QUICK, answer_characters=1000)) as model:
        completion = (await ask(model, stream=stream)).completion
    assert completion.text == "x" * 1000
    assert completion.cut_off


@BOTH
async def test_a_body_without_end_is_not_held_in_memory(provider: FakeProvider, stream: bool) -> None:
    """Neither one event nor one object that never ends is read for ever."""

    async def for_ever() -> AsyncIterator[bytes]:
        yield b'data: {"choices": [{"delta": {"content": "'
        while True:
            yield b"x" * 100_000

    async def endless(request: ProviderRequest) -> StreamedReply:
        return StreamedReply(for_ever())

    provider.script_chat(endless)
    async with connected(provider, replace(QUICK, tries=1, answer_characters=1000)) as model:
        assert (await failure(model, stream=stream)).reason is Reason.MODEL_UNAVAILABLE
    await asyncio.wait_for(provider.left.wait(), 20)


async def test_a_provider_that_cannot_stream_is_understood(provider: FakeProvider) -> None:
    whole = {"choices": [{"message": {"content": "all at once"}, "finish_reason": "stop"}]}
    provider.script_chat(json_reply(whole))
    async with connected(provider) as model:
        assert (await ask(model)).before == [Piece("all at once")]


def delta(content: object, **more: object) -> bytes:
    return event({"choices": [{"delta": {"content": content}, **more}]})


END = delta(None, finish_reason="stop")
STREAMS = {
    "without a [DONE]": ([delta("hello"), END], "hello"),
    "without a finish_reason": ([delta("hello"), event("[DONE]")], "hello"),
    "with comments": ([b": ping\n\n", delta("hel"), b"id: 3\r\n", delta("lo"), END], "hello"),
    "with carriage returns": ([delta("hello").replace(b"\n", b"\r\n"), END], "hello"),
    "cut anywhere": ([bytes([byte]) for byte in delta("héllo") + END], "héllo"),
    "with reasoning": (
        [event({"choices": [{"delta": {"reasoning_content": "hm"}}]}), delta("hi"), END],
        "hi",
    ),
    "with NUL": ([delta("a\0b"), END], "ab"),
    "with half a character": ([delta("a\ud83db"), delta("\ude00"), delta("c\ud83d"), END], "a�b�c�"),
    "with a character in halves": ([delta("a\ud83d"), delta("\ude00b"), END], "a😀b"),
    "with bytes that are no text": ([delta("a?b").replace(b"?", b"\xff"), END], "a�b"),
    "broken after its end": ([delta("hello"), END, b"data: {"], "hello"),
}


@pytest.mark.parametrize(("parts", "text"), STREAMS.values(), ids=STREAMS.keys())
async def test_streams_are_read_in_every_form(provider: FakeProvider, parts: list[bytes], text: str) -> None:
    provider.script_chat(streamed(*parts))
    async with connected(provider) as model:
        assert (await ask(model)).completion.text == text


async def test_a_whole_answer_is_valid_text(provider: FakeProvider) -> None:
    provider.script_chat(chat_reply("\0a\ud83d😀"))
    async with connected(provider) as model:
        assert (await ask(model, stream=False)).completion.text == "a�😀"


async def test_a_connection_is_used_again_after_a_stream(provider: FakeProvider) -> None:
    provider.chat = lambda request: chat_reply("hello")
    async with connected(provider) as model:
        for _ in range(3):
            await ask(model)
    assert provider.accepted == 1


GARBAGE: dict[str, Step] = {
    "500": error_reply(500),
    "503": error_reply(503),
    "nobody there": drop,
    "no JSON": ProviderReply(body=b"<html>"),
    "no object": json_reply([1]),
    "no choices": json_reply({"object": "chat.completion"}),
    "too deep": ProviderReply(body=b"[" * 100_000),
    "numbers": json_reply({"choices": [{"message": {"content": 5}, "finish_reason": "stop"}]}),
    "an error within": json_reply({"error": {"code": 502, "message": "upstream"}}),
    "a strange error within": json_reply({"error": {"code": ["x"]}}),
    "a page": ProviderReply(200, b"<html>", {"content-type": "text/html"}),
    "broken compression": ProviderReply(200, b"no gzip", {"content-encoding": "gzip"}),
}


@BOTH
@pytest.mark.parametrize("step", GARBAGE.values(), ids=GARBAGE.keys())
async def test_what_fails_or_makes_no_sense_is_tried_again(
    provider: FakeProvider, stream: bool, step: Step
) -> None:
    provider.script_chat(step, step, chat_reply("hello"), step, step, step)
    async with connected(provider) as model:
        assert (await ask(model, stream=stream)).completion.text == "hello"
        error = await failure(model, stream=stream)
    assert error.reason is Reason.MODEL_UNAVAILABLE
    assert error.metadata == {"model": "openai/small"}
    assert error.retry_after == timedelta(seconds=1)
    assert len(provider.chats) == 6


async def test_a_stream_that_breaks_starts_again_and_says_so(provider: FakeProvider) -> None:
    provider.script_chat(
        chat_reply("the first try", piece=4, breaks_after=2),
        streamed(delta("the second"), event({"error": {"message": "overloaded"}})),
        streamed(delta("the third"), b"data: {\n\n"),
        streamed(delta("the fourth")),
        error_reply(503),
        chat_reply("at last", piece=9, usage=(3, 2)),
    )
    async with connected(provider, replace(QUICK, tries=6)) as model:
        answered = await ask(model)
    assert answered.before == [
        *[Piece("the "), Piece("firs"), Restarted()],
        *[Piece("the second"), Restarted()],
        *[Piece("the third"), Restarted()],
        *[Piece("the fourth"), Restarted()],
        Piece("at last"),
    ]
    assert answered.completion.usage == TokenUsage(3, 2, 0, 1)


async def test_what_happens_after_the_end_of_an_answer_does_not_matter(provider: FakeProvider) -> None:
    async def silent() -> AsyncIterator[bytes]:
        yield delta("hello") + END
        await asyncio.Event().wait()

    async def broken() -> AsyncIterator[bytes]:
        yield delta("hello") + END
        raise DroppedError

    async def first(request: ProviderRequest) -> StreamedReply:
        return StreamedReply(silent())

    async def second(request: ProviderRequest) -> StreamedReply:
        return StreamedReply(broken())

    provider.script_chat(first, second)
    async with connected(provider, replace(QUICK, idle_seconds=0.25)) as model:
        assert (await ask(model)).completion.text == "hello"
        assert (await ask(model)).completion.text == "hello"


async def test_a_stream_that_always_breaks_is_unavailable(provider: FakeProvider) -> None:
    provider.script_chat(*[chat_reply("the first try", breaks_after=1)] * 3)
    replies = []
    async with connected(provider) as model:
        with pytest.raises(SageError) as refused:
            async for reply in model.ask(PROMPT, stream=True):
                replies.append(reply)  # noqa: PERF401 (what came before the error counts)
    assert refused.value.reason is Reason.MODEL_UNAVAILABLE
    assert replies == [Piece("the firs"), Restarted(), Piece("the firs"), Restarted(), Piece("the firs")]


REFUSALS: dict[str, tuple[Step, Step]] = {
    "a refusal": (
        streamed(delta("I"), event({"choices": [{"delta": {"refusal": "I cannot"}}]}), END),
        json_reply({"choices": [{"message": {"content": None, "refusal": "I cannot"}}]}),
    ),
    "a filter": (chat_reply("some", finish="content_filter"), chat_reply("some", finish="content_filter")),
    "code content_filter": (error_reply(400, code="content_filter"),) * 2,
    "code content_policy_violation": (error_reply(400, code="content_policy_violation"),) * 2,
}


@BOTH
@pytest.mark.parametrize("steps", REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_refusal_is_final(provider: FakeProvider, stream: bool, steps: tuple[Step, Step]) -> None:
    provider.script_chat(steps[0 if stream else 1])
    async with connected(provider) as model:
        error = await failure(model, stream=stream, prompt=SCHEMA)
    assert error.reason is Reason.MODEL_REFUSED
    assert error.metadata == {"model": "openai/small"}


@BOTH
async def test_a_rate_limit_is_typed_after_all_tries(provider: FakeProvider, stream: bool) -> None:
    provider.script_chat(error_reply(429), error_reply(429), error_reply(429))
    async with connected(provider) as model:
        error = await failure(model, stream=stream)
    assert error.reason is Reason.MODEL_RATE_LIMITED
    assert error.metadata == {"model": "openai/small"}
    assert error.retry_after == timedelta(seconds=1)


@BOTH
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (429, Reason.MODEL_RATE_LIMITED),
        ("rate_limit_exceeded", Reason.MODEL_RATE_LIMITED),
        ("content_filter", Reason.MODEL_REFUSED),
        ("context_length_exceeded", Reason.MODEL_CONTEXT_TOO_LONG),
        (401, Reason.MODEL_REJECTED),
    ],
)
async def test_an_error_inside_an_answer_is_typed_as_any_other(
    provider: FakeProvider, stream: bool, code: object, reason: Reason
) -> None:
    error = {"error": {"message": "no", "code": code}}
    provider.script_chat(streamed(delta("some"), event(error)) if stream else json_reply(error))
    async with connected(provider, replace(QUICK, tries=1)) as model:
        assert (await failure(model, stream=stream)).reason is reason


@pytest.mark.parametrize(
    "step", [error_reply(429, x_should_retry="false"), error_reply(429, code="insufficient_quota")]
)
async def test_a_used_up_quota_is_not_tried_again(provider: FakeProvider, step: Step) -> None:
    provider.script_chat(step)
    async with connected(provider) as model:
        assert (await failure(model)).reason is Reason.MODEL_RATE_LIMITED


async def test_the_providers_wait_replaces_ours(provider: FakeProvider) -> None:
    """With a backoff beyond the total time only the provider's wait allows a second try."""
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    provider.script_chat(
        error_reply(429, retry_after="0"), error_reply(503, retry_after=past), chat_reply("hello")
    )
    async with connected(provider, ModelLimits(backoff_seconds=8, total_seconds=3)) as model:
        await ask(model)
        provider.script_chat(error_reply(429))
        assert (await failure(model)).reason is Reason.MODEL_RATE_LIMITED


@pytest.mark.parametrize(("wait", "told"), [("3600", timedelta(hours=1)), ("1e999", timedelta(days=1))])
async def test_a_wait_beyond_the_total_time_is_the_callers(
    provider: FakeProvider, wait: str, told: timedelta
) -> None:
    provider.script_chat(error_reply(429, retry_after=wait))
    async with connected(provider) as model:
        assert (await failure(model)).retry_after == told


@BOTH
async def test_a_try_without_an_answer_ends_and_another_is_made(provider: FakeProvider, stream: bool) -> None:
    provider.script_chat(hang, chat_reply("hello"), hang, hang)
    async with connected(provider, replace(QUICK, tries=2, try_seconds=0.5)) as model:
        await ask(model, stream=stream)
        error = await failure(model, stream=stream)
    assert error.reason is Reason.MODEL_TIMEOUT
    assert error.metadata == {"timeout_seconds": "0.5"}
    assert error.retry_after == timedelta(seconds=1)


async def test_a_stream_that_falls_silent_ends_before_the_try_would(provider: FakeProvider) -> None:
    """Without the limit between pieces the test would run into its own."""
    limits = replace(QUICK, tries=2, try_seconds=3600, total_seconds=3600, idle_seconds=0.25)
    provider.script_chat(*[chat_reply("hello and more", hold=asyncio.Event())] * 2)
    async with connected(provider, limits) as model:
        error = await failure(model)
    assert error.metadata == {"timeout_seconds": "0.25"}


async def test_a_model_may_think_longer_than_it_may_fall_silent(provider: FakeProvider) -> None:
    async def thinking() -> AsyncIterator[bytes]:
        yield delta("")
        await asyncio.sleep(0.8)
        yield delta("hello") + END

    async def thoughtful(request: ProviderRequest) -> StreamedReply:
        return StreamedReply(thinking())

    provider.script_chat(thoughtful)
    async with connected(provider, replace(QUICK, tries=1, idle_seconds=0.5)) as model:
        await ask(model)


async def test_a_slow_stream_ends_with_its_try(provider: FakeProvider) -> None:
    """Pieces that keep coming do not keep a try alive."""
    provider.script_chat(chat_reply("x" * 10_000, piece=1, pause=0.01))
    async with connected(provider, replace(QUICK, tries=1, try_seconds=0.25)) as model:
        assert (await failure(model)).reason is Reason.MODEL_TIMEOUT


async def test_the_time_of_all_tries_together_is_limited(provider: FakeProvider) -> None:
    provider.script_chat(hang)
    async with connected(provider, replace(QUICK, try_seconds=3600, total_seconds=0.25)) as model:
        assert (await failure(model)).reason is Reason.MODEL_TIMEOUT


async def test_whoever_takes_its_time_with_a_piece_is_not_stopped(provider: FakeProvider) -> None:
    provider.script_chat(chat_reply("one two", piece=4, hold=(hold := asyncio.Event())))
    async with connected(provider, replace(QUICK, tries=1, idle_seconds=0.5)) as model:
        replies = model.ask(PROMPT, stream=True)
        assert await anext(replies) == Piece("one ")
        await asyncio.sleep(0.8)
        hold.set()
        assert await anext(replies) == Piece("two")
        await replies.aclose()


async def test_nobody_listening_is_unavailable() -> None:
    async with FakeProvider.running() as provider:
        pass
    async with connected(provider) as model:
        assert (await failure(model)).reason is Reason.MODEL_UNAVAILABLE


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_rejection_is_not_tried_again(provider: FakeProvider, stream: bool, status: int) -> None:
    steps = 2 if stream and status in (400, 422) else 1  # once more without the count
    provider.script_chat(*[error_reply(status)] * steps)
    async with connected(provider) as model:
        error = await failure(model, stream=stream)
    assert error.reason is Reason.MODEL_REJECTED
    assert error.metadata == {"model": "openai/small"}


@pytest.mark.parametrize(
    "step",
    [
        error_reply(400, code="context_length_exceeded"),
        error_reply(400, "This model's maximum context length is 8192 tokens. However, my diary"),
        json_reply({"error": "the request exceeds the available context size: my diary"}, status=400),
    ],
)
async def test_a_context_that_is_too_long_is_told_with_our_count(provider: FakeProvider, step: Step) -> None:
    provider.script_chat(step)
    async with connected(provider) as model:
        error = await failure(model, prompt=SCHEMA)
    assert error.reason is Reason.MODEL_CONTEXT_TOO_LONG
    assert error.metadata == {"tokens": str(ESTIMATE)}


@BOTH
async def test_an_empty_answer_is_asked_for_once_more(provider: FakeProvider, stream: bool) -> None:
    provider.script_chat(
        chat_reply(""), chat_reply("hello"), chat_reply(" \n"), chat_reply("", finish="length")
    )
    async with connected(provider, replace(QUICK, tries=5)) as model:
        assert (await ask(model, stream=stream)).completion.text == "hello"
        error = await failure(model, stream=stream)
    assert error.reason is Reason.MODEL_OUTPUT_EMPTY
    assert error.metadata == {"model": "openai/small"}


@pytest.mark.parametrize("status", [400, 422])
async def test_a_schema_is_sent_and_done_without_if_it_is_rejected(
    provider: FakeProvider, status: int
) -> None:
    provider.script_chat(chat_reply({"messages": ["hi"], "tool_calls": []}))
    async with connected(provider) as model:
        completion = (await ask(model, SCHEMA)).completion
        assert json.loads(completion.text) == {"messages": ["hi"], "tool_calls": []}
        assert provider.chats[0].body["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}},
        }
        refused = error_reply(status, "no such field: response_format")
        provider.script_chat(refused, chat_reply("hi"), chat_reply("hi"))
        for _ in range(2):
            await ask(model, SCHEMA)
    sent = [("response_format" in one.body, "stream_options" in one.body) for one in provider.chats]
    assert sent == [(True, True), (True, True), (False, True), (False, True)]


async def test_a_rejection_for_another_reason_costs_no_schema(provider: FakeProvider) -> None:
    provider.script_chat(*[error_reply(400)] * 3, chat_reply("hi"))
    async with connected(provider) as model:
        assert (await failure(model, prompt=SCHEMA)).reason is Reason.MODEL_REJECTED
        await ask(model, SCHEMA)
    assert "response_format" in provider.chats[3].body
    assert "stream_options" in provider.chats[3].body


@pytest.mark.parametrize(("mode", "sent"), [("on", True), ("off", False)])
async def test_a_schema_is_sent_always_or_never_if_so_set(
    provider: FakeProvider, mode: SchemaMode, sent: bool
) -> None:
    provider.script_chat(error_reply(400, "response_format"), error_reply(400))
    async with connected(provider, json_schema=mode) as model:
        await failure(model, prompt=SCHEMA)
    assert ["response_format" in request.body for request in provider.chats] == [sent, sent]


async def test_a_provider_that_refuses_to_count_is_asked_without_it_from_then_on(
    provider: FakeProvider,
) -> None:
    """It does not say what it refuses, so that the schema is suspected first, and cleared."""
    provider.script_chat(error_reply(422), error_reply(422), chat_reply("hi"), chat_reply("hi"))
    async with connected(provider) as model:
        await ask(model, SCHEMA)
        assert (await ask(model, SCHEMA)).completion.usage == TokenUsage(ESTIMATE, TOKENS.count("hi"), 0, 1)
    sent = [("response_format" in one.body, "stream_options" in one.body) for one in provider.chats]
    assert sent == [(True, True), (False, True), (False, False), (True, False)]


async def test_the_older_name_of_the_limit_is_used_where_the_newer_is_rejected(
    provider: FakeProvider,
) -> None:
    provider.script_chat(error_reply(400, param="max_completion_tokens"), chat_reply("hi"), chat_reply("hi"))
    async with connected(provider) as model:
        for _ in range(2):
            await ask(model, replace(PROMPT, max_tokens=9))
    assert [one.body.get("max_tokens") for one in provider.chats] == [None, 9, 9]
    assert [one.body.get("max_completion_tokens") for one in provider.chats] == [9, None, None]


async def test_only_so_many_calls_run_at_once(provider: FakeProvider) -> None:
    running = most = 0
    full, released = asyncio.Event(), asyncio.Event()

    async def held(request: ProviderRequest) -> ProviderReply | StreamedReply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            full.set()
        await released.wait()
        running -= 1
        return await chat_reply("hello")(request)

    provider.chat = lambda request: held
    async with connected(provider, replace(QUICK, at_once=2)) as model:
        calls = [asyncio.create_task(ask(model, stream=bool(n % 2))) for n in range(6)]
        await full.wait()
        released.set()
        await asyncio.gather(*calls)
    assert most == 2
    assert len(provider.chats) == 6


async def test_a_call_that_waits_to_try_again_does_not_hold_up_another(provider: FakeProvider) -> None:
    provider.script_chat(error_reply(503, retry_after="3600"), chat_reply("hello"), chat_reply("hello"))
    limits = replace(QUICK, at_once=1, total_seconds=7200)
    async with connected(provider, limits) as model:
        waiting = asyncio.create_task(ask(model))
        await provider.asked.wait()
        for _ in range(2):  # the first may be asked before the other begins to wait
            assert (await ask(model)).completion.text == "hello"
        waiting.cancel()
        await asyncio.wait({waiting})


@pytest.mark.parametrize("stream", [True, False])
async def test_who_stops_listening_stops_the_call(provider: FakeProvider, stream: bool) -> None:
    """The one call at once that is allowed is free again, and the provider sees that nobody is there."""
    provider.script_chat(chat_reply("one two three", hold=asyncio.Event()), chat_reply("hello"))
    async with connected(provider, replace(QUICK, at_once=1)) as model:
        replies = model.ask(PROMPT, stream=stream)
        if stream:
            await anext(replies)
            await replies.aclose()
        else:
            listening = asyncio.create_task(anext(replies))
            await provider.asked.wait()
            listening.cancel()
            await asyncio.wait({listening})
        await asyncio.wait_for(provider.left.wait(), 20)
        await ask(model)


async def test_nothing_that_was_sent_or_answered_is_told(
    provider: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": "cannot do this: my diary", "code": "my diary", "param": "my diary"}}
    whole = {"choices": [{"message": {"content": "", "refusal": "my diary"}}]}
    steps: list[Step] = [json_reply(echo, status) for status in (400, 400, 401, 422, 422)]
    steps += [json_reply(echo, status) for status in (429, 500) for _ in range(3)]
    steps += [*[json_reply(echo)] * 3, json_reply(whole), *[chat_reply("my diary", breaks_after=1)] * 3]
    provider.script_chat(*steps, chat_reply("my diary"))
    async with connected(provider) as model:
        for _ in range(8):
            error = await failure(model)
            assert "diary" not in f"{error} {error.metadata}"
        await ask(model)
    assert "the language model failed: refused" in caplog.text
    for record in caplog.records:
        assert "diary" not in f"{record.getMessage()} {vars(record)}", record.name


@asynccontextmanager
async def configured(providers: dict[str, str], **defaults: str) -> AsyncIterator[ConfiguredModels]:
    models = ConfiguredModels(
        {name: ModelProvider(url) for name, url in providers.items()},
        {Purpose(purpose): name for purpose, name in defaults.items()},
        TOKENS,
    )
    try:
        yield models
    finally:
        await models.close()


async def test_models_are_found_by_provider_and_name(provider: FakeProvider) -> None:
    async with FakeProvider.running() as other:
        provider.script_chat(chat_reply("from openai"))
        other.script_chat(chat_reply("from other"))
        async with configured({"openai": provider.url, "other": other.url}) as models:
            first = models.get("openai/gpt-x", Purpose.CHAT)
            second = models.get("other/meta/llama:3", Purpose.CHAT)
            assert (await ask(first)).completion.text == "from openai"
            assert (await ask(second)).completion.text == "from other"
            assert models.get("openai/gpt-x", Purpose.SUMMARY) is first
        assert provider.chats[0].body["model"] == "gpt-x"
        assert other.chats[0].body["model"] == "meta/llama:3"
        assert second.name == "other/meta/llama:3"


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("acme/x", {"model": "acme/x"}),
        ("gpt-x", {}),
        ("openai/", {}),
        ("openai/my dear diary", {}),
        ("/x", {}),
    ],
)
async def test_a_model_of_no_provider_is_unknown(name: str, metadata: dict[str, str]) -> None:
    async with configured({"openai": "http://127.0.0.1:1/v1"}, chat="gpt") as models:
        with pytest.raises(SageError) as refused:
            models.get(name, Purpose.CHAT)
    assert refused.value.reason is Reason.MODEL_UNKNOWN
    assert refused.value.metadata == metadata


async def test_a_purpose_without_a_model_has_that_of_a_more_general_one() -> None:
    url = {"openai": "http://127.0.0.1:1/v1", "other": "http://127.0.0.1:2/v1"}
    names: list[list[str]] = []
    for defaults in (
        {"chat": "a"},
        {"chat": "a", "summary": "other/b"},
        {"chat": "x/y", "routing": "openai/c"},
    ):
        async with configured(url, **defaults) as models:
            names.append([models.get("", purpose).name for purpose in Purpose])
    assert names == [
        ["openai/a", "openai/a", "openai/a"],
        ["openai/a", "other/b", "other/b"],
        ["openai/x/y", "openai/x/y", "openai/c"],
    ]


@pytest.mark.parametrize("purpose", Purpose)
async def test_without_a_provider_and_the_offline_model_there_is_none(purpose: Purpose) -> None:
    settings = test_settings("postgresql://nobody", offline_model=False)
    async with open_language_models(settings, TOKENS) as models:
        with pytest.raises(SageError) as missing:
            models.get("", purpose)
        with pytest.raises(SageError) as unknown:
            models.get("openai/gpt-x", purpose)
    assert missing.value.reason is Reason.MODEL_NOT_CONFIGURED
    assert missing.value.metadata == {"purpose": purpose.value}
    assert unknown.value.reason is Reason.MODEL_UNKNOWN


async def test_the_settings_say_who_is_asked(provider: FakeProvider) -> None:
    settings = test_settings(
        "postgresql://nobody",
        llm_base_url=provider.url,
        llm_model="big",
        llm_summary_model="other/small",
        llm_providers=f"other={provider.url}",
        llm_provider_keys="other=its-key",
    )
    provider.script_chat(chat_reply("hi"), chat_reply("hi"))
    async with open_language_models(settings, TOKENS) as models:
        for purpose in (Purpose.CHAT, Purpose.SUMMARY):
            async for _ in models.get("", purpose).ask(PROMPT, stream=False):
                pass
    asked = [(one.body["model"], one.headers["authorization"]) for one in provider.chats]
    assert asked == [("big", "Bearer unused"), ("small", "Bearer its-key")]


async def test_the_fake_provider_fails_a_test_that_asks_what_it_did_not_script() -> None:
    with pytest.raises(AssertionError, match="unexpected call: 1 requests for chat"):
        async with FakeProvider.running() as provider, connected(provider) as model:
            await failure(model)
    with pytest.raises(AssertionError, match="1 steps were not asked for"):
        async with FakeProvider.running() as provider:
            provider.script_chat(chat_reply("hello"))
