"""Reads that share round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sage_server.adapters.postgres.batching import BatchedReads


class Source:
    """Counts what it is asked, and waits until it is let go."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def load(self, keys: Sequence[int]) -> dict[int, str]:
        self.asked.append(list(keys))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {key: f"row {key}" for key in keys if key >= 0}


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_reads_of_one_moment_share_a_statement_and_later_ones_the_next() -> None:
    source = Source()
    reads: BatchedReads[int, str] = BatchedReads(source.load)
    waves = []
    for start in (0, 10, 20, 30):
        waves += [asyncio.create_task(reads.get(start + n)) for n in range(3)]
        await settle()
    # Two statements are under way; everything that came after waits for one place.
    assert source.asked == [[0, 1, 2], [10, 11, 12]]
    source.gate.set()
    found = await asyncio.gather(*waves)
    assert found == [f"row {start + n}" for start in (0, 10, 20, 30) for n in range(3)]
    assert source.asked[2:] == [[20, 21, 22, 30, 31, 32]]


async def test_two_readers_of_one_row_ask_once_and_a_missing_row_is_none() -> None:
    source = Source()
    source.gate.set()
    reads: BatchedReads[int, str] = BatchedReads(source.load)
    found = list(await asyncio.gather(reads.get(1), reads.get(1), reads.get(-1)))
    assert found == ["row 1", "row 1", None]
    assert source.asked == [[1, -1]]


async def test_a_failure_reaches_every_reader_and_the_next_read_is_tried_again() -> None:
    source = Source()
    source.gate.set()
    source.error = ConnectionError()
    reads: BatchedReads[int, str] = BatchedReads(source.load)
    failed = await asyncio.gather(reads.get(1), reads.get(2), return_exceptions=True)
    assert all(isinstance(error, ConnectionError) for error in failed)
    source.error = None
    assert await reads.get(1) == "row 1"


async def test_a_reader_who_goes_away_does_not_disturb_the_others() -> None:
    source = Source()
    reads: BatchedReads[int, str] = BatchedReads(source.load)
    gone, stays = asyncio.create_task(reads.get(1)), asyncio.create_task(reads.get(2))
    await settle()
    gone.cancel()
    source.gate.set()
    assert await stays == "row 2"
    with pytest.raises(asyncio.CancelledError):
        await gone
