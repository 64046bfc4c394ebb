"""No method answers without valid credentials, and none does more than they allow.

Methods come from the descriptors, so a new one is tested from its first day.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc

import sage_client
from sage.v1 import admin_pb2
from sage_server.domain.errors import Reason, SageError
from sage_server.domain.identity import Role
from sage_server.settings import SettingsError, load_settings
from support.contract import BY_NAME, METHODS, Answer, Metadata, call, request_of, response_of, valid_request
from support.postgres import TestPostgres
from support.server import RunningServer, running_server

ISSUER = "https://login.example.com"
AUDIENCE = "sage"
TENANT = "default"
OTHER_TENANT = "elsewhere"
OPERATOR_ONLY = {"RotateRootKey", "GetJobStats", "ListDeadJobs", "RetryDeadJob"}
ADMIN = [method for method in METHODS if method.containing_service.name == "AdminService"]
USERS = [method for method in METHODS if method.containing_service.name != "AdminService"]
VALID: dict[MethodDescriptor, bytes] = {
    method: valid_request(method).SerializeToString() for method in METHODS
}
Code = grpc.StatusCode

_PRIVATE = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_PUBLIC_PEM = _PRIVATE.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


@dataclass(frozen=True)
class Guarded:
    """A server that wants credentials, and some that it knows."""

    server: RunningServer
    channel: grpc.aio.Channel
    keys: dict[str, str]

    async def call(self, method: MethodDescriptor, *metadata: tuple[str, str], request: Any = b"") -> Answer:
        return await call(self.channel, method, request, metadata)


@asynccontextmanager
async def guarded_server(dsn: str, key_file: Path, **changes: Any) -> AsyncIterator[Guarded]:
    key_file.write_bytes(_PUBLIC_PEM)
    settings = {
        "auth": "required",
        "jwt_key_file": key_file,
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
    }
    async with running_server(dsn, **settings | changes) as server:
        keys = {}
        for name, role, tenant in (
            ("service", Role.SERVICE, TENANT),
            ("admin", Role.ADMIN, TENANT),
            ("operator", Role.OPERATOR, TENANT),
            ("other admin", Role.ADMIN, OTHER_TENANT),
        ):
            _, keys[name] = await server.application.api_keys.create(
                tenant=tenant, name=name, role=role, expires_at=None, once=None
            )
        async with grpc.aio.insecure_channel(server.address) as channel:
            yield Guarded(server, channel, keys)


@pytest.fixture(scope="module")
async def guarded(postgres: TestPostgres, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    async with (
        postgres.database() as dsn,
        guarded_server(dsn, tmp_path_factory.mktemp("keys") / "jwt.pem") as guarded,
    ):
        yield guarded


def bearer(token: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {token}")


def user(name: str = "maria") -> tuple[str, str]:
    return ("x-sage-user", name)


def claims(**changes: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    found = {"sub": "maria", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + timedelta(days=2)}
    return {name: value for name, value in (found | changes).items() if value is not None}


def signed(key: rsa.RSAPrivateKey = _PRIVATE, **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm="RS256")


def by_hand(header: dict[str, str], secret: bytes | None) -> str:
    """A token that no honest library makes: unsigned, or signed with the public key for a secret."""
    now = int(datetime.now(UTC).timestamp())
    body = {"sub": "maria", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 3600}
    text = b".".join(_base64(json.dumps(part).encode()) for part in (header, body))
    signature = b"" if secret is None else _base64(hmac.digest(secret, text, hashlib.sha256))
    return (text + b"." + signature).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


async def _revoked(guarded: Guarded) -> Metadata:
    keys = guarded.server.application.api_keys
    key, secret = await keys.create(tenant=TENANT, name="x", role=Role.OPERATOR, expires_at=None, once=None)
    await keys.revoke(key.id, tenant=TENANT, role=Role.OPERATOR)
    return (bearer(secret), user())


async def _expired(guarded: Guarded) -> Metadata:
    soon = guarded.server.clock.now() + timedelta(minutes=1)
    _, secret = await guarded.server.application.api_keys.create(
        tenant=TENANT, name="x", role=Role.OPERATOR, expires_at=soon, once=None
    )
    accepted = await guarded.call(BY_NAME["GetServerInfo"], bearer(secret))
    assert accepted.code is Code.OK
    guarded.server.clock.advance(timedelta(minutes=2))
    return (bearer(secret), user())


# A public key in PEM without its last line feed is what the server holds of the file.
_PEM_TEXT = _PUBLIC_PEM.strip()
_LONG_AGO = datetime.now(UTC) - timedelta(hours=1)
REFUSED: dict[str, tuple[str, Any]] = {
    "nothing": ("missing", ()),
    "only a user's name": ("missing", (user(),)),
    "an empty header": ("missing", (("authorization", ""), user())),
    "another scheme": ("malformed", (("authorization", "Basic x"), user())),
    "a scheme alone": ("malformed", (("authorization", "Bearer"), user())),
    "a scheme and a space": ("malformed", (("authorization", "Bearer "), user())),
    "a token without a scheme": ("malformed", (("authorization", signed()), user())),
    "garbage": ("malformed", (("authorization", "\x21\x7e;,=%00"), user())),
    "a token that is none": ("invalid", (bearer("a.b.c"), user())),
    "a token of two words": ("invalid", (bearer(f"{signed()} {signed()}"), user())),
    "an unknown API key": ("unknown", (bearer("sage_sk_" + "A" * 43), user())),
    "an API key's prefix alone": ("unknown", (bearer("sage_sk_"), user())),
    "a revoked API key": ("revoked", _revoked),
    "an expired API key": ("expired", _expired),
    "an expired JWT": ("expired", (bearer(signed(exp=_LONG_AGO)),)),
    "a JWT for another audience": ("invalid", (bearer(signed(aud="another")),)),
    "a JWT for several others": ("invalid", (bearer(signed(aud=["a", "b"])),)),
    "a JWT of another issuer": ("invalid", (bearer(signed(iss="https://evil.example.com")),)),
    "a JWT without an audience": ("invalid", (bearer(signed(aud=None)),)),
    "a JWT without an issuer": ("invalid", (bearer(signed(iss=None)),)),
    "a JWT without an end": ("invalid", (bearer(signed(exp=None)),)),
    "a JWT without a subject": ("invalid", (bearer(signed(sub=None)),)),
    "a JWT that is not valid yet": (
        "invalid",
        (bearer(signed(nbf=datetime.now(UTC) + timedelta(hours=1))),),
    ),
    "a JWT of another key": ("invalid", (bearer(signed(_STRANGER)),)),
    "a JWT with an altered body": ("invalid", (bearer(signed().replace(".", ".e30", 1)),)),
    "alg=none": ("invalid", (bearer(by_hand({"alg": "none", "typ": "JWT"}, None)),)),
    "alg=None": ("invalid", (bearer(by_hand({"alg": "None", "typ": "JWT"}, None)),)),
    "HS256 with the public key as its secret": (
        "invalid",
        (bearer(by_hand({"alg": "HS256", "typ": "JWT"}, _PEM_TEXT)),),
    ),
    "HS256 with the file of the public key as its secret": (
        "invalid",
        (bearer(by_hand({"alg": "HS256", "typ": "JWT"}, _PUBLIC_PEM)),),
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_no_method_answers_without_valid_credentials(guarded: Guarded, kind: str) -> None:
    problem, given = REFUSED[kind]
    metadata: Metadata = given if isinstance(given, tuple) else await given(guarded)
    for method, request in VALID.items():
        answer = await guarded.call(method, *metadata, request=request)
        told = (answer.code, answer.reason, answer.domain, answer.problem)
        expected = (Code.UNAUTHENTICATED, "ERROR_REASON_UNAUTHENTICATED", "sage", problem)
        assert told == expected, method.full_name
        assert answer.responses == ()


async def test_a_header_that_is_not_ascii_is_refused(
    guarded: Guarded,
) -> None:
    """gRPC's own clients do not send one, so this writes HTTP/2; the metrics have the answer."""
    before = _codes(guarded)
    raw = ["Bearer sage_sk_ü".encode(), b"Bearer \xff\xfe", "ü".encode(), "\u202e".encode()]
    for value in raw:
        await _send_raw(guarded.server.address, METHODS, value)
    assert set(_codes(guarded) - before) == {"UNAUTHENTICATED"}
    before = _codes(guarded)
    ending = [method for method in METHODS if method.name != "WatchEvents"]
    await _send_raw(guarded.server.address, ending, f"Bearer {guarded.keys['service']}".encode())
    answered = _codes(guarded) - before
    assert answered.total() == len(ending)
    assert "OK" in answered
    assert "UNAUTHENTICATED" not in answered


