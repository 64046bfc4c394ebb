"""Search and pages against real servers on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sage_server.adapters.web import Resolver, SearxWeb, WebOptions
from sage_server.bootstrap.web import open_web
from sage_server.domain.web_addresses import Address, AddressRules, AllowedHosts
from sage_server.ports.web import WebError, WebResult
from sage_server.settings import Settings
from support import documents
from support.certificates import certificate
from support.site import Site, flood, hang, moved, page, trickle

CANARY = "canary-7f3a"
HTML = f"""<!doctype html><html><head><title>Tea &amp; {CANARY}</title><style>p {{}}</style></head>
<body><h1>Green tea</h1><p>Grown in <b>Uji</b>.</p><script>alert(1)</script></body></html>"""


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site.running() as running:
        yield running


class Names:
    """A resolver that answers as it is told, in order, the last for ever. `asked` is what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [ip_address(text) for text in answer.split()]


@asynccontextmanager
async def web(
    allowed: str = "127.0.0.1",
    *,
    allow_private: bool = False,
    resolve: Resolver | None = None,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[SearxWeb]:
    rules = AddressRules(allow_private, AllowedHosts.parsed(allowed))
    wanted = WebOptions(**{"fetch": True, "rules": rules, **options})
    given: dict[str, Any] = {} if resolve is None else {"resolve": resolve}
    opened = SearxWeb(wanted, ssl_context=tls, **given)
    try:
        yield opened
    finally:
        await opened.close()


async def refused(opened: SearxWeb, url: str) -> str:
    """What the model is told instead of the page, which is nothing of the page or its address."""
    with pytest.raises(WebError) as told:
        await opened.fetch(url)
    assert CANARY not in str(told.value)
    return str(told.value)


# Pages


async def test_a_page_is_its_title_and_what_a_reader_sees(site: Site) -> None:
    site.pages["/tea"] = page(HTML)
    async with web() as opened:
        found = await opened.fetch(f" {site.url}/tea?kind=green#top ")
    assert found.title == f"Tea & {CANARY}"
    assert found.text == "Green tea\n\nGrown in Uji."
    assert not found.truncated
    assert found.url == f"{site.url}/tea?kind=green"
    assert site.requests[0].target == "/tea?kind=green"
    assert site.requests[0].headers["host"] == f"127.0.0.1:{site.port}"


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain", "a < b", "a < b"),
        ("TEXT/Plain; charset=UTF-8", "a < b", "a < b"),
        ("text/markdown", "# Tea", "# Tea"),
        ("application/json", '{"tea": 1}', '{"tea": 1}'),
        ("application/problem+json", '{"tea": 1}', '{"tea": 1}'),
        ("application/xml", "<tea/>", "<tea/>"),
        ("application/rss+xml", "<rss>tea</rss>", "<rss>tea</rss>"),
        ("application/xhtml+xml", "<html><body><p>tea</p></body></html>", "tea"),
        ("application/pdf", documents.pdf("Green tea"), "Green tea"),
        (None, "<html><body><p>tea</p></body></html>", "tea"),
        (None, "just tea", "just tea"),
    ],
)
async def test_text_in_its_usual_forms_is_read(
    site: Site, content_type: str | None, body: str | bytes, text: str
) -> None:
    site.pages["/"] = page(body, content_type)
    async with web() as opened:
        assert (await opened.fetch(site.url)).text == text


