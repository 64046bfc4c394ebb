"""Which failures are tried again, after how long, and until when. No I/O here: both clients share it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from sage_client.errors import (
    DeadlineExceeded,
    Internal,
    ResourceExhausted,
    SageError,
    Unavailable,
    Unknown,
)

# The server's own limits, which turn a call away before it begins. A model's limit may come in its middle.
_REFUSED = frozenset({"RATE_LIMITED", "OVERLOADED", "SHUTTING_DOWN"})


class Repeat(Enum):
    """What happens if a call is carried out twice: it decides which failures may be tried again."""

    SAFE = auto()
    """The second time changes nothing: reads, creations with a request id, writes of a given state."""

    IF_REFUSED = auto()
    """The second time fails or does something more, so try again only if the first surely did nothing."""

    RESUMED = auto()
    """A stream that the second time goes on where the first broke off, so that it may break off anyhow."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently. The waits grow by `multiplier`, and are spread over their upper half.

    As it is by default, a call that may be repeated outlasts a server that restarts in five seconds. A stream
    that had begun and broke off is worth more: it is tried again for `patience` seconds, however often.

    ABORTED is never tried again: somebody else changed the resource, and only the caller can say what that
    means. `max_attempts=1` turns retries off.
    """

    max_attempts: int = 7
    initial_backoff: float = 0.2
    max_backoff: float = 5.0
    multiplier: float = 2.0
    patience: float = 60.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.multiplier < 1 or min(self.initial_backoff, self.patience) < 0:
            raise ValueError(
                "max_attempts and multiplier are at least 1; initial_backoff and patience are not negative"
            )

    def backoff(self, attempt: int) -> float:
        """The longest wait after this attempt, counted from 1, unless the server asks for more."""
        return min(self.max_backoff, self.initial_backoff * self.multiplier ** (attempt - 1))

    def allows(self, error: SageError, repeat: Repeat) -> bool:
        """True if a call that failed so may be sent again."""
        match error:
            case ResourceExhausted():
                # Without RetryInfo the request is too large, and will be next time.
                return error.retry_after is not None and (
                    repeat is not Repeat.IF_REFUSED or error.reason in _REFUSED
                )
            case Unavailable():
                # The connection or the database went away, perhaps after the work was done. Only a server
                # that is stopping says that nothing was.
                return repeat is not Repeat.IF_REFUSED or error.reason in _REFUSED
            case DeadlineExceeded():
                return repeat is Repeat.RESUMED
            case Internal() | Unknown():
                # A fault of Sage has a reason. Without one the stream was cut on its way.
                return repeat is Repeat.RESUMED and error.reason is None
            case _:
                return False


DEFAULT_RETRY = RetryPolicy()


class Attempts:
    """The attempts of one logical call. They share one deadline, which starts now."""

    def __init__(
        self,
        policy: RetryPolicy,
        repeat: Repeat,
        timeout: float,
        *,
        begun: bool = False,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._repeat = repeat
        self._clock = clock
        self._jitter = jitter
        self._deadline = clock() + timeout
        self._begun = begun
        self._failed = 0
        self._patient_until = 0.0

    def remaining(self) -> float:
        """Seconds that the next attempt may take. Not negative."""
        return max(0.0, self._deadline - self._clock())

    def wait_after(self, error: SageError) -> float | None:
        """Seconds to wait before the next attempt, or None if this failure is final.

        A wait that the deadline does not allow for is final at once: the caller learns what went wrong
        and not only that time was up.
        """
        self._failed += 1
        if self._failed == 1:
            self._patient_until = self._clock() + self._policy.patience
        if not self._policy.allows(error, self._repeat):
            return None
        backoff = self._policy.backoff(self._failed) * (0.5 + 0.5 * self._jitter())
        wait = (error.retry_after or 0.0) + backoff
        return wait if self._may_wait(wait) and wait < self.remaining() else None

    def _may_wait(self, wait: float) -> bool:
        policy = self._policy
        if self._begun and policy.max_attempts > 1:
            return self._clock() + wait <= self._patient_until
        return self._failed < policy.max_attempts
