"""JWTs whose keys come from a URL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import sage_client
from sage_server.adapters.jwks import Patience, PublishedKeys
from sage_server.domain.errors import Reason, SageError
from support.server import running_server

ISSUER, AUDIENCE = "https://issuer.example", "sage"
SETTINGS: dict[str, Any] = {
    "auth": "required",
    "jwt_issuer": ISSUER,
    "jwt_audience": AUDIENCE,
    "jwt_tenant_claim": "org",
}
ONCE = sage_client.RetryPolicy(max_attempts=1)
_PRIVATE = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def described(key_id: str) -> dict[str, Any]:
    """The public key, as it is published under an id."""
    public = jwt.algorithms.RSAAlgorithm.to_jwk(_PRIVATE.public_key(), as_dict=True)
    return public | {"kid": key_id, "use": "sig"}


def token(key_id: str) -> str:
    claims = {
        "sub": "maria",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "org": "acme",
        "exp": datetime.now(UTC) + timedelta(minutes=5),
    }
    return jwt.encode(claims, _PRIVATE, algorithm="RS256", headers={"kid": key_id})


class Issuer:
    """Publishes keys at a URL, and can hang, fail, and say something else."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [described("k1")]
        self.body: bytes | None = None
        self.status = 200
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                issuer.answers.wait(60)
                self.send_response(issuer.status)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(issuer.body or json.dumps({"keys": issuer.keys}).encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

            def handle(self) -> None:
                with contextlib.suppress(OSError):  # Whoever asked had no patience.
                    super().handle()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.answers.set()
    made.server.shutdown()
    made.server.server_close()
    thread.join()


class Watch:
    """Seconds that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def published(issuer: Issuer, watch: Watch, fetch: float = 5) -> PublishedKeys:
    return PublishedKeys(issuer.url, "RS256", Patience(fetch=fetch), watch)


async def test_tokens_are_verified_with_published_keys_and_name_their_tenant(
    dsn: str, issuer: Issuer
) -> None:
    async with running_server(dsn, **SETTINGS, jwt_jwks_url=issuer.url) as server:
        async with sage_client.connect_async(server.address, token=token("k1")) as client:
            await client.conversations.create("mine")
        found = await server.application.users.get("acme", "maria")
        assert found.conversation_count == 1
        async with sage_client.connect_async(server.address, token=token("other")) as client:
            with pytest.raises(sage_client.Unauthenticated):
                await client.conversations.create("not mine")
    async with running_server(dsn, **SETTINGS, jwt_jwks_url="http://127.0.0.1:1/keys") as server:
        async with sage_client.connect_async(server.address, token=token("k1"), retry=ONCE) as client:
            with pytest.raises(sage_client.Unavailable) as unavailable:
                await client.conversations.create("mine")
            assert unavailable.value.reason == "TOKEN_KEYS_UNAVAILABLE"
            assert unavailable.value.retry_after is not None
            assert 0 < unavailable.value.retry_after <= 5


async def test_an_issuer_that_hangs_is_asked_once_and_holds_up_nothing_else(dsn: str, issuer: Issuer) -> None:
    issuer.answers.clear()
    async with running_server(dsn, **SETTINGS, jwt_jwks_url=issuer.url) as server:
        started = time.monotonic()
        waiting = [asyncio.create_task(_refusal(server.address, f"garbage-{n}")) for n in range(20)]
        await asyncio.sleep(0.5)
        for _ in range(20):
            await asyncio.to_thread(time.sleep, 0)
        assert time.monotonic() - started < 3, "the threads are free"
        assert set(await asyncio.gather(*waiting)) == {"TOKEN_KEYS_UNAVAILABLE"}
        assert time.monotonic() - started < 8, "nobody waits longer than one fetch"
    assert issuer.asked == 1


async def _refusal(address: str, key_id: str) -> str | None:
    async with sage_client.connect_async(address, token=token(key_id), retry=ONCE) as client:
        with pytest.raises(sage_client.SageError) as refused:
            await client.conversations.create("mine")
    return refused.value.reason


async def test_a_known_key_holds_while_the_issuer_hangs(issuer: Issuer) -> None:
    watch = Watch()
    keys = published(issuer, watch, fetch=1)
    assert await keys.key("k1") is not None
    issuer.answers.clear()
    watch.now += 60
    garbage = [asyncio.create_task(unavailable(keys.key(f"garbage-{n}"))) for n in range(20)]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(0.5):
        assert await keys.key("k1") is not None
    await asyncio.gather(*garbage)
    watch.now += 3600
    async with asyncio.timeout(0.5):
        assert await keys.key("k1") is not None, "however old it is"


async def test_whatever_keys_tokens_name_the_issuer_is_asked_once_in_a_while(issuer: Issuer) -> None:
    watch = Watch()
    keys = published(issuer, watch)
    named = [f"garbage-{number}" for number in range(50)]
    assert set(await asyncio.gather(*map(keys.key, named))) == {None}
    for key_id in named:
        assert await keys.key(key_id) is None
    assert issuer.asked == 1
    watch.now += 11
    assert await keys.key("garbage") is None
    assert await keys.key("garbage") is None
    assert issuer.asked == 2


async def test_a_new_key_is_found_and_a_withdrawn_one_forgotten(issuer: Issuer) -> None:
    watch = Watch()
    keys = published(issuer, watch)
    assert await keys.key("k1") is not None
    issuer.keys = [described("k1"), described("k2")]
    watch.now += 11
    assert await keys.key("k2") is not None
    issuer.keys = [described("k2")]
    watch.now += 301
    assert await keys.key("k1") is None
    assert await keys.key("k2") is not None
    assert issuer.asked == 3


async def test_an_issuer_that_failed_is_asked_again_after_a_while(issuer: Issuer) -> None:
    watch = Watch()
    keys = published(issuer, watch)
    issuer.status = 503
    for _ in range(3):
        error = await unavailable(keys.key("k1"))
        assert error.retry_after == timedelta(seconds=5)
    assert issuer.asked == 1
    issuer.status = 200
    watch.now += 6
    assert await keys.key("k1") is not None
    assert issuer.asked == 2


@pytest.mark.parametrize(
    "body", [b" ", b"<html>", b"[]", b"{}", b'{"keys": {}}', b"[" * 100_000, b"\xff"], ids=repr
)
async def test_what_is_no_set_of_keys_is_a_failure_and_takes_no_key_away(issuer: Issuer, body: bytes) -> None:
    watch = Watch()
    keys = published(issuer, watch)
    assert await keys.key("k1") is not None
    issuer.body = body
    watch.now += 301
    assert await keys.key("k1") is not None
    await unavailable(keys.key("other"))


async def test_keys_for_something_else_verify_no_token(issuer: Issuer) -> None:
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    elliptic = jwt.algorithms.ECAlgorithm.to_jwk(curve, as_dict=True) | {"kid": "elliptic"}
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    encrypting = described("encrypting") | {"use": "enc"}
    broken = {"kty": "RSA", "kid": "broken", "n": 7, "e": None}
    issuer.keys = [elliptic, secret, encrypting, broken, {"kid": "empty"}, described("k1")]
    keys = published(issuer, Watch())
    assert await keys.key("k1") is not None
    for named in ("elliptic", "secret", "encrypting", "broken", "empty"):
        assert await keys.key(named) is None


async def unavailable(asked: Awaitable[object]) -> SageError:
    with pytest.raises(SageError) as raised:
        await asked
    assert raised.value.reason is Reason.TOKEN_KEYS_UNAVAILABLE
    return raised.value
