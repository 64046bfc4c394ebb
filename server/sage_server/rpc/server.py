"""The gRPC server itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection

from sage_server.engine.event_hub import EventHub
from sage_server.rpc.call import Method
from sage_server.rpc.interceptors.limits import Limits
from sage_server.rpc.open_services import Doorway, health_handler, reflection_handler
from sage_server.rpc.pipeline import Pipeline

_BACKSTOP = 1024 * 1024
"""Bytes beyond our own limit."""
_PENDING = 100_000
_LAST_WORDS = 1.0
"""Seconds for the last answers to be sent."""


@dataclass(frozen=True)
class TlsFiles:
    """A certificate, its key, and for mutual TLS the authority that clients' certificates come from."""

    certificate: Path
    key: Path
    client_ca: Path | None


@dataclass(frozen=True)
class ServerOptions:
    """How to listen."""

    address: str
    tls: TlsFiles | None
    reflection: bool
    max_request_bytes: int


JOBS = "sage.jobs"
"""The name of the background jobs in the health service."""


class GrpcServer:
    """Serves the contract, health, and reflection."""

    def __init__(
        self,
        methods: Sequence[Method],
        pipeline: Pipeline,
        limits: Limits,
        streams: EventHub,
        options: ServerOptions,
    ) -> None:
        self._limits = limits
        self._streams = streams
        self._server = grpc.aio.server(options=_channel_options(options))
        services = []
        by_service = itertools.groupby(methods, lambda method: method.service)
        for service, members in by_service:
            services.append(service)
            handlers = {method.name: pipeline.handler(method) for method in members}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self._health = health.aio.HealthServicer()
        doorway = Doorway()
        open_services = [health_handler(self._health, doorway)]
        self._services = ["", *services]
        if options.reflection:
            named = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
            open_services.append(reflection_handler(named, doorway))
        self._server.add_generic_rpc_handlers(open_services)
        self._options = options

    async def start(self) -> int:
        """Listen; answers with the port. Raises OSError if the address is taken."""
        address, tls = self._options.address, self._options.tls
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, _credentials(tls))
        except RuntimeError:
            raise OSError(f"{address} cannot be listened on. Is another server running there?") from None
        await self._server.start()
        return int(port)

    async def set_serving(self, *, serving: bool) -> None:
        """What the health service says, of the server and of each service."""
        status = _status(serving=serving)
        for service in self._services:
            await self._health.set(service, status)

    async def set_jobs_serving(self, *, serving: bool) -> None:
        """What the health service says of the background jobs, under a name of its own."""
        await self._health.set(JOBS, _status(serving=serving))

    async def drain(self, grace: float) -> None:
        """Say that we go, refuse new calls with a reason, and let the running ones finish.

        gRPC's own stop would cancel what arrives meanwhile, which a caller cannot tell from a loss. Streams
        that would never finish end at once, with a reason, and those of turns when the grace is over.
        """
        await self._health.enter_graceful_shutdown()
        self._streams.close_watchers()
        await self._limits.drain(grace)
        self._streams.close()
        await self._server.stop(_LAST_WORDS)


def _channel_options(options: ServerOptions) -> list[tuple[str, int]]:
    return [
        # Our own limit answers with a reason. gRPC's is behind it: it reads the length alone, and so is what
        # bounds the memory that one message takes.
        ("grpc.max_receive_message_length", options.max_request_bytes + _BACKSTOP),
        ("grpc.max_send_message_length", -1),
        # So is its limit of calls that wait to be begun, which it would cancel without a word.
        ("grpc.server.max_pending_requests", _PENDING),
        ("grpc.server.max_pending_requests_hard_limit", _PENDING),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]


def _status(*, serving: bool) -> health_pb2.HealthCheckResponse.ServingStatus:
    return health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING


def _credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    authority = None if tls.client_ca is None else tls.client_ca.read_bytes()
    return grpc.ssl_server_credentials(
        [(tls.key.read_bytes(), tls.certificate.read_bytes())],
        root_certificates=authority,
        require_client_auth=authority is not None,
    )
