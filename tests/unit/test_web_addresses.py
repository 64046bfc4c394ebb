"""Which addresses agents may reach."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from sage_server.domain.web_addresses import AddressRules, AllowedHosts, refusal
from sage_server.settings import SettingsError, load_settings

REFUSED = {
    "unspecified": ["0.0.0.0", "::", "::ffff:0.0.0.0"],
    "loopback": [
        *("127.0.0.1", "127.255.255.254", "::1", "::1%lo", "::ffff:127.0.0.1", "::ffff:7f00:1"),
        *("::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "2002:7f00:1:2::3"),
    ],
    "private": [
        *("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1"),
        *("fd12:3456::1", "fec0::1", "::ffff:10.0.0.1", "::ffff:192.168.1.1", "64:ff9b::10.0.0.1"),
        *("2002:a00:1::1", "2002:c0a8:101::1", "::10.0.0.1"),
    ],
    "shared": ["100.64.0.1", "100.100.100.200", "100.127.255.255", "::ffff:100.64.0.1", "2002:6440:1::"],
    "link-local": [
        *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "febf::1"),
        *("::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::"),
    ],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1", "::ffff:224.0.0.1"],
    "reserved": [
        *("0.1.2.3", "192.0.0.8", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
        *("192.88.99.1", "240.0.0.1", "255.255.255.255", "::ffff:255.255.255.255", "64:ff9b:1::1", "100::1"),
        *("2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:db8::1", "3fff::1"),
        *("4000::1", "5f00::1", "a000::1", "fe00::1", "1::1", "200::1"),
    ],
}
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.167.0.1", "223.255.255.1"),
    *("2606:4700:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888"),
    *("::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"),
]


@pytest.mark.parametrize(
    ("kind", "address"), [(kind, address) for kind, addresses in REFUSED.items() for address in addresses]
)
def test_what_is_not_public_is_refused(kind: str, address: str) -> None:
    assert refusal(ip_address(address)) == kind
    assert AddressRules().refusal("example.org", ip_address(address), 80) == kind


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_not_refused(address: str) -> None:
    assert refusal(ip_address(address)) is None
    assert AddressRules().refusal("example.org", ip_address(address), 443) is None


@pytest.mark.parametrize("port", [0, 22, 25, 6379, 8080, 65535])
def test_other_ports_than_those_of_the_web_are_refused(port: int) -> None:
    assert AddressRules().refusal("example.org", ip_address("8.8.8.8"), port) == "port"
    assert AddressRules(allow_private=True).refusal("example.org", ip_address("10.0.0.1"), port) == "port"


def test_allowing_private_addresses_allows_nothing_else() -> None:
    rules = AddressRules(allow_private=True)
    found = {
        kind: {rules.refusal("intranet", ip_address(address), 80) for address in addresses}
        for kind, addresses in REFUSED.items()
    }
    allowed: dict[str, set[str | None]] = {"loopback": {None}, "private": {None}}
    assert found == {kind: {kind} for kind in REFUSED} | allowed


def test_an_allowed_network_is_allowed_at_any_port_and_nothing_beside_it() -> None:
    rules = AddressRules(allowed=AllowedHosts.parsed("10.1.0.0/16, 169.254.1.1,[fd00::1],"))
    for address in ("10.1.2.3", "169.254.1.1", "fd00::1"):
        assert rules.refusal("anything", ip_address(address), 8080) is None
    for address, kind in (("10.2.0.1", "private"), ("169.254.1.2", "link-local"), ("fd00::2", "private")):
        assert rules.refusal("anything", ip_address(address), 80) == kind


def test_an_allowed_name_is_that_name_only() -> None:
    rules = AddressRules(allowed=AllowedHosts.parsed("Wiki.Internal"))
    address = ip_address("10.0.0.1")
    for host in ("wiki.internal", "WIKI.internal", "wiki.internal."):
        assert rules.refusal(host, address, 8080) is None
    for host in ("a.wiki.internal", "internal", "wiki.internal.example.org", "xwiki.internal"):
        assert rules.refusal(host, address, 80) == "private"


@pytest.mark.parametrize("text", ["10.0.0.1/99", "300.1.1.1", "10.0.0", "http://wiki", "a b", "wiki:80", "*"])
def test_what_is_neither_name_nor_network_stops_the_server(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_WEB_ALLOWED_HOSTS", f"wiki, {text}")
    with pytest.raises(SettingsError) as wrong:
        load_settings()
    assert str(wrong.value).startswith("SAGE_WEB_ALLOWED_HOSTS: ")
    assert text not in str(wrong.value)


@pytest.mark.parametrize(
    "text",
    ["searx", "ftp://searx", "http://", "http://a b", "http://me:secret@searx", "http://searx?x=secret"],
)
def test_a_search_engine_without_a_plain_address_stops_the_server(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_WEB_SEARCH_URL", text)
    with pytest.raises(SettingsError) as wrong:
        load_settings()
    assert str(wrong.value).startswith("SAGE_WEB_SEARCH_URL: ")
    assert "secret" not in str(wrong.value)
