"""Keys that an issuer of tokens publishes at a URL."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import jwt

from sage_server.domain.errors import Reason, SageError


@dataclass(frozen=True)
class Patience:
    """Seconds."""

    fetch: float = 5
    """How long a fetch may take, and so how long a token waits for its key."""
    fresh: float = 300
    """How long keys are used without asking whether they still hold."""
    after_success: float = 10
    """How long nobody fetches again, whatever keys tokens name."""
    after_failure: float = 5


class PublishedKeys:
    """Implements KeySource. One fetch runs at a time, whoever waits for it, and the next one not at once.

    So what callers write into their tokens decides neither how often the issuer is asked nor how long others
    wait. While the issuer cannot be reached, the keys that it published last hold.
    """

    def __init__(
        self,
        url: str,
        algorithm: str,
        patience: Patience | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._algorithm = algorithm
        self._patience = patience or Patience()
        self._monotonic = monotonic
        # The machine's authorities, as everywhere: the client would bring its own.
        self._ssl = ssl.create_default_context()
        self._keys: dict[str, Any] = {}
        self._fresh_until = self._next_fetch = monotonic()
        self._failed = False
        self._fetch: asyncio.Task[None] | None = None

    async def key(self, key_id: str) -> Any:
        """The key; None if the issuer has none of this id. Raises UNAVAILABLE while that cannot be known."""
        if key_id in self._keys:
            await self._refresh()
        else:
            await self._look()
        found = self._keys.get(key_id)
        if found is None and self._failed:
            raise self._unavailable()
        return found

    async def _refresh(self) -> None:
        """An issuer that has failed is asked again, but nobody waits who has a key."""
        if self._monotonic() >= self._fresh_until:
            fetch = self._due()
            if fetch is not None and not self._failed:
                await asyncio.shield(fetch)

    async def _look(self) -> None:
        fetch = self._due()
        if fetch is not None:
            await asyncio.shield(fetch)

    def _due(self) -> asyncio.Task[None] | None:
        """The fetch that runs, or begins now; None if it is too early for one."""
        if self._fetch is None and self._monotonic() >= self._next_fetch:
            self._fetch = asyncio.create_task(self._run())
        return self._fetch

    async def _run(self) -> None:
        succeeded = False
        try:
            self._keys = await self._ask()
            succeeded = True
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RecursionError):
            # Not reached, too late, or no set of keys: what is known stays.
            pass
        finally:
            self._ended(failed=not succeeded)

    def _ended(self, *, failed: bool) -> None:
        now, patience = self._monotonic(), self._patience
        self._fetch, self._failed = None, failed
        self._next_fetch = now + (patience.after_failure if failed else patience.after_success)
        if not failed:
            self._fresh_until = now + patience.fresh

    async def _ask(self) -> dict[str, Any]:
        async with asyncio.timeout(self._patience.fetch), httpx2.AsyncClient(verify=self._ssl) as client:
            answer = await client.get(self._url)
            answer.raise_for_status()
        return _parsed(answer.json(), self._algorithm)

    def _unavailable(self) -> SageError:
        wait = max(1.0, self._next_fetch - self._monotonic())
        return SageError(
            Reason.TOKEN_KEYS_UNAVAILABLE,
            "The keys that verify tokens cannot be fetched now.",
            retry_after=timedelta(seconds=wait),
        )


def _parsed(document: Any, algorithm: str) -> dict[str, Any]:
    """The keys that can verify with the algorithm. Raises ValueError if it is no set of keys."""
    published = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(published, list):
        raise ValueError("no set of keys")
    found = {}
    for described in published:
        if not isinstance(described, dict) or described.get("use") not in (None, "sig"):
            continue
        try:
            key = jwt.PyJWK(described, algorithm)
        except (jwt.PyJWTError, KeyError, TypeError, ValueError):
            # For something else than our tokens, such as another algorithm.
            continue
        if isinstance(key.key_id, str):
            found[key.key_id] = key.key
    return found