@pytest.mark.parametrize(
    "content_type", ["image/png", "application/octet-stream", "video/mp4", "text/css", "x"]
)
async def test_what_is_no_text_is_refused_before_it_is_fetched(site: Site, content_type: str) -> None:
    async def head_only(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 x\r\nContent-Type: {content_type}\r\n\r\n".encode())
        await hang(writer)

    site.pages["/"] = head_only
    async with web() as opened:
        assert await refused(opened, site.url) == "The page is neither text nor PDF."


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", b"\x89PNG\r\n\x1a\n" + b"\0" * 50),
        ("text/plain", b"\0\1\2\3" * 50),
        ("text/plain", b"\xff\xd8\xff\xe1Exif " + CANARY.encode()),
        ("text/plain", documents.pdf(CANARY)),
        ("application/pdf", documents.pdf(CANARY)[:400]),
        ("text/html", b"<html><body></body></html>"),
        ("text/plain", b""),
    ],
)
async def test_content_that_is_not_what_it_should_be_is_refused(
    site: Site, content_type: str, body: bytes
) -> None:
    site.pages["/"] = page(body, content_type)
    async with web() as opened:
        assert (await refused(opened, site.url)).startswith("The ")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html; charset=ISO-8859-1", '<meta charset="utf-8"><p>5 € für Tee</p>'.encode("cp1252")),
        ('text/html; charset="windows-1252"', "<p>5 € für Tee</p>".encode("cp1252")),
        ("text/html", '<html><meta charset="iso-8859-1"><p>5 € für Tee</p>'.encode("cp1252")),
        ("text/html; charset=utf-8", '<meta charset="iso-8859-1"><p>5 € für Tee</p>'.encode()),
        ("text/html; charset=nonsense", "<p>5 € für Tee</p>".encode()),
        ("text/html; charset=idna", "<p>5 € für Tee</p>".encode()),
        ("text/plain; charset=utf-8", "5 € für Tee".encode("utf-16")),
        ("text/plain; charset=latin1", "\ufeff5 € für Tee".encode()),
        ("text/plain; charset=big5", b"\xef\xbb\xbf" + "5 € für Tee".encode()),
    ],
)
async def test_a_page_is_read_in_its_encoding(site: Site, content_type: str, body: bytes) -> None:
    site.pages["/"] = page(body, content_type)
    async with web() as opened:
        assert (await opened.fetch(site.url)).text == "5 € für Tee"


async def test_a_bad_byte_does_not_cost_the_page(site: Site) -> None:
    site.pages["/"] = page(b"<p>green \xff tea</p>")
    async with web() as opened:
        assert (await opened.fetch(site.url)).text == "green \ufffd tea"


async def test_a_long_text_is_cut_and_says_so(site: Site) -> None:
    site.pages["/"] = page("word " * 100, "text/plain")
    async with web(max_chars=24) as opened:
        found = await opened.fetch(site.url)
    assert (found.text, found.truncated) == ("word word word word word", True)
    async with web(max_chars=499) as opened:
        assert not (await opened.fetch(site.url)).truncated


@pytest.mark.parametrize("status", [201, 204, 304, 403, 404, 500])
async def test_an_answer_without_a_page_is_told_by_its_status(site: Site, status: int) -> None:
    site.pages["/"] = page("", status=status)
    async with web() as opened:
        assert await refused(opened, site.url) == f"The server answered with the status {status}."


# Addresses


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "data:text/plain,tea"),
        *("javascript:alert(1)", "ws://127.0.0.1/", "127.0.0.1/tea", "//127.0.0.1/", "", "http:", "http://"),
        *("http:///tea", "http://127.0.0.1:0/", "http://127.0.0.1:99999/", "http://127.0.0.1:-1/"),
        *("http://127.0.0.1:x/", "http://[::1/", "http://[zz]/", "http://300.1.1.1/", "http://a\nb/"),
        *("http://\ud800/", "http://127.0.0.1/\ud800", "http://" + "a" * 70 + ".test/", "http://a..b/"),
        *("http://xn--/", "http://%00/", "http://\u2024/", "http://127.0.0.1/" + "a" * 5000),
    ],
)
async def test_an_odd_address_is_refused_in_words(url: str) -> None:
    async with web() as opened:
        assert await refused(opened, url)


@pytest.mark.parametrize("credentials", [f"me:{CANARY}@", f"{CANARY}@", f":{CANARY}@", f"a@{CANARY}@"])
async def test_a_password_in_an_address_is_refused(site: Site, credentials: str) -> None:
    site.pages["/to"] = moved(f"http://{credentials}127.0.0.1:{site.port}/")
    async with web() as opened:
        for url in (f"http://{credentials}127.0.0.1:{site.port}/", f"{site.url}/to"):
            assert "password" in await refused(opened, url)
    assert [request.target for request in site.requests] == ["/to"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0177.1", "[::ffff:127.0.0.1]"]
)
async def test_loopback_is_refused_however_it_is_written(site: Site, host: str) -> None:
    async with web("") as opened:
        told = await refused(opened, f"http://{host}:{site.port}/{CANARY}")
    assert told == "The host has a loopback address, which may not be reached."
    assert site.requests == []


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "169.254.169.254", "fd00::1", "::ffff:10.0.0.1", "100.64.0.1"]
)
async def test_a_name_with_an_address_that_is_not_public_is_refused(address: str) -> None:
    async with web(resolve=Names(address)) as opened:
        assert "may not be reached" in await refused(opened, "http://pages.test/")


