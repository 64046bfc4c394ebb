"""What Envoy itself decides: which pages may call, what is no call, TLS on both sides, and its settings."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path

import grpc
import httpx2
import pytest

import sage_client
from sage.v1 import conversation_service_pb2 as pb
from sage_client import AsyncSageClient
from support.certificates import certificate
from support.server import RunningServer, running_server
from support.web import ROOT, free_port, running_proxy

PAGE = "https://app.example"
OTHER = "https://other.example"
CREATE = "/sage.v1.ConversationService/CreateConversation"
CHAT = "/sage.v1.AgentService/Chat"
EMPTY_MESSAGE = bytes(5)
GRPC_WEB = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1", "x-sage-user": "maria"}
GRPC_WEB_TEXT = GRPC_WEB | {"content-type": "application/grpc-web-text+proto"}
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "x-sage-user"}


async def test_a_page_of_the_settings_may_call_with_the_headers_that_it_needs(server: RunningServer) -> None:
    async with (
        running_proxy(server.address, origins=f"{OTHER}, {PAGE}") as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
    ):
        asked = await http.request("OPTIONS", CREATE, headers={"origin": PAGE, **PREFLIGHT})
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == PAGE
        assert asked.headers["access-control-allow-methods"] == "POST"
        allowed = set(asked.headers["access-control-allow-headers"].split(","))
        assert {"authorization", "x-sage-user", "x-grpc-web", "content-type", "grpc-timeout"} <= allowed
        called = await http.post(CREATE, headers={"origin": PAGE, **GRPC_WEB}, content=EMPTY_MESSAGE)
        assert called.headers["access-control-allow-origin"] == PAGE
        assert b"grpc-status:0" in called.content
        wrong = await http.post(CREATE, headers={"origin": PAGE, **GRPC_WEB}, content=b"\0\0\0\0\1\xff")
        shown = set(wrong.headers["access-control-expose-headers"].split(","))
        assert {"grpc-status", "grpc-message", "grpc-status-details-bin", "x-request-id"} <= shown


@pytest.mark.parametrize("origins", ["", PAGE])
async def test_another_page_reaches_nothing_whether_its_browser_asks_or_not(
    server: RunningServer, client: AsyncSageClient, origins: str
) -> None:
    async with (
        running_proxy(server.address, origins=origins) as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
    ):
        asked = await http.request("OPTIONS", CREATE, headers={"origin": OTHER, **PREFLIGHT})
        called = await http.post(CREATE, headers={"origin": OTHER, **GRPC_WEB}, content=EMPTY_MESSAGE)
        for answer in (asked, called):
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers
    assert [one async for one in client.conversations.list()] == []


async def test_all_pages_may_call_if_the_settings_say_so(server: RunningServer) -> None:
    async with (
        running_proxy(server.address, origins="*") as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
    ):
        called = await http.post(CREATE, headers={"origin": OTHER, **GRPC_WEB}, content=EMPTY_MESSAGE)
        assert called.headers["access-control-allow-origin"] == OTHER
        assert b"grpc-status:0" in called.content


async def test_what_is_not_grpc_is_no_call(server: RunningServer, client: AsyncSageClient) -> None:
    """A browser sends forms and plain text to any site without asking it first."""
    async with (
        running_proxy(server.address, origins=PAGE) as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
    ):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
            answer = await http.post(CREATE, headers={"content-type": kind}, content=EMPTY_MESSAGE)
            assert answer.status_code == 415
    assert [one async for one in client.conversations.list()] == []


@pytest.mark.parametrize("path", [CREATE, CHAT])
async def test_a_broken_body_is_answered_at_once(server: RunningServer, path: str) -> None:
    malformed, too_large, internal = "3", "8", "13"
    bodies = {
        b"": malformed,
        b"\0\0\0": malformed,
        b"\0\0\0\0\x0aabc": malformed,
        b"\0\0\0\0\1\xff": malformed,
        b"\0\xff\xff\xff\xffabc": too_large,
        b"\1\0\0\0\0": internal,
    }
    async with (
        running_proxy(server.address) as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}", timeout=10) as http,
    ):
        for body, status in bodies.items():
            binary = await http.post(path, headers=GRPC_WEB, content=body)
            assert binary.headers["grpc-status"] == status, body
            text = await http.post(path, headers=GRPC_WEB_TEXT, content=base64.b64encode(body))
            assert text.headers["grpc-status"] == status, body
        wrong = await http.post(path, headers=GRPC_WEB_TEXT, content=b"%%%%")
        assert wrong.headers["grpc-status"] == internal


@pytest.mark.parametrize(("name", "value"), [("grpc-timeout", "nonsense"), ("x-custom-bin", "%%%")])
async def test_a_header_that_no_call_has_spoils_no_other_callers_calls(
    server: RunningServer, name: str, value: str
) -> None:
    """All callers share the connections behind the proxy, and the compression of their headers."""
    async with (
        running_proxy(server.address) as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
        sage_client.connect_async(
            proxy.address, user="maria", retry=sage_client.RetryPolicy(max_attempts=1)
        ) as client,
    ):
        for _ in range(8):
            await http.post(CREATE, headers={**GRPC_WEB, name: value}, content=EMPTY_MESSAGE)
        mine = (("x-sage-user", "maria"), ("x-custom-bin", b"mine"))
        for _ in range(20):
            await client.stubs.conversations.ListConversations(
                pb.ListConversationsRequest(),
                timeout=5,
                metadata=mine,
                compression=grpc.Compression.Gzip,
            )


@pytest.mark.parametrize(
    "kind", ["application/grpc+json", "application/grpc-web+json", "application/grpcish"]
)
async def test_what_is_not_protobuf_is_no_call(server: RunningServer, kind: str) -> None:
    async with (
        running_proxy(server.address) as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
    ):
        answer = await http.post(CREATE, headers={**GRPC_WEB, "content-type": kind}, content=EMPTY_MESSAGE)
        said = answer.headers.get("grpc-message") or answer.text  # a gRPC client gets it as a status
        assert said == "This address speaks gRPC and gRPC-Web."


async def test_without_a_server_calls_are_unavailable() -> None:
    async with (
        running_proxy("127.0.0.1:1") as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
    ):
        answer = await http.post(CREATE, headers=GRPC_WEB, content=EMPTY_MESSAGE)
        assert answer.headers["grpc-status"] == "14"


async def test_a_server_is_asked_though_unwell_if_there_is_no_other(server: RunningServer) -> None:
    """Replicas that are all too busy for health checks still answer, late."""
    async with (
        running_proxy(server.address, admin_listen=f"127.0.0.1:{free_port()}") as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
    ):
        await server.application.server._health.enter_graceful_shutdown()
        await proxy.until_healthy(0)
        called = await http.post(CREATE, headers=GRPC_WEB, content=EMPTY_MESSAGE)
        assert b"grpc-status:0" in called.content


async def test_a_request_id_goes_through_and_none_is_made_up(server: RunningServer) -> None:
    async with (
        running_proxy(server.address) as proxy,
        httpx2.AsyncClient(base_url=f"http://{proxy.address}") as http,
    ):
        given = await http.post(CREATE, headers={**GRPC_WEB, "x-request-id": "mine"}, content=EMPTY_MESSAGE)
        assert b"x-request-id:mine\r\n" in given.content
        made = await http.post(CREATE, headers=GRPC_WEB, content=EMPTY_MESSAGE)
        assert re.search(rb"x-request-id:[0-9a-f]{32}\r\n", made.content)


async def test_tls_for_callers_and_mutual_tls_to_the_server(dsn: str, tmp_path: Path) -> None:
    authority = certificate(tmp_path, "authority", None)
    shown, key = certificate(tmp_path, "server", authority)
    own, own_key = certificate(tmp_path, "proxy", authority)
    server_tls = {"tls_certificate": shown, "tls_key": key}
    proxy_tls = {"server_ca": authority[0], "client_certificate": own, "client_key": own_key}
    async with (
        running_server(dsn, **server_tls, tls_client_ca=authority[0]) as server,
        running_proxy(server.address, **server_tls, **proxy_tls, server_name="localhost") as proxy,
        sage_client.connect_async(
            proxy.address,
            user="maria",
            tls=sage_client.TlsOptions(ca_file=authority[0], server_name="localhost"),
        ) as client,
    ):
        assert (await client.conversations.create("Sealed")).title == "Sealed"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"SAGE_PROXY_ORIGINS": "app.example"}, "SAGE_PROXY_ORIGINS: "),
        ({"SAGE_PROXY_SERVERS": "nowhere"}, "SAGE_PROXY_SERVERS: "),
        ({"SAGE_PROXY_SERVERS": ""}, ""),
        ({"SAGE_PROXY_TLS_KEY": "key.pem"}, "SAGE_PROXY_TLS_CERTIFICATE and SAGE_PROXY_TLS_KEY: give both"),
        ({"SAGE_PROXY_ORIGIN": "x"}, "SAGE_PROXY_ORIGIN: there is no such setting"),
    ],
)
async def test_a_wrong_setting_is_named(settings: dict[str, str], expected: str) -> None:
    code, errors = await proxy_says(settings, "show")
    assert errors.startswith(expected)
    assert code == (1 if expected else 0)
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"SAGE_PROXY_LISTEN": "TAKEN"}, "SAGE_PROXY_LISTEN: TAKEN cannot be listened on."),
        ({"SAGE_PROXY_ADMIN_LISTEN": "TAKEN"}, "SAGE_PROXY_ADMIN_LISTEN: TAKEN cannot be listened on."),
        (
            {"SAGE_PROXY_SERVER_CA": "no.pem", "SAGE_PROXY_SERVER_NAME": "x"},
            "SAGE_PROXY_SERVER_CA: no.pem cannot be read\n",
        ),
    ],
)
async def test_what_cannot_be_used_here_is_named_before_anything_starts(
    settings: dict[str, str], expected: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = {name: value.replace("TAKEN", address) for name, value in settings.items()}
        code, errors = await proxy_says({"SAGE_PROXY_LISTEN": f"127.0.0.1:{free_port()}"} | given)
    assert errors.startswith(expected.replace("TAKEN", address))
    assert errors.count("\n") == 1
    assert code == 1


async def proxy_says(settings: Mapping[str, str], *arguments: str) -> tuple[int | None, str]:
    """How `scripts/proxy.py` ends, and why."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SAGE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "scripts" / "proxy.py"), *arguments),
        env=others | dict(settings),
        stdout=PIPE,
        stderr=PIPE,
    )
    _, errors = await process.communicate()
    return process.returncode, errors.decode()
