from __future__ import annotations

import grpc
import pytest

from sage_client import Repeat, RetryPolicy, SageError
from sage_client.errors import Failure, error_for
from sage_client.retry import Attempts

CODE = grpc.StatusCode


def failed(code: grpc.StatusCode, retry_after: float | None = None, reason: str | None = None) -> SageError:
    return error_for(Failure(code, "no", retry_after=retry_after, reason=reason))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def attempts(
    policy: RetryPolicy, *, timeout: float = 60.0, jitter: float = 1.0, clock: Clock | None = None
) -> Attempts:
    return Attempts(policy, Repeat.SAFE, timeout, clock=clock or Clock(), jitter=lambda: jitter)


@pytest.mark.parametrize(
    ("code", "retry_after", "repeat", "allowed"),
    [
        (CODE.UNAVAILABLE, None, Repeat.SAFE, True),
        (CODE.UNAVAILABLE, 1.0, Repeat.SAFE, True),
        (CODE.UNAVAILABLE, None, Repeat.IF_REFUSED, False),
        (CODE.UNAVAILABLE, 1.0, Repeat.IF_REFUSED, False),
        (CODE.RESOURCE_EXHAUSTED, 1.0, Repeat.SAFE, True),
        (CODE.RESOURCE_EXHAUSTED, 1.0, Repeat.IF_REFUSED, False),
        (CODE.RESOURCE_EXHAUSTED, None, Repeat.SAFE, False),
        (CODE.ABORTED, 1.0, Repeat.SAFE, False),
        (CODE.DEADLINE_EXCEEDED, None, Repeat.SAFE, False),
        (CODE.INVALID_ARGUMENT, None, Repeat.SAFE, False),
        (CODE.INTERNAL, None, Repeat.SAFE, False),
        (CODE.UNKNOWN, None, Repeat.SAFE, False),
        (CODE.UNAVAILABLE, None, Repeat.RESUMED, True),
        (CODE.RESOURCE_EXHAUSTED, 1.0, Repeat.RESUMED, True),
        (CODE.RESOURCE_EXHAUSTED, None, Repeat.RESUMED, False),
        (CODE.DEADLINE_EXCEEDED, None, Repeat.RESUMED, True),
        (CODE.INTERNAL, None, Repeat.RESUMED, True),
        (CODE.UNKNOWN, None, Repeat.RESUMED, True),
        (CODE.CANCELLED, None, Repeat.RESUMED, False),
        (CODE.OUT_OF_RANGE, None, Repeat.RESUMED, False),
        (CODE.NOT_FOUND, None, Repeat.RESUMED, False),
    ],
)
def test_only_what_is_safe_is_tried_again(
    code: grpc.StatusCode, retry_after: float | None, repeat: Repeat, allowed: bool
) -> None:
    assert RetryPolicy().allows(failed(code, retry_after), repeat) is allowed


@pytest.mark.parametrize(
    ("reason", "allowed"), [("RATE_LIMITED", True), ("OVERLOADED", True), ("MODEL_RATE_LIMITED", False)]
)
def test_a_change_is_tried_again_only_if_it_was_turned_away_at_the_door(reason: str, allowed: bool) -> None:
    error = failed(CODE.RESOURCE_EXHAUSTED, 1.0, reason)

    assert RetryPolicy().allows(error, Repeat.IF_REFUSED) is allowed


def test_a_fault_of_the_server_itself_is_not_mended_by_another_stream() -> None:
    assert not RetryPolicy().allows(failed(CODE.INTERNAL, reason="INTERNAL"), Repeat.RESUMED)


def test_waits_grow_up_to_a_limit_and_end_with_the_last_attempt() -> None:
    policy = RetryPolicy(max_attempts=5, initial_backoff=1, multiplier=2, max_backoff=3)
    run = attempts(policy)

    assert [run.wait_after(failed(CODE.UNAVAILABLE)) for _ in range(5)] == [1, 2, 3, 3, None]


def test_jitter_spreads_the_wait_over_its_upper_half() -> None:
    assert attempts(RetryPolicy(initial_backoff=4), jitter=0.0).wait_after(failed(CODE.UNAVAILABLE)) == 2.0
    assert attempts(RetryPolicy(initial_backoff=4), jitter=0.5).wait_after(failed(CODE.UNAVAILABLE)) == 3.0


def test_by_default_a_call_outlasts_a_restart_of_five_seconds_however_the_dice_fall() -> None:
    run = attempts(RetryPolicy(), jitter=0.0)
    waits = iter(lambda: run.wait_after(failed(CODE.UNAVAILABLE)), None)
    assert sum(wait for wait in waits if wait is not None) > 5


@pytest.mark.parametrize(("begun", "outlasts"), [(True, 55), (False, 0)])
def test_a_stream_that_had_begun_is_tried_again_as_long_as_there_is_patience(
    begun: bool, outlasts: float
) -> None:
    clock = Clock()
    policy = RetryPolicy(max_attempts=3, max_backoff=2)
    run = Attempts(policy, Repeat.RESUMED, 600, begun=begun, clock=clock, jitter=lambda: 1.0)
    while (wait := run.wait_after(failed(CODE.UNAVAILABLE))) is not None:
        clock.now += wait
    assert outlasts <= clock.now - 100 <= policy.patience


def test_patience_is_over_at_once_where_nothing_is_to_be_tried_again() -> None:
    run = Attempts(RetryPolicy(max_attempts=1), Repeat.RESUMED, 600, begun=True)
    assert run.wait_after(failed(CODE.UNAVAILABLE)) is None
    run = Attempts(RetryPolicy(), Repeat.RESUMED, 600, begun=True)
    assert run.wait_after(failed(CODE.NOT_FOUND)) is None


def test_the_server_is_given_at_least_the_time_that_it_asks_for() -> None:
    run = attempts(RetryPolicy(initial_backoff=1), jitter=0.0)

    assert run.wait_after(failed(CODE.RESOURCE_EXHAUSTED, retry_after=7.0)) == 7.5


def test_all_attempts_share_one_deadline() -> None:
    clock = Clock()
    run = attempts(RetryPolicy(initial_backoff=1), timeout=10, clock=clock)
    assert run.remaining() == 10

    clock.now += 8
    assert run.remaining() == 2
    assert run.wait_after(failed(CODE.UNAVAILABLE)) == 1

    clock.now += 1
    assert run.wait_after(failed(CODE.UNAVAILABLE)) is None, "the wait would outlast the deadline"

    clock.now += 5
    assert run.remaining() == 0


@pytest.mark.parametrize(
    "wrong", [{"max_attempts": 0}, {"multiplier": 0.5}, {"initial_backoff": -1}, {"patience": -1}]
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
