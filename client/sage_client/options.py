"""What a client is told once and uses for every call."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import grpc

from sage_client.retry import DEFAULT_RETRY, RetryPolicy

DEFAULT_ADDRESS = "127.0.0.1:50051"
DEFAULT_TIMEOUT = 30.0
DEFAULT_STREAM_TIMEOUT = 600.0

Token = str | Callable[[], str]
"""A credential, or a function that gives the current one: JWTs expire. It must not block for long."""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # A page of long items is larger than gRPC's 4 MiB. The server decides how large its answers are.
    ("grpc.max_receive_message_length", -1),
    # Without these a call that is tried again within a second meets the same dead connection.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 5000),
    # A quiet stream cannot tell a dead connection from a slow model. The server allows a ping in 10 seconds.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)

_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/@\[\]]+):(?P<port>[0-9]{1,5})")
# What gRPC itself knows, such as `unix:/path` and `dns:///host:port`.
_SCHEMES = ("unix:", "unix-abstract:", "vsock:", "dns:", "ipv4:", "ipv6:")

# A user's id may be any text, a header only ASCII: the server undoes percent-encoding. Plain ids go as they
# are, so that a proxy which routes by the header sees the same from every client.
_PLAIN = string.punctuation.replace("%", "")


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files in PEM format for TLS, and a certificate with its key for mutual TLS.

    Without `ca_file` the roots that gRPC ships are trusted. `server_name` is the name to expect in the
    server's certificate when it is not the one in the address.
    """

    ca_file: Path | str | None = None
    certificate_file: Path | str | None = None
    key_file: Path | str | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Who calls, how long a call may take in all, and what is tried again."""

    token: Token | None = field(default=None, repr=False)
    user: str | None = None
    timeout: float = DEFAULT_TIMEOUT
    stream_timeout: float = DEFAULT_STREAM_TIMEOUT
    retry: RetryPolicy = DEFAULT_RETRY

    def __post_init__(self) -> None:
        if self.user == "":
            raise ValueError("user must not be empty")
        if isinstance(self.token, str):
            _check_token(self.token)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The credentials as call metadata. Asks for a current token each time."""
        pairs: tuple[tuple[str, str], ...] = ()
        if self.token is not None:
            token = self.token if isinstance(self.token, str) else self.token()
            _check_token(token)
            pairs += (("authorization", f"Bearer {token}"),)
        if self.user is not None:
            pairs += (("x-sage-user", quote(self.user, safe=_PLAIN)),)
        return pairs


def checked_address(address: str) -> str:
    """The address, if it is one. gRPC itself would look for a host of that name, for seconds."""
    found = _HOST_PORT.fullmatch(address)
    if (found and 0 < int(found["port"]) < 65536) or (
        address.startswith(_SCHEMES) and not address.endswith(":")
    ):
        return address
    raise ValueError(
        f"the address {address!r} is none: give host:port without http://, such as 127.0.0.1:50051 or "
        "[::1]:50051, or unix:/path"
    )


def channel_credentials(*, tls: TlsOptions | bool) -> grpc.ChannelCredentials | None:
    """What a secure channel needs, or None for one without TLS. Reads the files."""
    if not isinstance(tls, bool | TlsOptions):
        raise TypeError(f"tls is True, False or TlsOptions(ca_file=...), and not {tls!r}")
    if tls is False:
        return None
    options = TlsOptions() if tls is True else tls
    return grpc.ssl_channel_credentials(
        root_certificates=_read(options.ca_file),
        private_key=_read(options.key_file),
        certificate_chain=_read(options.certificate_file),
    )


def channel_options(*, tls: TlsOptions | bool) -> tuple[tuple[str, int | str], ...]:
    """gRPC's settings for a channel."""
    if isinstance(tls, TlsOptions) and tls.server_name is not None:
        return (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", tls.server_name))
    return CHANNEL_OPTIONS


def _read(file: Path | str | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()


def _check_token(token: str) -> None:
    # HTTP/2 carries nothing else as text, and drops spaces at the ends. The value stays out of the message.
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        raise ValueError("token must be printable ASCII text without spaces around it")
