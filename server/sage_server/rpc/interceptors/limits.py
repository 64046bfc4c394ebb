"""Refusing early what would be too much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sage_server.domain.errors import Reason, SageError
from sage_server.engine.lru import Lru
from sage_server.rpc.call import Call, Interceptor

_USERS_REMEMBERED = 100_000
_DRAIN_POLL = 0.02


@dataclass(frozen=True)
class LimitOptions:
    """How much is too much. 0 switches a limit off."""

    concurrent: int
    concurrent_per_user: int
    per_second_per_user: float


class Limits(Interceptor):
    """Calls at once, in all and of one user; calls per second of one user.

    They hold for one process: behind a proxy that keeps a user on one replica that is the user's limit.
    """

    name = "limits"

    def __init__(self, options: LimitOptions, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._monotonic = monotonic
        self._running = 0
        self._closing = False
        self._running_by_user: dict[object, int] = {}
        self._buckets: Lru[object, _Bucket] = Lru(_USERS_REMEMBERED)

    async def enter(self, call: Call) -> None:
        """RESOURCE_EXHAUSTED, or the call counts from here on."""
        if self._closing:
            raise SageError(
                Reason.SHUTTING_DOWN,
                "The server is stopping. Try again: another one takes over.",
                retry_after=timedelta(seconds=1),
            )
        options = self._options
        if options.concurrent and self._running >= options.concurrent:
            raise _busy("server")
        key = _key(call)
        mine = self._running_by_user.get(key, 0)
        if options.concurrent_per_user and mine >= options.concurrent_per_user:
            raise _busy("user")
        if options.per_second_per_user:
            self._take(key)
        self._running += 1
        self._running_by_user[key] = mine + 1

    def leave(self, call: Call) -> None:
        """The call no longer counts."""
        key = _key(call)
        self._running -= 1
        left = self._running_by_user[key] - 1
        if left:
            self._running_by_user[key] = left
        else:
            del self._running_by_user[key]

    async def drain(self, grace: float) -> None:
        """Let nobody in any more, and wait until everybody is out, but not longer than the grace."""
        self._closing = True
        give_up = self._monotonic() + grace
        while self._running and self._monotonic() < give_up:  # noqa: ASYNC110 (once a process)
            await asyncio.sleep(_DRAIN_POLL)

    def _take(self, key: object) -> None:
        rate = self._options.per_second_per_user
        now = self._monotonic()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = _Bucket(2 * rate, now)
            self._buckets.put(key, bucket)
        wait = bucket.take(rate, now)
        if wait > 0:
            raise SageError(
                Reason.RATE_LIMITED,
                "Too many requests.",
                metadata={"limit_per_second": f"{rate:g}"},
                retry_after=timedelta(seconds=wait),
            )


class _Bucket:
    """Holds up to two seconds' worth of calls."""

    __slots__ = ("_at", "_left")

    def __init__(self, left: float, at: float) -> None:
        self._left = left
        self._at = at

    def take(self, rate: float, now: float) -> float:
        """0 if there was one to take, else the seconds until there is."""
        self._left = min(2 * rate, self._left + (now - self._at) * rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0
        return (1 - self._left) / rate


def _key(call: Call) -> object:
    assert call.caller is not None
    return call.caller.user or call.caller.tenant


def _busy(scope: str) -> SageError:
    return SageError(
        Reason.OVERLOADED,
        f"The {scope} has too many calls running.",
        metadata={"scope": scope},
        retry_after=timedelta(seconds=1),
    )
