"""The web as its port promises it."""

from __future__ import annotations

import logging
import ssl
from asyncio import timeout
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpcore2

from sage_server.adapters.documents import FileDocumentReader
from sage_server.adapters.web.connections import CheckedBackend, Resolver, system_addresses
from sage_server.adapters.web.http import HttpClient
from sage_server.adapters.web.pages import Pages
from sage_server.adapters.web.searx import SearxSearch
from sage_server.domain.web_addresses import AddressRules
from sage_server.ports.web import WebError, WebPage, WebResult

_MOST_PDF_PAGES = 500


@dataclass(frozen=True)
class WebOptions:
    """What is switched on, and how much of it."""

    search_url: str | None = None
    """Of a SearXNG server. None: there is no search."""
    fetch: bool = False
    rules: AddressRules = field(default_factory=AddressRules)
    """Where pages may be. Search is the operator's own server, so they do not hold for it."""
    seconds: float = 20.0
    """For one search, or one page with all its redirects and the reading of it."""
    max_bytes: int = 5_000_000
    max_chars: int = 40_000
    """Of a page's text; the rest is cut off."""


class SearxWeb:
    """Implements Web. Writes nothing of queries, addresses or pages to a log."""

    def __init__(
        self,
        options: WebOptions,
        *,
        resolve: Resolver = system_addresses,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        # The library logs hosts and headers for whoever debugs it.
        logging.getLogger("httpcore2").setLevel(logging.WARNING)
        context = ssl_context or httpcore2.default_ssl_context()
        self._seconds = options.seconds
        self._clients = (
            HttpClient(options.max_bytes, context),
            HttpClient(options.max_bytes, context, CheckedBackend(options.rules, resolve)),
        )
        self._search = (
            None if options.search_url is None else SearxSearch(self._clients[0], options.search_url)
        )
        reader = FileDocumentReader(max_pages=_MOST_PDF_PAGES, timeout=options.seconds)
        self._pages = Pages(self._clients[1], reader, options.max_chars) if options.fetch else None

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.close()

    async def search(self, query: str, count: int) -> Sequence[WebResult]:
        """The best pages, at most 20. Raises WebError."""
        if self._search is None:
            raise WebError("Web search is not switched on.")
        async with self._limited("The search took too long."):
            return await self._search.search(query, count)

    async def fetch(self, url: str) -> WebPage:
        """The text of one page. Raises WebError."""
        if self._pages is None:
            raise WebError("Fetching pages is not switched on.")
        async with self._limited("The page took too long."):
            return await self._pages.fetch(url)

    @asynccontextmanager
    async def _limited(self, message: str) -> AsyncIterator[None]:
        try:
            async with timeout(self._seconds):
                yield
        except TimeoutError:
            raise WebError(message) from None