async def test_allowing_private_addresses_allows_the_ports_of_the_web_only(site: Site) -> None:
    async with web("", allow_private=True) as opened:
        assert await refused(opened, site.url) == "Only the ports 80 and 443 may be used."
    assert site.requests == []


async def test_an_allowed_name_may_be_anywhere(site: Site) -> None:
    site.pages["/"] = page(HTML)
    names = Names("127.0.0.1")
    async with web("pages.test", resolve=names) as opened:
        await opened.fetch(f"http://pages.test:{site.port}/")
        assert "loopback" in await refused(opened, f"http://other.test:{site.port}/")
        assert "loopback" in await refused(opened, f"http://127.0.0.1:{site.port}/")
    assert [request.headers["host"] for request in site.requests] == [f"pages.test:{site.port}"]


async def test_a_name_without_addresses_is_not_found() -> None:
    async def nothing(host: str, port: int) -> Sequence[Address]:
        return []

    async with web(resolve=nothing) as opened:
        assert await refused(opened, f"http://{CANARY}.test/") == "The host was not found."
    async with web() as opened:
        assert await refused(opened, f"http://{CANARY}.invalid/") == "The host was not found."


async def test_a_connection_goes_to_the_address_that_was_checked(site: Site) -> None:
    site.pages["/"] = page("the checked one", "text/plain")
    names = Names("127.0.0.1", "127.0.0.2")
    async with Site.running("127.0.0.2", site.port) as other, web(resolve=names) as opened:
        found = await opened.fetch(f"http://pages.test:{site.port}/")
        assert found.text == "the checked one"
        assert names.asked == ["pages.test"]
        assert "loopback" in await refused(opened, f"http://pages.test:{site.port}/")
        assert other.requests == []
    assert [request.headers["host"] for request in site.requests] == [f"pages.test:{site.port}"]


async def test_only_those_addresses_of_a_name_are_tried_that_are_allowed(site: Site) -> None:
    site.pages["/"] = page("allowed", "text/plain")
    async with Site.running("127.0.0.2", site.port) as other:
        async with web(resolve=Names("127.0.0.2 127.0.0.1")) as opened:
            assert (await opened.fetch(f"http://pages.test:{site.port}/")).text == "allowed"
        assert other.requests == []


async def test_the_next_address_is_tried_when_one_takes_no_connection(site: Site) -> None:
    site.pages["/"] = page("second", "text/plain")
    async with web("127.0.0.0/8", resolve=Names("127.0.0.3 127.0.0.1")) as opened:
        assert (await opened.fetch(f"http://pages.test:{site.port}/")).text == "second"


async def test_tls_speaks_to_the_name_and_not_to_the_address(tmp_path: Path) -> None:
    authority = certificate(tmp_path, "authority", None)
    files = certificate(tmp_path, "server", authority)
    heard: list[str | None] = []
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(*files)
    serving.sni_callback = lambda _socket, name, _context: heard.append(name)
    trusting = ssl.create_default_context(cafile=authority[0])
    names = Names("127.0.0.1")
    async with Site.running(tls=serving) as site, web(resolve=names, tls=trusting) as opened:
        site.pages["/"] = page("sealed", "text/plain")
        assert (await opened.fetch(f"https://localhost:{site.port}/")).text == "sealed"
        assert await refused(opened, f"https://other.test:{site.port}/")
    assert heard == ["localhost", "other.test"]
    assert len(site.requests) == 1


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_without_cookies(site: Site, status: int) -> None:
    site.pages["/a/old"] = page("", status=status, Location="../new?x=1#part", Set_Cookie=f"id={CANARY}")
    site.pages["/new"] = page(HTML)
    async with web() as opened:
        assert (await opened.fetch(f"{site.url}/a/old")).url == f"{site.url}/new?x=1"
    assert "cookie" not in site.requests[1].headers
    assert "referer" not in site.requests[1].headers


