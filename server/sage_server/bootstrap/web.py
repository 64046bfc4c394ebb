"""The web that the settings switch on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sage_server.domain.web_addresses import AddressRules, AllowedHosts
from sage_server.ports.web import WebAccess
from sage_server.settings import Settings


@asynccontextmanager
async def open_web(settings: Settings) -> AsyncIterator[WebAccess | None]:
    """Access to the web until the block ends, if any of it is switched on. Connects to nothing by itself."""
    if settings.web_search_url is None and not settings.web_fetch:
        yield None
        return
    from sage_server.adapters.web import SearxWeb, WebOptions  # noqa: PLC0415 (an HTTP client, rarely needed)

    allowed = AllowedHosts.parsed(settings.web_allowed_hosts)
    web = SearxWeb(
        WebOptions(
            search_url=settings.web_search_url,
            fetch=settings.web_fetch,
            rules=AddressRules(settings.web_allow_private, allowed),
            seconds=settings.web_timeout,
            max_bytes=settings.web_max_bytes,
        )
    )
    try:
        yield WebAccess(web, can_search=settings.web_search_url is not None, can_fetch=settings.web_fetch)
    finally:
        await web.close()
