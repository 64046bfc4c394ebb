"""Which addresses of the web may be reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
AddressKind: TypeAlias = Literal[
    "unspecified", "loopback", "private", "shared", "link-local", "multicast", "reserved"
]
"""`shared` is the network between providers and their customers (CGNAT)."""

# What an operator with services of their own means by private. Neither link-local nor shared: there are
# addresses at which clouds hand out credentials.
_PRIVATE: frozenset[AddressKind] = frozenset({"loopback", "private"})
_PORTS = frozenset({80, 443})
_LONGEST_NAME = 253

_PRIVATE_4 = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16"))
_SHARED = IPv4Network("100.64.0.0/10")
# Protocols of the network itself, and the relays of 6to4. Not every Python knows them as such.
_PROTOCOLS = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
_UNIQUE_LOCAL = IPv6Network("fc00::/7")
_SITE_LOCAL = IPv6Network("fec0::/10")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_DOCUMENTATION = IPv6Network("3fff::/20")
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))


def refusal(address: Address) -> AddressKind | None:
    """What the address is other than one of the public internet; None if it is one.

    An IPv6 address that leads to an IPv4 address is what that address is. What nobody has assigned to the
    public internet is reserved.
    """
    if isinstance(address, IPv4Address):
        return _refusal_4(address)
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    inner = _embedded(address)
    return _refusal_6(address) if inner is None else _refusal_4(inner)


def _refusal_4(address: IPv4Address) -> AddressKind | None:
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if _within(address, _PRIVATE_4):
        return "private"
    if address in _SHARED:
        return "shared"
    return "reserved" if _within(address, _PROTOCOLS) or not address.is_global else None


def _refusal_6(address: IPv6Address) -> AddressKind | None:
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address in _UNIQUE_LOCAL or address in _SITE_LOCAL:
        return "private"
    if address not in _GLOBAL_UNICAST or address in _DOCUMENTATION or not address.is_global:
        return "reserved"
    return None


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that it leads to: mapped, translated (NAT64), compatible, or tunnelled (6to4). Teredo
    is none of these, since all of it is reserved."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if _within(address, _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


@dataclass(frozen=True)
class AllowedHosts:
    """Names, addresses and networks that may be reached though they are not public, and at any port."""

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parsed(cls, text: str) -> AllowedHosts:
        """From how an operator writes them, with commas between. Raises ValueError, whose message does not
        hold the text."""
        names, networks = set(), []
        for entry in filter(None, (given.strip() for given in text.split(","))):
            network = _network(entry)
            if network is not None:
                networks.append(network)
            elif _is_name(entry):
                names.add(_comparable(entry))
            else:
                raise ValueError("must be names, addresses or networks, separated by commas")
        return cls(frozenset(names), tuple(networks))

    def covers(self, host: str, address: Address) -> bool:
        """Whether the host is one of the names, itself and not below one, or the address in a network."""
        return _comparable(host) in self.names or _within(address, self.networks)


@dataclass(frozen=True)
class AddressRules:
    """What the operator lets be reached."""

    allow_private: bool = False
    """Private and loopback addresses, at the ports of the web."""
    allowed: AllowedHosts = AllowedHosts()

    def refusal(self, host: str, address: Address, port: int) -> AddressKind | Literal["port"] | None:
        """Why the address, which the host was resolved to, may not be connected to; None if it may."""
        if self.allowed.covers(host, address):
            return None
        kind = refusal(address)
        if kind is not None and not (self.allow_private and kind in _PRIVATE):
            return kind
        return None if port in _PORTS else "port"


def literal(host: str) -> Address | None:
    """The address that the host is, if it is no name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None


def _is_name(entry: str) -> bool:
    plain = entry.replace("-", "").replace("_", "").replace(".", "")
    # The last part of a name is no number, else it is an address with a typing error.
    return plain.isalnum() and len(entry) <= _LONGEST_NAME and not entry.rpartition(".")[2].isdecimal()


def _comparable(name: str) -> str:
    return name.lower().removesuffix(".")