async def test_a_redirect_is_checked_anew(site: Site) -> None:
    async with Site.running("127.0.0.2") as other, web() as opened:
        site.pages["/"] = moved(f"{other.url}/{CANARY}")
        assert await refused(opened, site.url) == "The host has a loopback address, which may not be reached."
        assert other.requests == []
    assert len(site.requests) == 1


async def test_a_name_that_changes_between_redirects_is_refused(site: Site) -> None:
    site.pages["/"] = moved("/again")
    site.pages["/again"] = page(HTML)
    async with Site.running("127.0.0.2", site.port) as other:
        async with web(resolve=Names("127.0.0.1", "127.0.0.2")) as opened:
            assert "loopback" in await refused(opened, f"http://pages.test:{site.port}/")
        assert other.requests == []


@pytest.mark.parametrize("location", ["", "file:///etc/passwd", "http://[", "javascript:1", "x" * 5000])
async def test_a_redirect_to_no_page_is_refused(site: Site, location: str) -> None:
    site.pages["/"] = moved(location)
    async with web() as opened:
        assert await refused(opened, site.url)
    assert len(site.requests) == 1


async def test_redirects_end_after_five(site: Site) -> None:
    site.pages |= {f"/{step}": moved(f"/{step + 1}") for step in range(1, 7)} | {"/7": page(HTML)}
    site.pages["/circle"] = moved("/circle")
    async with web() as opened:
        assert (await opened.fetch(f"{site.url}/2")).url == f"{site.url}/7"
        for path in ("/1", "/circle"):
            assert await refused(opened, f"{site.url}{path}") == "The page redirects more than 5 times."
    assert len(site.requests) == 18


# Limits


async def test_a_page_ends_where_the_limit_is(site: Site) -> None:
    site.pages |= {"/full": page("x" * 5000, "text/plain"), "/over": page("x" * 5001, "text/plain")}
    site.pages["/endless"] = flood
    async with web(max_bytes=5000) as opened:
        assert len((await opened.fetch(f"{site.url}/full")).text) == 5000
        for path in ("/over", "/endless"):
            assert await refused(opened, f"{site.url}{path}") == "The answer is larger than 5000 bytes."


async def test_a_packed_page_is_unpacked_up_to_the_limit_and_no_further(site: Site) -> None:
    small = gzip.compress(b"tea " * 1000)
    bomb = gzip.compress(bytes(100_000_000))
    site.pages["/small"] = page(small, "text/plain", Content_Encoding="gzip")
    site.pages["/bomb"] = page(bomb, "text/plain", Content_Encoding="gzip")
    async with web(max_bytes=1_000_000) as opened:
        assert (await opened.fetch(f"{site.url}/small")).text.startswith("tea tea")
        tracemalloc.start()
        try:
            told = await refused(opened, f"{site.url}/bomb")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert told == "The answer is larger than 1000000 bytes."
    assert peak < 10_000_000
    assert site.requests[0].headers["accept-encoding"] == "gzip"


async def test_what_comes_after_a_packed_page_counts_too(site: Site) -> None:
    async def padded(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 x\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n")
        writer.write(gzip.compress(b"tea"))
        await flood(writer)

    site.pages["/"] = padded
    async with web(max_bytes=5000, seconds=5) as opened:
        assert await refused(opened, site.url) == "The answer is larger than 5000 bytes."


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "nonsense"])
async def test_what_was_not_asked_for_is_not_unpacked(site: Site, encoding: str) -> None:
    site.pages["/"] = page(gzip.compress(b"tea"), "text/plain", Content_Encoding=encoding)
    async with web() as opened:
        assert await refused(opened, site.url) == "The answer is compressed in an unknown way."


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(CANARY.encode() * 99)[:-9]], ids=["none", "cut"])
async def test_a_damaged_packed_page_is_refused(site: Site, body: bytes) -> None:
    site.pages["/"] = page(body, "text/plain", Content_Encoding="gzip")
    async with web() as opened:
        assert await refused(opened, site.url) == "The answer is damaged."


