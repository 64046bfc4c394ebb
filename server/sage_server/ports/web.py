"""The web, as agents see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class WebResult:
    """A page that a search found."""

    url: str
    title: str
    snippet: str


@dataclass(frozen=True)
class WebPage:
    """The text of a page."""

    url: str
    """Where it was found in the end, after redirects."""
    title: str
    text: str
    truncated: bool


class WebError(Exception):
    """Why the web gave nothing, in words that a model may read. Holds nothing of a page or a query."""


class Web(Protocol):
    """Searches and fetches. Must hold limits of time and size, and must refuse addresses that the operator
    does not allow: private and loopback ones, also behind a redirect or a name."""

    async def search(self, query: str, count: int) -> Sequence[WebResult]:
        """The best pages. Must raise WebError."""
        ...

    async def fetch(self, url: str) -> WebPage:
        """The text of one page. Must raise WebError."""
        ...


@dataclass(frozen=True)
class WebAccess:
    """The web, and what of it the operator has switched on. What is off raises WebError."""

    web: Web
    can_search: bool
    can_fetch: bool
