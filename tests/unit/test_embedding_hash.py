"""The hashed model."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from sage_server.adapters.embedding import HashEmbedder


def place(word: str, dimensions: int) -> tuple[int, int]:
    number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    return (number >> 1) % dimensions, 1 if number & 1 else -1


async def test_the_name_says_the_dimensions() -> None:
    assert HashEmbedder().model == "hash/256"
    assert (HashEmbedder(64).model, HashEmbedder(64).dimensions) == ("hash/64", 64)


async def test_vectors_are_the_same_in_every_process() -> None:
    (found,) = (await HashEmbedder(1_000).embed(["Green TEA, tea"])).vectors
    assert sorted(np.flatnonzero(found)) == sorted([place("green", 1_000)[0], place("tea", 1_000)[0]])
    at, sign = place("tea", 1_000)
    assert found[at] == pytest.approx(sign * 2 / 5**0.5)
    # A literal, for a change of it would make stored vectors useless.
    assert (at, sign) == (352, -1)


async def test_weights_count() -> None:
    (found,) = (
        await HashEmbedder(1_000).embed_queries(["the Tea"], {"the": 0.0, "Tea": 3.0}.__getitem__)
    ).vectors
    at, sign = place("tea", 1_000)
    assert found[at] == sign
    assert np.count_nonzero(found) == 1


async def test_words_that_cancel_each_other_leave_the_first() -> None:
    words = [f"w{n}" for n in range(40)]
    one = words[0]
    other = next(w for w in words if place(w, 2) == (place(one, 2)[0], -place(one, 2)[1]))
    embedder = HashEmbedder(2)
    both, alone = (await embedder.embed([f"{one} {other}", one])).vectors
    np.testing.assert_array_equal(both, alone)


async def test_text_without_words_is_zeros() -> None:
    assert not (await HashEmbedder().embed(["?!"])).vectors.any()