async def test_a_body_without_a_length_ends_with_its_connection(site: Site) -> None:
    site.pages["/"] = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\ngreen tea"
    async with web() as opened:
        assert (await opened.fetch(site.url)).text == "green tea"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        f"{CANARY}\r\n\r\n".encode(),
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 999\r\n\r\n{CANARY}".encode(),
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n{CANARY}".encode(),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 500_000 + b"\r\n\r\n",
    ],
)
async def test_a_broken_answer_is_told_as_such(site: Site, answer: bytes) -> None:
    site.pages["/"] = answer
    async with web() as opened:
        assert await refused(opened, site.url) == "The server could not be reached, or broke off."


async def test_a_server_that_is_not_there_is_told_as_such(site: Site) -> None:
    async with web("127.0.0.0/8") as opened:
        told = await refused(opened, f"http://127.0.0.9:{site.port}/")
    assert told == "The server could not be reached, or broke off."


@pytest.mark.parametrize("sending", [hang, trickle])
async def test_a_slow_page_is_given_up(site: Site, sending: Any) -> None:
    site.pages["/"] = sending
    async with web(seconds=0.3) as opened:
        assert await refused(opened, site.url) == "The page took too long."
        await site.left()


async def test_a_slow_resolver_is_given_up() -> None:
    async def never(host: str, port: int) -> Sequence[Address]:
        await asyncio.Event().wait()
        return []

    async with web(seconds=0.1, resolve=never) as opened:
        assert await refused(opened, "http://pages.test/") == "The page took too long."


async def test_a_cancelled_fetch_leaves_no_connection(site: Site) -> None:
    site.pages["/"] = hang
    async with web() as opened:
        fetching = asyncio.ensure_future(opened.fetch(site.url))
        await site.asked.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await site.left()


async def test_proxies_of_the_environment_are_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pages |= {"/": page(HTML), "/search": results()}
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with web(search_url=site.url) as opened:
        await opened.fetch(site.url)
        await opened.search("tea", 5)


# Search


def results(*found: object) -> bytes:
    return page(json.dumps({"query": CANARY, "results": list(found)}), "application/json")


def result(**more: object) -> dict[str, object]:
    return {"url": "https://tea.example/", "title": "Tea", "content": "About tea.", **more}


async def test_search_asks_for_json_and_gives_the_best_first(site: Site) -> None:
    site.pages["/engine/search"] = results(result(), result(url="http://b.example/", title="B", content=None))
    async with web("", search_url=f"{site.url}/engine/") as opened:
        found = await opened.search("  tea & Gebäck?\ud800 ", 5)
        assert "loopback" in await refused(opened, f"{site.url}/engine/search")
    assert list(found) == [
        WebResult("https://tea.example/", "Tea", "About tea."),
        WebResult("http://b.example/", "B", ""),
    ]
    asked = parse_qs(urlsplit(site.requests[0].target).query)
    assert asked == {"q": ["tea & Gebäck?"], "format": ["json"]}
    assert len(site.requests) == 1


@pytest.mark.parametrize(("count", "given"), [(-1, 1), (0, 1), (1, 1), (3, 3), (99, 20)])
async def test_search_gives_as_many_as_asked_for_up_to_twenty(site: Site, count: int, given: int) -> None:
    site.pages["/search"] = results(*(result(title=str(number)) for number in range(50)))
    async with web(search_url=site.url) as opened:
        found = await opened.search("tea", count)
    assert [hit.title for hit in found] == [str(number) for number in range(given)]


async def test_results_that_cannot_be_shown_are_left_out_and_long_ones_cut(site: Site) -> None:
    site.pages["/search"] = results(
        *("text", None, [], {}, {"url": 5}, result(url="javascript:alert(1)"), result(url="file:///x")),
        *(result(url="https://tea.example/" + "x" * 3000), result(url="https://tea.example/\n")),
        result(title="t\n" * 5000, content="\0s\ud800 " * 5000),
        result(title={"a": 1}, content=7),
    )
    async with web(search_url=site.url) as opened:
        long, odd = await opened.search("tea", 20)
    assert (len(long.title), len(long.snippet)) == (199, 599)
    assert set(long.title) == {"t", " "}
    assert set(long.snippet) == {"s", " "}
    assert (odd.title, odd.snippet) == ("", "")


