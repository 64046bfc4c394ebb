"""Lengths, parts and refusals."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from sage_server.adapters.embedding.texts import parts
from sage_server.domain.embeddings import (
    embedding_dimension_mismatch,
    embedding_invalid,
    embedding_model_mismatch,
    embedding_unavailable,
)
from sage_server.domain.errors import Reason, SageError
from sage_server.ports.embedding import unit


def test_rows_come_to_length_one_and_zeros_stay() -> None:
    found = unit(np.array([[3, 4], [0, 0], [1e-30, 0], [-3e38, 3e38]], dtype=np.float32))
    expected = np.array([[0.6, 0.8], [0, 0], [1, 0], [-np.sqrt(0.5), np.sqrt(0.5)]])
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert found.dtype == np.float32


def test_a_second_time_changes_no_bit() -> None:
    once = unit(np.random.default_rng(1).normal(size=(200, 256)))
    np.testing.assert_array_equal(unit(once), once)
    mixed = np.vstack([once[:1], 2 * once[1:2]])
    np.testing.assert_array_equal(unit(mixed)[0], once[0])


def test_the_answer_is_contiguous_whatever_came() -> None:
    turned = np.asfortranarray(np.eye(3, 4, dtype=np.float64))
    for given in (turned, 2 * turned, turned[:, ::2]):
        assert unit(given).flags.c_contiguous
        assert unit(given).dtype == np.float32


@pytest.mark.parametrize(
    ("sizes", "most", "total", "expected"),
    [
        ([], 3, 10, []),
        ([1] * 7, 3, 10, [3, 3, 1]),
        ([5, 5, 1, 10, 1], 9, 10, [2, 1, 1, 1]),
        ([99, 1, 99], 9, 10, [1, 1, 1]),
        ([0, 0, 0], 2, 10, [2, 1]),
    ],
)
def test_parts_keep_both_limits_and_miss_nothing(
    sizes: list[int], most: int, total: int, expected: list[int]
) -> None:
    found = list(parts(sizes, most, total))
    assert [part.stop - part.start for part in found] == expected
    assert [n for part in found for n in range(part.start, part.stop)] == list(range(len(sizes)))


@pytest.mark.parametrize(
    ("error", "reason", "metadata"),
    [
        (
            embedding_dimension_mismatch(256, 1536, 3),
            Reason.EMBEDDING_DIMENSION_MISMATCH,
            {"expected": "256", "actual": "1536", "index": "3"},
        ),
        (
            embedding_dimension_mismatch(256, 1536),
            Reason.EMBEDDING_DIMENSION_MISMATCH,
            {"expected": "256", "actual": "1536"},
        ),
        (embedding_invalid(0), Reason.EMBEDDING_INVALID, {"index": "0"}),
        (embedding_invalid(), Reason.EMBEDDING_INVALID, {}),
        (
            embedding_model_mismatch("local/wordllama-256"),
            Reason.EMBEDDING_MODEL_MISMATCH,
            {"expected": "local/wordllama-256"},
        ),
        (embedding_unavailable("timeout"), Reason.EMBEDDING_UNAVAILABLE, {"cause": "timeout"}),
    ],
)
def test_refusals_carry_what_the_contract_says(
    error: SageError, reason: Reason, metadata: dict[str, str]
) -> None:
    assert (error.reason, error.metadata) == (reason, metadata)
    assert error.retry_after == (timedelta(seconds=1) if reason is Reason.EMBEDDING_UNAVAILABLE else None)
