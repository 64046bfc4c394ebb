"""What tests of memory share."""

from __future__ import annotations

import asyncio
from typing import Any

import sage_client
from sage_client import AsyncSageClient, Memory, MemoryFilter, NewItem, SearchResult

MODEL = "local/wordllama-256"
DIMENSIONS = 256
_PATIENCE = 30.0


async def indexed(client: AsyncSageClient) -> None:
    """Wait until no message waits to be indexed."""
    async with asyncio.timeout(_PATIENCE):
        while (await client.memory.stats()).pending_count:  # noqa: ASYNC110 (another process may do it)
            await asyncio.sleep(0.02)


async def said(client: AsyncSageClient, *messages: str | NewItem) -> sage_client.Conversation:
    """A conversation with messages that search finds."""
    thread = await client.conversations.create("Thread")
    await client.conversations.append(
        thread.id, [NewItem.user(one) if isinstance(one, str) else one for one in messages]
    )
    await indexed(client)
    return thread


async def listed(client: AsyncSageClient, where: MemoryFilter | None = None) -> list[Memory]:
    """All that a filter names, the newest first."""
    return [memory async for memory in client.memory.list(where)]


async def texts(client: AsyncSageClient, where: MemoryFilter | None = None) -> list[str]:
    """Their texts."""
    return [memory.text for memory in await listed(client, where)]


async def results(client: AsyncSageClient, query: str = "", **options: Any) -> tuple[SearchResult, ...]:
    """What a search finds."""
    return (await client.memory.search(query, **options)).results


async def found(client: AsyncSageClient, query: str = "", **options: Any) -> list[str]:
    """The texts of what a search finds, the best first."""
    return [result.memory.text for result in await results(client, query, **options)]


def axis(at: int, size: float = 1.0, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector along one axis."""
    vector = [0.0] * dimensions
    vector[at] = size
    return vector