MALFORMED = {
    "no JSON": page(f"<html>{CANARY}</html>"),
    "empty": page("", "application/json"),
    "cut": page('{"results": [', "application/json"),
    "nested": page("[" * 100_000, "application/json"),
    "a list": page("[]", "application/json"),
    "without results": page("{}", "application/json"),
    "results are no list": page('{"results": {"url": "https://tea.example"}}', "application/json"),
    "no text": page(b"\xff\xfe\xfd", "application/json"),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_answer_is_told_in_words(site: Site, case: str) -> None:
    site.pages["/search"] = MALFORMED[case]
    async with web(search_url=site.url) as opened:
        with pytest.raises(WebError) as told:
            await opened.search(CANARY, 5)
    assert str(told.value) == "The search engine gave an answer that cannot be read."


async def test_a_search_engine_that_fails_is_told_in_words(site: Site) -> None:
    async def told(expected: str, **options: Any) -> None:
        async with web(search_url=site.url, **options) as opened:
            with pytest.raises(WebError, match=f"^{expected}$"):
                await opened.search(CANARY, 5)

    for status in (302, 403, 429, 500):
        site.pages["/search"] = page(CANARY, status=status, Location="/elsewhere")
        await told(f"The search engine answered with the status {status}.")
    site.pages["/search"] = hang
    await told("The search took too long.", seconds=0.2)
    site.pages["/search"] = flood
    await told("The answer is larger than 5000 bytes.", max_bytes=5000)
    site.pages["/search"] = b""
    await told("The server could not be reached, or broke off.")
    assert {urlsplit(request.target).path for request in site.requests} == {"/search"}


@pytest.mark.parametrize("query", ["", " \n ", "\0", "x" * 1001])
async def test_a_query_has_a_length(site: Site, query: str) -> None:
    async with web(search_url=site.url) as opened:
        with pytest.raises(WebError, match="1 to 1000 characters"):
            await opened.search(query, 5)
    assert site.requests == []


# As a whole


async def test_nothing_of_queries_addresses_and_pages_is_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore2").setLevel(logging.DEBUG)
    site.pages |= {f"/{CANARY}": page(HTML), "/search": results(result(title=CANARY))}
    site.pages["/moved"] = page("", status=302, Location=f"/{CANARY}?{CANARY}", X_Other=CANARY)
    site.pages["/broken"] = f"{CANARY}\r\n\r\n".encode()
    async with web(search_url=site.url) as opened:
        await opened.search(CANARY, 5)
        await opened.fetch(f"{site.url}/moved?{CANARY}")
        await refused(opened, f"{site.url}/broken?{CANARY}")
        await refused(opened, f"http://{CANARY}.invalid/")
        site.pages["/search"] = page(CANARY, status=403)
        with pytest.raises(WebError):
            await opened.search(CANARY, 5)
        site.pages["/search"] = page(CANARY)
        with pytest.raises(WebError):
            await opened.search(CANARY, 5)
    logged = [record for record in caplog.records if record.name == "sage.web"]
    assert [vars(record).get("status") for record in logged] == [403, None]
    assert not [record for record in caplog.records if CANARY in str(vars(record))]


async def test_settings_switch_search_and_pages_on_each_by_itself(site: Site) -> None:
    site.pages |= {"/": page(HTML), "/search": results(result())}
    async with open_web(Settings()) as access:
        assert access is None
    async with open_web(Settings(web_search_url=site.url)) as access:
        assert access is not None
        assert (access.can_search, access.can_fetch) == (True, False)
        assert len(await access.web.search("tea", 5)) == 1
        with pytest.raises(WebError, match="not switched on"):
            await access.web.fetch(site.url)
    async with open_web(Settings(web_fetch=True, web_allowed_hosts="127.0.0.1")) as access:
        assert access is not None
        assert (access.can_search, access.can_fetch) == (False, True)
        assert (await access.web.fetch(site.url)).text
        with pytest.raises(WebError, match="not switched on"):
            await access.web.search("tea", 5)
