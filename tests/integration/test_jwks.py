"""JWTs whose keys come from a URL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

import sage_client
from support.server import running_server

ISSUER, AUDIENCE = "https://issuer.example", "sage"


class Keys:
    """An issuer with one key and a server that publishes it."""

    def __init__(self) -> None:
        self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        published = jwt.algorithms.RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        body = json.dumps({"keys": [published | {"kid": "k1", "use": "sig"}]}).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"

    def token(self, kid: str) -> str:
        claims = {
            "sub": "maria",
            "iss": ISSUER,
            "aud": AUDIENCE,
            "org": "acme",
            "exp": datetime.now(UTC) + timedelta(minutes=5),
        }
        return jwt.encode(claims, self.private, algorithm="RS256", headers={"kid": kid})


@pytest.fixture
def keys() -> Iterator[Keys]:
    made = Keys()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


async def test_tokens_are_verified_with_published_keys_and_name_their_tenant(dsn: str, keys: Keys) -> None:
    settings = {
        "auth": "required",
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
        "jwt_tenant_claim": "org",
    }
    async with running_server(dsn, **settings, jwt_jwks_url=keys.url) as server:
        async with sage_client.connect_async(server.address, token=keys.token("k1")) as client:
            await client.conversations.create("mine")
        found = await server.application.users.get("acme", "maria")
        assert found.conversation_count == 1
        async with sage_client.connect_async(server.address, token=keys.token("other")) as client:
            with pytest.raises(sage_client.Unauthenticated):
                await client.conversations.create("not mine")
    async with running_server(dsn, **settings, jwt_jwks_url="http://127.0.0.1:1/keys") as server:
        once = sage_client.RetryPolicy(max_attempts=1)
        async with sage_client.connect_async(server.address, token=keys.token("k1"), retry=once) as client:
            with pytest.raises(sage_client.Unavailable) as refused:
                await client.conversations.create("mine")
            assert refused.value.reason == "TOKEN_KEYS_UNAVAILABLE"
