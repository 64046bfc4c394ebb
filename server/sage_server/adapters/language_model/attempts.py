"""One try of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from sage_server.adapters.language_model.answers import Answer, BodyReading, EventReading, Reading
from sage_server.adapters.language_model.failures import UNUSABLE, Failure, from_response
from sage_server.adapters.language_model.limits import ModelLimits
from sage_server.ports.language_model import Piece

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_END_SECONDS = 0.1

Part: TypeAlias = Piece | Answer | Failure


async def attempt(
    client: AsyncOpenAI, request: dict[str, Any], limits: ModelLimits, ends: float
) -> AsyncGenerator[Part, None]:
    """Pieces, if a stream is asked for, and then an answer or a failure. `ends` is by the loop's clock."""
    import httpx2  # noqa: PLC0415 (with openai, which lets its errors through while a body is read)
    import openai  # noqa: PLC0415 (most of a second, and only this adapter needs it)

    reading: Reading | None = None
    failure = UNUSABLE
    try:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout_at(ends):
                # Raw: the package would hold an answer of any size, and make an object of every event.
                response = await stack.enter_async_context(
                    client.chat.completions.with_streaming_response.create(**request)
                )
            reading = _reading(response.headers.get("content-type", ""), limits, stream=request["stream"])
            async with aclosing(_pieces(response.iter_bytes(), reading, limits, ends)) as pieces:
                async for piece in pieces:
                    yield piece
    except TimeoutError:
        idle = asyncio.get_running_loop().time() < ends
        failure = Failure("timeout", again=True, seconds=limits.idle_seconds if idle else limits.try_seconds)
    except openai.APIStatusError as error:
        failure = from_response(error)
    except (openai.APIConnectionError, httpx2.RequestError):
        pass
    # What breaks after the answer's end does not matter.
    outcome = failure if reading is None else reading.outcome()
    yield failure if outcome is UNUSABLE else outcome


def _reading(content_type: str, limits: ModelLimits, *, stream: bool) -> Reading:
    """By what came, not by what was asked for: a provider that cannot stream answers as a whole."""
    if stream and not content_type.startswith("application/json"):
        return EventReading(limits.answer_characters)
    return BodyReading(limits.answer_characters)


async def _pieces(
    body: AsyncIterator[bytes], reading: Reading, limits: ModelLimits, ends: float
) -> AsyncGenerator[Piece, None]:
    clock, began = asyncio.get_running_loop().time, False
    async with aclosing(cast("AsyncGenerator[bytes, None]", body)) as chunks:
        while not reading.over:
            # Not around a yield: the time limit would stop whoever asked, too.
            async with asyncio.timeout_at(min(ends, clock() + limits.idle_seconds) if began else ends):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            for text in reading.take(chunk):
                began = True
                yield Piece(text)
        # The connection can be used again only if the end of the body was read.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                async for _ in chunks:
                    pass