def _codes(guarded: Guarded) -> Counter[str]:
    """How many calls have ended with which code, as the metrics have it."""
    counted: Counter[str] = Counter()
    for metric in guarded.server.application.registry.collect():
        for sample in metric.samples:
            if sample.name == "sage_rpc_calls_total":
                counted[sample.labels["code"]] += int(sample.value)
    return counted


async def _send_raw(address: str, methods: Sequence[MethodDescriptor], authorization: bytes) -> None:
    """Call the methods on one HTTP/2 connection and wait until each was answered."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
    waiting = set()
    for number, method in enumerate(methods):
        headers = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": f"/{method.containing_service.full_name}/{method.name}".encode(),
            b":authority": b"localhost",
            b"te": b"trailers",
            b"content-type": b"application/grpc",
            b"authorization": authorization,
            b"x-sage-user": b"maria",
        }
        # Literal, never indexed, with a new name: no table and no Huffman code to keep.
        block = b"".join(b"\x10" + _short(name) + _short(value) for name, value in headers.items())
        stream = 2 * number + 1
        waiting.add(stream)
        writer.write(_frame(1, 0x4, stream, block) + _frame(0, 0x1, stream, b"\0" * 5))
    while waiting:
        head = await asyncio.wait_for(reader.readexactly(9), 20)
        await reader.readexactly(int.from_bytes(head[:3]))
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
        assert kind != 7, "the server gave up the connection"
        if kind == 3 or (kind in (0, 1) and flags & 0x1):
            waiting.discard(stream)
        if kind == 4 and not flags:
            writer.write(_frame(4, 0x1, 0, b""))
    writer.close()
    await writer.wait_closed()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _short(text: bytes) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text


async def test_valid_credentials_get_past_authentication_on_every_method(guarded: Guarded) -> None:
    """So that the refusals above are for the credentials and nothing else."""
    for method in METHODS:
        whole: dict[str, Metadata] = {"operator key": (bearer(guarded.keys["operator"]), user())}
        if method in USERS:
            whole["service key"] = (bearer(guarded.keys["service"]), user())
            whole["JWT"] = (bearer(signed()),)
        for name, metadata in whole.items():
            answer = await guarded.call(method, *metadata, request=b"\xff")
            assert answer.reason == "ERROR_REASON_MALFORMED_REQUEST", (method.full_name, name)


async def test_a_key_and_a_token_of_one_user_see_the_same_things(guarded: Guarded) -> None:
    address = guarded.server.address
    async with (
        sage_client.connect_async(address, token=guarded.keys["service"], user="maria") as with_key,
        sage_client.connect_async(address, token=signed()) as with_token,
        sage_client.connect_async(address, token=signed(sub="otto")) as other,
    ):
        created = await with_key.conversations.create("Garden")
        assert await with_token.conversations.get(created.id) == created
        with pytest.raises(sage_client.NotFound):
            await other.conversations.get(created.id)


@pytest.mark.parametrize("caller", ["service", "jwt"])
async def test_an_admin_method_is_denied_to_services_and_users(guarded: Guarded, caller: str) -> None:
    token = signed() if caller == "jwt" else guarded.keys["service"]
    for method in ADMIN:
        for request in (b"", VALID[method]):
            answer = await guarded.call(method, bearer(token), user(), request=request)
            assert answer.code is Code.PERMISSION_DENIED, method.full_name
            assert answer.reason == "ERROR_REASON_PERMISSION_DENIED"
            required = "OPERATOR" if method.name in OPERATOR_ONLY else "ADMIN"
            assert dict(answer.metadata) == {"required_role": required}


async def test_an_operators_method_is_denied_to_an_admin_key(guarded: Guarded) -> None:
    for method in ADMIN:
        answer = await guarded.call(method, bearer(guarded.keys["admin"]), request=b"\xff")
        if method.name in OPERATOR_ONLY:
            assert answer.code is Code.PERMISSION_DENIED, method.full_name
            assert dict(answer.metadata) == {"required_role": "OPERATOR"}
        else:
            assert answer.code is Code.INVALID_ARGUMENT, method.full_name


async def test_an_admin_key_naming_another_tenant_is_denied(guarded: Guarded) -> None:
    await guarded.call(BY_NAME["ListConversations"], bearer(guarded.keys["operator"]), user("erna"))
    tested = 0
    for method in ADMIN:
        request = valid_request(method)
        if "tenant" not in request.DESCRIPTOR.fields_by_name or method.name in OPERATOR_ONLY:
            continue
        request.tenant = TENANT
        if method.name in {"SetFlag", "ClearFlag"}:
            request.name, request.scope = "tools", admin_pb2.FLAG_SCOPE_TENANT
        answer = await guarded.call(method, bearer(guarded.keys["other admin"]), request=request)
        if answer.code is Code.UNIMPLEMENTED:
            continue
        tested += 1
        assert answer.code is Code.PERMISSION_DENIED, method.full_name
        assert answer.reason == "ERROR_REASON_PERMISSION_DENIED"
        own = await guarded.call(method, bearer(guarded.keys["admin"]), request=request)
        assert own.code in {Code.OK, Code.NOT_FOUND}, method.full_name
    assert tested >= 5


async def test_an_admin_key_makes_no_key_above_itself(guarded: Guarded) -> None:
    request = valid_request(BY_NAME["CreateApiKey"])
    request.role = int(Role.OPERATOR)
    answer = await guarded.call(BY_NAME["CreateApiKey"], bearer(guarded.keys["admin"]), request=request)
    assert answer.code is Code.PERMISSION_DENIED
    request.role = int(Role.ADMIN)
    answer = await guarded.call(BY_NAME["CreateApiKey"], bearer(guarded.keys["admin"]), request=request)
    assert answer.code is Code.OK


async def test_an_admin_key_neither_sees_nor_revokes_another_tenants_keys(guarded: Guarded) -> None:
    keys = guarded.server.application.api_keys
    theirs, secret = await keys.create(
        tenant=TENANT, name="theirs", role=Role.ADMIN, expires_at=None, once=None
    )
    revoke, other = BY_NAME["RevokeApiKey"], bearer(guarded.keys["other admin"])
    request = request_of(revoke)
    answers = []
    for key_id in (str(theirs.id), str(uuid4())):
        request.api_key_id = key_id
        answers.append(await guarded.call(revoke, other, request=request))
    assert answers[0] == answers[1]
    assert answers[0].code is Code.NOT_FOUND
    assert (await guarded.call(BY_NAME["GetServerInfo"], bearer(secret))).code is Code.OK
    listed = response_of(BY_NAME["ListApiKeys"], await guarded.call(BY_NAME["ListApiKeys"], other))
    assert {key.tenant for key in listed.api_keys} == {OTHER_TENANT}


async def test_a_request_id_of_one_tenant_is_not_replayed_to_another(guarded: Guarded) -> None:
    """The answer to CreateApiKey holds a secret."""
    create = BY_NAME["CreateApiKey"]
    request = valid_request(create)
    request.request_id = str(uuid4())
    first = await guarded.call(create, bearer(guarded.keys["admin"]), request=request)
    secret = response_of(create, first).secret
    stolen = await guarded.call(create, bearer(guarded.keys["other admin"]), request=request)
    assert secret.encode() not in b"".join(stolen.responses)
    again = await guarded.call(create, bearer(guarded.keys["admin"]), request=request)
    assert response_of(create, again).secret == secret


async def test_a_key_that_names_no_user_is_refused_where_a_user_is_needed(guarded: Guarded) -> None:
    for role in ("service", "admin", "operator"):
        for method in USERS:
            for metadata in ((), (user(""),), (user("x" * 257),), (user("a%00b"),), (user("%FF"),)):
                answer = await guarded.call(method, bearer(guarded.keys[role]), *metadata)
                assert answer.code is Code.UNAUTHENTICATED, method.full_name
                assert answer.reason == "ERROR_REASON_UNAUTHENTICATED"
                assert answer.problem == "no_user"


async def test_a_token_acts_for_its_own_user_whatever_the_header_says(guarded: Guarded) -> None:
    create, listing = BY_NAME["CreateConversation"], BY_NAME["ListConversations"]
    assert (await guarded.call(create, bearer(signed(sub="tom")), user("victim"))).code is Code.OK
    victims = await guarded.call(listing, bearer(guarded.keys["service"]), user("victim"))
    assert len(response_of(listing, victims).conversations) == 0
    toms = await guarded.call(listing, bearer(guarded.keys["service"]), user("tom"))
    assert len(response_of(listing, toms).conversations) == 1


@pytest.mark.parametrize(
    "strange",
    [
        {"sub": "\ud800"},
        {"sub": ""},
        {"sub": "a\0b"},
        {"sub": "x" * 257},
        {"sub": 7},
        {"sub": ["maria"]},
        {"exp": 10**15},
        {"exp": float("inf")},
        {"exp": "soon"},
        {"exp": 253402300790},
        {"exp": [1]},
        {"exp": {}},
        {"nbf": float("inf")},
        {"iat": [1]},
        {"iss": ["https://login.example.com"]},
        {"aud": {"sage": 1}},
    ],
    ids=str,
)
async def test_a_signed_token_with_strange_claims_is_refused(
    guarded: Guarded, strange: dict[str, Any]
) -> None:
    now = int(datetime.now(UTC).timestamp())
    body = {"sub": "maria", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 3600} | strange
    token = jwt.PyJWS().encode(json.dumps(body).encode(), _PRIVATE, algorithm="RS256")
    answer = await guarded.call(BY_NAME["ListConversations"], bearer(token))
    assert answer.code is Code.UNAUTHENTICATED
    assert answer.problem in {"invalid", "no_user", "expired"}


async def test_clocks_may_differ_by_half_a_minute(dsn: str, tmp_path: Path) -> None:
    method = BY_NAME["ListConversations"]
    async with guarded_server(dsn, tmp_path / "jwt.pem") as guarded:
        for seconds, code in ((2, Code.OK), (20, Code.OK), (50, Code.UNAUTHENTICATED)):
            now, apart = datetime.now(UTC), timedelta(seconds=seconds)
            for token in (signed(iat=now + apart), signed(nbf=now + apart), signed(exp=now - apart)):
                # The second call is answered from what is remembered of the first one.
                for _ in range(2):
                    answer = await guarded.call(method, bearer(token))
                    assert answer.code is code, (seconds, answer)


async def test_a_token_that_is_remembered_lasts_as_long_as_one_that_is_not(dsn: str, tmp_path: Path) -> None:
    async with guarded_server(dsn, tmp_path / "jwt.pem") as guarded:
        token = signed(exp=datetime.now(UTC) + timedelta(hours=1))
        method = BY_NAME["ListConversations"]
        assert (await guarded.call(method, bearer(token))).code is Code.OK
        for step, code in (
            (timedelta(hours=1, seconds=20), Code.OK),
            (timedelta(seconds=15), Code.UNAUTHENTICATED),
        ):
            guarded.server.clock.advance(step)
            assert (await guarded.call(method, bearer(token))).code is code


async def test_a_token_is_refused_once_it_has_expired_although_it_was_accepted(
    dsn: str, tmp_path: Path
) -> None:
    async with guarded_server(dsn, tmp_path / "jwt.pem") as guarded:
        token = signed(exp=datetime.now(UTC) + timedelta(hours=1))
        method = BY_NAME["ListConversations"]
        assert (await guarded.call(method, bearer(token))).code is Code.OK
        guarded.server.clock.advance(timedelta(hours=2))
        answer = await guarded.call(method, bearer(token))
        assert (answer.code, answer.problem) == (Code.UNAUTHENTICATED, "expired")


async def test_a_key_revoked_on_one_replica_is_refused_on_the_other_at_once(dsn: str, tmp_path: Path) -> None:
    async with (
        guarded_server(dsn, tmp_path / "a.pem") as first,
        guarded_server(dsn, tmp_path / "b.pem") as second,
        sage_client.connect_async(first.server.address, token=first.keys["operator"]) as admin,
    ):
        method = BY_NAME["ListConversations"]
        created = await admin.admin.create_api_key("worker")
        # Both replicas have it in their caches.
        for replica in (first, second):
            assert (await replica.call(method, bearer(created.secret), user())).code is Code.OK
        await admin.admin.revoke_api_key(created.api_key.id)
        for replica in (second, first):
            answer = await replica.call(method, bearer(created.secret), user())
            assert (answer.code, answer.problem) == (Code.UNAUTHENTICATED, "revoked")


async def test_health_answers_without_credentials(guarded: Guarded) -> None:
    services = {method.containing_service.full_name for method in METHODS}
    stub = health_pb2_grpc.HealthStub(guarded.channel)
    for service in ("", *sorted(services)):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_without_jwts_configured_every_token_is_refused(dsn: str, tmp_path: Path) -> None:
    nothing = {"jwt_key_file": None, "jwt_issuer": None, "jwt_audience": None}
    async with guarded_server(dsn, tmp_path / "jwt.pem", **nothing) as guarded:
        answer = await guarded.call(BY_NAME["ListConversations"], bearer(signed()))
        assert (answer.code, answer.problem) == (Code.UNAUTHENTICATED, "invalid")


@pytest.mark.parametrize("address", ["0.0.0.0:50051", "[::]:50051", "192.168.1.5:1", "example.com:1"])
def test_without_authentication_another_address_than_loopback_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("SAGE_LISTEN", address)
    with pytest.raises(SettingsError, match=r"SAGE_LISTEN.*loopback"):
        load_settings()
    monkeypatch.setenv("SAGE_AUTH", "required")
    assert load_settings().listen == address


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:1", "localhost:1", "127.1.2.3:1"])
def test_without_authentication_loopback_is_served(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("SAGE_LISTEN", address)
    assert load_settings().auth == "none"


def test_an_unknown_setting_is_refused_by_its_name_and_without_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SAGE_AUHT", "tell-nobody")
    with pytest.raises(SettingsError, match="SAGE_AUHT") as raised:
        load_settings()
    assert "tell-nobody" not in str(raised.value)


async def test_nobody_revokes_a_key_of_a_higher_role(guarded: Guarded) -> None:
    keys = guarded.server.application.api_keys
    key, _ = await keys.create(tenant=TENANT, name="x", role=Role.OPERATOR, expires_at=None, once=None)
    with pytest.raises(SageError) as refused:
        await keys.revoke(key.id, tenant=TENANT, role=Role.ADMIN)
    assert refused.value.reason is Reason.NOT_FOUND
    assert (await keys.revoke(key.id, tenant="another", role=Role.OPERATOR)).revoked_at is not None
