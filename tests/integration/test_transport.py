"""TLS, mutual TLS, health, metrics, traces, reflection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

import sage_client
from sage_server.rpc.interceptors.metrics import Metrics
from sage_server.rpc.interceptors.request_id import RequestId
from sage_server.rpc.interceptors.tracing import Tracing
from sage_server.rpc.interceptors.validation import Validation
from sage_server.rpc.pipeline import Deadlines, Pipeline
from support.certificates import certificate
from support.server import RunningServer, running_server


async def test_tls_and_mutual_tls(dsn: str, tmp_path: Path) -> None:
    authority = certificate(tmp_path, "authority", None)
    server_files = certificate(tmp_path, "server", authority)
    client_files = certificate(tmp_path, "client", authority)
    anonymous = sage_client.TlsOptions(ca_file=authority[0], server_name="localhost")
    known = sage_client.TlsOptions(
        ca_file=authority[0],
        certificate_file=client_files[0],
        key_file=client_files[1],
        server_name="localhost",
    )
    files: dict[str, Any] = {"tls_certificate": server_files[0], "tls_key": server_files[1]}
    async with running_server(dsn, **files) as server:
        async with sage_client.connect_async(server.address, tls=anonymous) as client:
            await client.conversations.create("over TLS")
        async with sage_client.connect_async(server.address, timeout=2) as client:
            with pytest.raises(sage_client.SageError):
                await client.conversations.create("in the clear")
    async with running_server(dsn, **files, tls_client_ca=authority[0]) as server:
        async with sage_client.connect_async(server.address, tls=known) as client:
            await client.conversations.create("over mutual TLS")
        async with sage_client.connect_async(server.address, tls=anonymous, timeout=2) as client:
            with pytest.raises(sage_client.SageError):
                await client.conversations.create("without a certificate")


async def test_health_is_open_and_follows_the_server(server: RunningServer) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "sage.v1.ConversationService"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await server.application.server.set_serving(serving=False)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_metrics_count_calls_by_method_and_code(
    server: RunningServer, client: sage_client.AsyncSageClient
) -> None:
    await client.conversations.create("unseen")
    with pytest.raises(sage_client.InvalidArgument):
        await client.conversations.get("no id")
    text = generate_latest(server.application.registry).decode()
    method = 'method="sage.v1.ConversationService/'
    assert f'sage_rpc_calls_total{{code="OK",{method}CreateConversation"}} 1.0' in text
    assert f'sage_rpc_calls_total{{code="INVALID_ARGUMENT",{method}GetConversation"}} 1.0' in text
    assert "sage_rpc_running 0.0" in text
    assert "unseen" not in text


async def test_a_frozen_replica_drops_its_caches_before_it_serves_again(server: RunningServer) -> None:
    """It never hears the signal in time, as if it had been stopped, and must not serve the erased user."""
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address, user="maria") as here,
        sage_client.connect_async(other.address, user="maria") as there,
    ):
        thread = await there.conversations.create("secret")
        before = (await here.admin.get_user("maria")).id
        await other.application.workers.stop()
        erasing = asyncio.create_task(here.admin.erase_user("maria"))
        erased = await erasing
        assert (erased.replicas_confirmed, erased.replicas_unconfirmed) == (1, 1)
        with pytest.raises(sage_client.NotFound):
            await there.conversations.get(thread.id)
        await there.conversations.create("afresh")
        assert (await here.admin.get_user("maria")).id != before


def test_interceptors_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="out of order"):
        Pipeline([Validation(), RequestId()], Deadlines(1, 1))


async def test_a_span_a_call_continues_the_callers_trace(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(
        "sage_server.bootstrap.open_tracer", lambda _endpoint, _version: provider.get_tracer("test")
    )
    async with running_server(dsn, otlp_endpoint="http://127.0.0.1:4317") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/sage.v1.ConversationService/CreateConversation"
            )
            parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            await call(b"", metadata=(("traceparent", parent),))
    (span,) = exporter.get_finished_spans()
    assert span.name == "sage.v1.ConversationService/CreateConversation"
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert Tracing.name == "tracing"
    assert Metrics.name == "metrics"
