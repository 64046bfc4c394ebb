"""The provider's adapter against a real HTTP server."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from sage_server.adapters.embedding import ProviderEmbedder, ProviderLimits
from sage_server.domain.errors import Reason, SageError
from sage_server.ports.embedding import Vectors, unit
from support.provider import (
    Answering,
    FakeProvider,
    ProviderReply,
    ProviderRequest,
    drop,
    embedding_of,
    embeddings_reply,
    hang,
    json_reply,
)

QUICK = ProviderLimits(backoff_seconds=0.001)


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider.running() as running:
        yield running


@asynccontextmanager
async def connected(
    provider: FakeProvider, limits: ProviderLimits = QUICK, *, dimensions: int | None = 8
) -> AsyncIterator[ProviderEmbedder]:
    embedder = await ProviderEmbedder.connect(
        base_url=provider.url, api_key="secret", model="small", dimensions=dimensions, limits=limits
    )
    try:
        yield embedder
    finally:
        await embedder.close()


def expected(*texts: str) -> Vectors:
    return unit(np.stack([embedding_of(text, 8) for text in texts]))


def no_weight(word: str) -> float:
    raise AssertionError("a provider's model weighs words itself")


async def failure(embedder: ProviderEmbedder, texts: tuple[str, ...] = ("hello",)) -> str:
    with pytest.raises(SageError) as refused:
        await embedder.embed(texts)
    assert refused.value.reason is Reason.EMBEDDING_UNAVAILABLE
    assert refused.value.retry_after == timedelta(seconds=1)
    return refused.value.metadata["cause"]


async def test_vectors_have_length_one_and_the_order_of_the_texts(provider: FakeProvider) -> None:
    async with connected(provider) as embedder:
        assert (embedder.model, embedder.dimensions) == ("openai/small", 8)
        found = await embedder.embed(["green tea", "black coffee at noon"])
        np.testing.assert_allclose(found.vectors, expected("green tea", "black coffee at noon"), atol=1e-6)
        assert found.vectors.dtype == np.float32
        assert found.tokens == 6
        asked = await embedder.embed_queries(["green tea"], no_weight)
        np.testing.assert_array_equal(asked.vectors, found.vectors[:1])
    first = provider.requests[0]
    assert first.headers["authorization"] == "Bearer secret"
    assert first.body["model"] == "small"


async def test_rows_are_put_in_order_by_their_index_and_plain_numbers_are_understood(
    provider: FakeProvider,
) -> None:
    async def backwards(request: ProviderRequest) -> ProviderReply:
        plain = replace(request, body={**request.body, "encoding_format": "float"})
        answer = json.loads(embeddings_reply(plain, 8).body)
        return json_reply({**answer, "data": answer["data"][::-1]})

    provider.script(backwards)
    async with connected(provider) as embedder:
        found = await embedder.embed(["one", "two", "three"])
    np.testing.assert_allclose(found.vectors, expected("one", "two", "three"), atol=1e-6)


async def test_dimensions_are_learnt_by_one_call_if_they_are_not_known(provider: FakeProvider) -> None:
    async with connected(provider, dimensions=None) as embedder:
        assert embedder.dimensions == 8
        assert len(provider.requests) == 1


async def test_a_provider_that_cannot_be_probed_is_unavailable(provider: FakeProvider) -> None:
    provider.script(json_reply({}, status=401))
    with pytest.raises(SageError) as refused:
        async with connected(provider, dimensions=None):
            pass
    assert refused.value.metadata == {"cause": "refused"}


async def test_many_texts_go_in_batches_by_number_and_by_size(provider: FakeProvider) -> None:
    texts = [f"word{n}" for n in range(7)] + ["x" * 60, "y" * 60]
    async with connected(provider, replace(QUICK, batch_texts=3, batch_bytes=100)) as embedder:
        found = await embedder.embed(texts)
    np.testing.assert_allclose(found.vectors, expected(*texts), atol=1e-6)
    sizes = sorted(len(request.body["input"]) for request in provider.requests)
    assert sizes == [1, 2, 3, 3]
    assert found.tokens == 9


async def test_only_so_many_batches_run_at_once(provider: FakeProvider) -> None:
    running = most = 0
    full, released = asyncio.Event(), asyncio.Event()

    async def held(request: ProviderRequest) -> ProviderReply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            full.set()
        await released.wait()
        running -= 1
        return embeddings_reply(request, 8)

    provider.script(*[held] * 6)
    async with connected(provider, replace(QUICK, batch_texts=1, at_once=2)) as embedder:
        first = asyncio.create_task(embedder.embed(["a", "b", "c"]))
        second = asyncio.create_task(embedder.embed(["d", "e", "f"]))
        await full.wait()
        released.set()
        await asyncio.gather(first, second)
    assert most == 2
    assert len(provider.requests) == 6


async def test_a_long_text_goes_in_pieces_and_none_of_it_is_left_out(provider: FakeProvider) -> None:
    text = "é" * 50 + "日本語" * 30 + "🙂" * 20
    async with connected(provider, replace(QUICK, text_bytes=64)) as embedder:
        found = await embedder.embed(["short", text])
    sent = [piece for request in provider.requests for piece in request.body["input"]]
    assert sent[0] == "short"
    assert "".join(sent[1:]) == text
    assert all(len(piece.encode()) <= 64 for piece in sent)
    pieces = [len(piece.encode()) * expected(piece)[0] for piece in sent[1:]]
    np.testing.assert_allclose(found.vectors[1], unit(np.array([np.sum(pieces, axis=0)]))[0], atol=1e-6)


async def test_blank_texts_are_zeros_and_are_not_sent(provider: FakeProvider) -> None:
    async with connected(provider) as embedder:
        found = await embedder.embed(["", "tea", " \n\t"])
        np.testing.assert_allclose(found.vectors[1:2], expected("tea"), atol=1e-6)
        assert not found.vectors[[0, 2]].any()
        assert [request.body["input"] for request in provider.requests] == [["tea"]]
        assert (await embedder.embed(["", "  "])).vectors.shape == (2, 8)
        assert (await embedder.embed([])).vectors.shape == (0, 8)
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "step", [json_reply({}, status=429), json_reply({}, status=503), json_reply({}, status=408), drop]
)
async def test_what_may_pass_is_tried_again(provider: FakeProvider, step: ProviderReply | Answering) -> None:
    provider.script(step, step)
    async with connected(provider) as embedder:
        found = await embedder.embed(["tea"])
    np.testing.assert_allclose(found.vectors, expected("tea"), atol=1e-6)
    assert len(provider.requests) == 3


async def test_a_try_without_an_answer_ends_and_another_is_made(provider: FakeProvider) -> None:
    provider.script(hang)
    async with connected(provider, replace(QUICK, try_seconds=0.1)) as embedder:
        await embedder.embed(["tea"])
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (json_reply({}, status=429), "rate_limited"),
        (json_reply({}, status=500), "unreachable"),
        (drop, "unreachable"),
        (hang, "timeout"),
    ],
)
async def test_tries_are_limited_and_the_error_names_the_cause(
    provider: FakeProvider, step: ProviderReply | Answering, cause: str
) -> None:
    provider.script(step, step, step)
    async with connected(provider, replace(QUICK, tries=3, try_seconds=0.2)) as embedder:
        assert await failure(embedder) == cause
    assert len(provider.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_is_not_tried_again(provider: FakeProvider, status: int) -> None:
    provider.script(json_reply({}, status=status))
    async with connected(provider) as embedder:
        assert await failure(embedder) == "refused"
    assert len(provider.requests) == 1


async def test_a_used_up_quota_is_not_tried_again(provider: FakeProvider) -> None:
    provider.script(json_reply({}, status=429, x_should_retry="false"))
    async with connected(provider) as embedder:
        assert await failure(embedder) == "rate_limited"
    assert len(provider.requests) == 1


async def test_nobody_listening_is_unreachable() -> None:
    async with FakeProvider.running() as provider:
        pass
    async with connected(provider, replace(QUICK, tries=2)) as embedder:
        assert await failure(embedder) == "unreachable"


async def test_the_providers_wait_replaces_ours(provider: FakeProvider) -> None:
    """With a backoff beyond the total time only the provider's wait allows a second try."""
    limits = ProviderLimits(backoff_seconds=8, total_seconds=3)
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    provider.script(json_reply({}, status=429, retry_after="0"), json_reply({}, status=503, retry_after=past))
    async with connected(provider, limits) as embedder:
        await embedder.embed(["tea"])
        assert len(provider.requests) == 3
        provider.script(json_reply({}, status=429))
        assert await failure(embedder) == "rate_limited"
    assert len(provider.requests) == 4


