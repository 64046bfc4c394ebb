"""Search with a SearXNG server, or one that answers like it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence

import httpx2

from sage_server.adapters.web.http import HttpClient
from sage_server.domain.chunks import normalised
from sage_server.ports.web import WebError, WebResult

_log = logging.getLogger("sage.web")

_LONGEST_QUERY = 1000
_MOST_RESULTS = 20
_LONGEST_URL = 2048
_TITLE_CHARS = 200
_SNIPPET_CHARS = 600


class SearxSearch:
    """Asks `<base>/search` for JSON. The base is the operator's own word and may be anywhere."""

    def __init__(self, client: HttpClient, base_url: str) -> None:
        self._client = client
        self._url = httpx2.URL(f"{base_url.rstrip('/')}/search")

    async def search(self, query: str, count: int) -> Sequence[WebResult]:
        """The best pages, at most 20 of them. Raises WebError."""
        query = normalised(query)
        if not 0 < len(query) <= _LONGEST_QUERY:
            raise WebError(f"A query has 1 to {_LONGEST_QUERY} characters.")
        url = self._url.copy_with(params={"q": query, "format": "json"})
        async with self._client.get(url, "application/json") as answer:
            if answer.status != 200:
                # A server that has not switched its JSON on says 403.
                _log.warning("the search engine failed", extra={"status": answer.status})
                raise WebError(f"The search engine answered with the status {answer.status}.")
            body = await answer.body()
        found = _parsed(body)
        if found is None:
            _log.warning("the search engine's answer is malformed")
            raise WebError("The search engine gave an answer that cannot be read.")
        return found[: max(1, min(count, _MOST_RESULTS))]


def _parsed(body: bytes) -> Sequence[WebResult] | None:
    """The results that can be shown; None if the answer is none."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    results = answer.get("results") if isinstance(answer, dict) else None
    return list(_shown(results)) if isinstance(results, list) else None


def _shown(results: list[object]) -> Iterator[WebResult]:
    for result in results:
        if not isinstance(result, dict):
            continue
        url = result.get("url")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            continue
        if len(url) <= _LONGEST_URL and url.isprintable():
            title = _line(result.get("title"), _TITLE_CHARS)
            yield WebResult(url, title, _line(result.get("content"), _SNIPPET_CHARS))


def _line(text: object, chars: int) -> str:
    """The text on one line, cut. Empty for what is no text."""
    if not isinstance(text, str):
        return ""
    return " ".join(normalised(text[: 8 * chars]).split())[:chars].rstrip()
