"""Lists, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, TypeVar

from sage_client.models.page import Page

T = TypeVar("T")


class FetchPage(Protocol[T]):
    """A list call with everything but the page token given."""

    async def __call__(self, *, page_token: str) -> Page[T]:
        """The page that begins at the token, or the first."""


async def every(fetch: FetchPage[T]) -> AsyncIterator[T]:
    """Everything on all pages. A page is fetched when its first element is asked for."""
    page_token = ""
    while True:
        page = await fetch(page_token=page_token)
        for item in page.items:
            yield item
        page_token = page.next_page_token
        if not page_token:
            return