@pytest.mark.parametrize(
    "wait",
    ["3600", "1e999", format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)],
    ids=["seconds", "too_many", "date"],
)
async def test_a_wait_beyond_the_total_time_is_not_begun(provider: FakeProvider, wait: str) -> None:
    provider.script(json_reply({}, status=429, retry_after=wait))
    async with connected(provider) as embedder:
        assert await failure(embedder) == "rate_limited"
    assert len(provider.requests) == 1


@pytest.mark.parametrize("wait", ["soon", "nan", ""])
async def test_a_wait_that_makes_no_sense_is_passed_over(provider: FakeProvider, wait: str) -> None:
    provider.script(json_reply({}, status=429, retry_after=wait))
    async with connected(provider) as embedder:
        await embedder.embed(["tea"])
    assert len(provider.requests) == 2


def _row(embedding: object, index: object = 0) -> dict[str, object]:
    return {"index": index, "embedding": embedding}


GOOD = [0.5] * 8
MALFORMED = {
    "no JSON": ProviderReply(body=b"<html>"),
    "no text": ProviderReply(body=b"\xff\xfe"),
    "a list": json_reply([]),
    "no data": json_reply({"object": "list"}),
    "too few rows": json_reply({"data": []}),
    "too many rows": json_reply({"data": [_row(GOOD), _row(GOOD, 1)]}),
    "a wrong index": json_reply({"data": [_row(GOOD, 1)]}),
    "no index": json_reply({"data": [{"embedding": GOOD}]}),
    "too few numbers": json_reply({"data": [_row([0.5] * 7)]}),
    "too many numbers": json_reply({"data": [_row([0.5] * 9)]}),
    "not a number": ProviderReply(body=json.dumps({"data": [_row([float("nan")] * 8)]}).encode()),
    "null": json_reply({"data": [_row([None] * 8)]}),
    "too large": json_reply({"data": [_row([1e39] * 8)]}),
    "far too large": json_reply({"data": [_row([10**400] * 8)]}),
    "nested": json_reply({"data": [_row([[0.5]] * 8)]}),
    "no base64": json_reply({"data": [_row("!")]}),
    "cut base64": json_reply({"data": [_row(base64.b64encode(b"\0" * 31).decode())]}),
}


