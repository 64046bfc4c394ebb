"""Pure rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sage_server.adapters.tokenizer import O200kCounter
from sage_server.domain.ids import new_id
from sage_server.domain.paging import page_size
from sage_server.engine.lru import Lru

TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2500, 1, 1), timezones=st.just(UTC))


@given(TIMES)
def test_an_id_is_a_uuid_of_version_7_that_holds_its_time(now: datetime) -> None:
    made = new_id(now)
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert (
        made.int >> 80 == int(now.timestamp() * 1000 + 1e-6)
        or abs((made.int >> 80) - now.timestamp() * 1000) < 1
    )


@given(TIMES, st.integers(1, 10_000_000))
def test_ids_sort_by_their_time_to_the_microsecond(now: datetime, micros: int) -> None:
    assert new_id(now) < new_id(now + timedelta(microseconds=micros))


def test_ids_of_one_moment_differ() -> None:
    now = datetime.now(UTC)
    made: set[UUID] = {new_id(now) for _ in range(1000)}
    assert len(made) == 1000


def test_page_sizes_have_a_default_and_a_maximum() -> None:
    assert [page_size(size) for size in (0, 1, 200, 201, 2**31 - 1)] == [50, 1, 200, 200, 200]


@given(st.lists(st.integers(0, 20)))
def test_a_bounded_map_holds_the_entries_used_last(keys: list[int]) -> None:
    lru: Lru[int, int] = Lru(5)
    for key in keys:
        if lru.get(key) is None:
            lru.put(key, key + 1)
    used_last = list(dict.fromkeys(reversed(keys)))[:5]
    assert all(lru.get(key) == key + 1 for key in used_last)
    assert len(lru) == len(used_last)


def test_tokens_are_those_of_a_real_tokenizer() -> None:
    counter = O200kCounter()
    texts = ("", "hello world", "Grüße", "a" * 1_000_001)
    assert [counter.count(text) for text in texts] == [0, 2, 3, 125_001]
