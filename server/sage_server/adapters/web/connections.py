"""Connections to addresses that were checked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Protocol

import httpcore2

from sage_server.domain.web_addresses import Address, AddressRules, literal
from sage_server.ports.web import WebError

_CONNECT_SECONDS = 5.0
_ADDRESSES_TRIED = 4


class Resolver(Protocol):
    """Finds the addresses of a name."""

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """The addresses, best first. Must raise OSError for a name that has none."""
        ...


async def system_addresses(host: str, port: int) -> Sequence[Address]:
    """The addresses of a name as the operating system finds them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(place[0]) for *_, place in found))


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to what a name was resolved to, if the rules let it.

    A name is resolved once a connection, and the connection goes to the address that was checked. So a name
    that is another address a moment later leads nowhere else. TLS still speaks to the name.
    """

    def __init__(self, rules: AddressRules, resolve: Resolver) -> None:
        self._rules = rules
        self._resolve = resolve
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address that takes one. Raises WebError if none may be reached."""
        failure: Exception = httpcore2.ConnectError()
        for address in await self._permitted(host, port):
            try:
                return await self._backend.connect_tcp(
                    str(address), port, timeout or _CONNECT_SECONDS, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _permitted(self, host: str, port: int) -> Sequence[Address]:
        addresses = await self._addresses(host, port)
        refusals = [self._rules.refusal(host, address, port) for address in addresses]
        permitted = [address for address, why in zip(addresses, refusals, strict=True) if why is None]
        if not permitted:
            why = refusals[0]
            raise WebError(
                "Only the ports 80 and 443 may be used."
                if why == "port"
                else f"The host has a {why} address, which may not be reached."
            )
        return permitted[:_ADDRESSES_TRIED]

    async def _addresses(self, host: str, port: int) -> Sequence[Address]:
        """Never none."""
        address = literal(host)
        if address is not None:
            return [address]
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise WebError("The host was not found.")
        return found