@pytest.mark.parametrize("reply", MALFORMED.values(), ids=MALFORMED.keys())
async def test_an_answer_that_is_not_what_was_asked_for_is_refused(
    provider: FakeProvider, reply: ProviderReply
) -> None:
    provider.script(reply)
    async with connected(provider) as embedder:
        assert await failure(embedder) == "malformed"
    assert len(provider.requests) == 1


async def test_one_row_for_two_texts_is_refused_and_so_is_the_same_row_twice(provider: FakeProvider) -> None:
    provider.script(json_reply({"data": [_row(GOOD)]}), json_reply({"data": [_row(GOOD), _row(GOOD)]}))
    async with connected(provider) as embedder:
        assert await failure(embedder, ("a", "b")) == "malformed"
        assert await failure(embedder, ("a", "b")) == "malformed"


async def test_an_answer_without_usage_costs_nothing(provider: FakeProvider) -> None:
    provider.script(json_reply({"data": [_row(GOOD)]}), json_reply({"data": [_row(GOOD)], "usage": None}))
    async with connected(provider) as embedder:
        assert (await embedder.embed(["a"])).tokens == 0
        assert (await embedder.embed(["a"])).tokens == 0


async def test_a_failed_batch_stops_the_others(provider: FakeProvider) -> None:
    """Two calls at once are possible afterwards, so the one that would hang for an hour is over."""
    both = asyncio.Barrier(2)

    async def together(request: ProviderRequest) -> ProviderReply:
        await both.wait()
        return embeddings_reply(request, 8)

    limits = ProviderLimits(batch_texts=1, at_once=2, try_seconds=3600, total_seconds=3600)
    provider.script(hang, json_reply({}, status=400), together, together)
    async with connected(provider, limits) as embedder:
        assert await failure(embedder, ("a", "b")) == "refused"
        async with asyncio.timeout(20):
            await embedder.embed(["c", "d"])


async def test_nothing_that_the_provider_says_is_told(
    provider: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": "cannot embed: my diary"}}
    provider.script(json_reply(echo, status=400), json_reply(echo))
    async with connected(provider) as embedder:
        for _ in range(2):
            with pytest.raises(SageError) as refused:
                await embedder.embed(["my diary"])
            error: BaseException | None = refused.value
            assert error is not None
            assert error.__cause__ is None
            assert error.__context__ is None
            assert "diary" not in f"{error} {refused.value.metadata}"
    assert "the embedding provider failed: refused" in caplog.text
    assert "diary" not in caplog.text
