"""Why a database cannot be opened, for who runs the server. No caller gets these words."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import asyncpg

_UNREADABLE = (
    "the address cannot be read. Special characters in a name or a password are percent-encoded, as %2F for /"
)
_NO_TLS = "rejected SSL upgrade"  # asyncpg has no type of its own for it
# The first that fits, so subclasses come first.
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidPasswordError, "the user or the password is refused"),
    (asyncpg.InvalidAuthorizationSpecificationError, "this user is not let in from here (pg_hba.conf)"),
    (asyncpg.InvalidCatalogNameError, "there is no such database"),
    (asyncpg.TooManyConnectionsError, "it has no connection left"),
    (asyncpg.CannotConnectNowError, "it is starting or stopping"),
    (ssl.SSLCertVerificationError, "TLS: its certificate cannot be verified"),
    (ssl.SSLError, "TLS: no agreement with it"),
    (socket.gaierror, "the name of the host is not found"),
    (ConnectionRefusedError, "the connection is refused"),
    (FileNotFoundError, "there is no such socket"),
    (TimeoutError, "no answer in time"),
)


class ConnectError(Exception):
    """The database cannot be opened. The message says which and why, and never the password."""


@contextmanager
def connecting(dsn: str) -> Iterator[None]:
    """Failures to connect in the block are ConnectErrors."""
    if not _has_ports(dsn):
        raise ConnectError(_UNREADABLE)
    try:
        yield
    except (OSError, asyncpg.PostgresError, asyncpg.exceptions.ClientConfigurationError) as error:
        raise ConnectError(f"{_place(dsn)} cannot be opened: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    for kind, text in _CAUSES:
        if isinstance(error, kind):
            return text
    if _NO_TLS in str(error):
        return "TLS: it has none"
    if isinstance(error, OSError):
        return error.strerror or "the connection breaks"
    if isinstance(error, asyncpg.PostgresError):
        return f"it refuses ({type(error).__name__})"
    return str(error).splitlines()[0]  # asyncpg on options that make no sense, by their names


def _place(dsn: str) -> str:
    parts = urlsplit(dsn)
    _, at, hosts = parts.netloc.rpartition("@")
    if not at and "@" in dsn:
        # A password with an unencoded slash: what looks like a host and a name may be parts of it.
        return "the database"
    options = parse_qs(parts.query)
    name = parts.path.strip("/") or options.get("dbname", options.get("database", [""]))[0]
    hosts = hosts or options.get("host", [""])[0]
    return f"the database{f' {name}' if name else ''}{f' at {hosts}' if hosts else ''}"


def _has_ports(dsn: str) -> bool:
    """Whether what stands where ports stand are numbers: asyncpg's error would repeat it."""
    try:
        hosts = urlsplit(dsn).netloc.rpartition("@")[2].split(",")
    except ValueError:  # a bracket that is none of an IPv6 address
        return False
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    return all(not port or port.isdecimal() for port in ports)
