"""Every setting, read from the environment once. The only reader of the environment."""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from sage_server.domain.identity import TENANT_PATTERN
from sage_server.domain.models import MODEL_PATTERN, ModelProvider
from sage_server.domain.web_addresses import AllowedHosts
from sage_server.model_providers import model_providers

PREFIX = "SAGE_"
MAX_PORT = 65_535
# Of the client's command line, which may run in the same shell.
CLIENT_PREFIX = "SAGE_CLIENT_"
# Of the proxy in front of it, likewise: scripts/proxy.py.
PROXY_PREFIX = "SAGE_PROXY_"
_ALIKE = 0.8
_IN_PLAIN_WORDS = {
    "literal_error": "must be {expected}",
    "bool_parsing": "must be true or false",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}
"""What pydantic says otherwise, by its types of errors."""


class SettingsError(Exception):
    """A setting is wrong. The message names it and says what was expected, without its value."""


class Settings(BaseSettings):
    """The server's settings. Each is an environment variable with the prefix `SAGE_`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    listen: str = Field(
        default="127.0.0.1:50051", description="Address and port for gRPC; port 0 takes a free one."
    )
    metrics_listen: str = Field(
        default="127.0.0.1:9464", description="Address and port for Prometheus metrics; `off` for none."
    )
    data_dir: Path | None = Field(
        default=None,
        description="Where the embedded database and the root key are. Default: depends on the user.",
    )
    database_url: SecretStr | None = Field(
        default=None, description="postgresql://… of a Postgres 15 or newer. Default: an embedded one."
    )
    pool_min: int = Field(default=2, ge=0, le=1000, description="Database connections kept open.")
    pool_max: int = Field(default=16, ge=1, le=1000, description="Database connections at most.")
    pool_timeout: float = Field(default=5, gt=0, le=300, description="Seconds to wait for a connection.")
    statement_timeout: float = Field(
        default=30, gt=0, le=3600, description="Seconds that a statement may take."
    )

    root_key: SecretStr | None = Field(
        default=None, description="Root key as `id:base64`. Default: a file root.key in the data directory."
    )
    root_key_previous: SecretStr | None = Field(
        default=None,
        description="Other root keys to unwrap with, separated by commas: earlier ones, and a coming one.",
    )
    key_cache: int = Field(default=10_000, ge=1, description="Users whose unwrapped keys are held in memory.")

    auth: Literal["none", "required"] = Field(
        default="none", description="`none` serves loopback only; `required` wants API keys or JWTs."
    )
    tenant: str = Field(
        default="default",
        pattern=TENANT_PATTERN,
        description="Tenant of local users, and of JWTs while no tenant claim is set.",
    )
    jwt_algorithm: Literal[
        "RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA", "HS256", "HS384", "HS512"
    ] = Field(default="RS256", description="The one algorithm that JWTs may use.")
    jwt_key_file: Path | None = Field(
        default=None, description="Public key (PEM), or secret for HS…, that verifies JWTs."
    )
    jwt_jwks_url: str | None = Field(default=None, description="URL of the keys that verify JWTs.")
    jwt_issuer: str | None = Field(default=None, description="The `iss` that JWTs must have.")
    jwt_audience: str | None = Field(default=None, description="The `aud` that JWTs must have.")
    jwt_tenant_claim: str | None = Field(default=None, description="The claim that names a JWT's tenant.")

    tls_certificate: Path | None = Field(default=None, description="Certificate chain (PEM) for TLS.")
    tls_key: Path | None = Field(default=None, description="Private key (PEM) for TLS.")
    tls_client_ca: Path | None = Field(
        default=None, description="Authority (PEM) of clients' certificates; set it for mutual TLS."
    )

    max_request_bytes: int = Field(
        default=36 * 1024 * 1024, ge=1024, description="Size of a request at most."
    )
    max_concurrent: int = Field(default=1024, ge=0, description="Calls at once at most; 0 for no limit.")
    max_concurrent_per_user: int = Field(
        default=128, ge=0, description="A user's calls at once; 0 for no limit."
    )
    max_rate_per_user: float = Field(
        default=500, ge=0, description="A user's calls per second; 0 for no limit."
    )
    max_watchers: int = Field(
        default=512, ge=0, description="Streams of WatchEvents at once at most; 0 for no limit."
    )
    max_watchers_per_user: int = Field(
        default=100, ge=0, description="A user's streams of WatchEvents at once; 0 for no limit."
    )
    notify: bool = Field(
        default=True,
        description="Whether replicas wake each other by NOTIFY; without it they poll twice a second.",
    )
    unary_deadline: float = Field(default=60, gt=0, description="Seconds that a unary call may take.")
    stream_deadline: float = Field(default=3600, gt=0, description="Seconds that a stream may take.")
    drain: float = Field(
        default=20, ge=0, description="Seconds that running calls get when the server stops."
    )

    deleted_days: float = Field(
        default=30, ge=0, description="Days until a deleted conversation goes for good."
    )
    inactive_days: float | None = Field(
        default=None,
        gt=0,
        description="Days until a conversation without new items goes for good. Default: never.",
    )

    embedding: Literal["local", "openai", "onnx", "hash"] = Field(
        default="local",
        description="Where vectors come from: `local` is the bundled model, `openai` any compatible server, "
        "`onnx` a local sentence model, `hash` none at all.",
    )
    embedding_model: str = Field(
        default="text-embedding-3-small", min_length=1, description="Model of the embedding server."
    )
    embedding_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=8192,
        description="Dimensions of the embedding server's vectors, or of `hash`. Default: asked for, or 256.",
    )
    embedding_base_url: str | None = Field(
        default=None, description="Address of the embedding server, as `https://host/v1`."
    )
    embedding_api_key: SecretStr | None = Field(default=None, description="Key for the embedding server.")
    embedding_path: Path | None = Field(
        default=None, description="Folder with the ONNX model and its tokenizer.json."
    )
    index_megabytes: int = Field(
        default=1024, ge=1, description="Memory that users' search indexes may take together."
    )
    flag_provider: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:\w+$",
        description="Function that makes an OpenFeature provider, as `package.module:function`; it is asked "
        "where no flag is set.",
    )

    llm_base_url: str | None = Field(
        default=None,
        description="Address of the language models' provider `openai`, as `https://host/v1`. "
        "Default: OpenAI's own, if there is a key.",
    )
    llm_api_key: SecretStr | None = Field(
        default=None, description="Key for that provider. Default: the variable `OPENAI_API_KEY`."
    )
    llm_model: str = Field(
        default="gpt-5-mini",
        pattern=MODEL_PATTERN,
        description="Model that answers, of that provider, or as `provider/model` of another one.",
    )
    llm_summary_model: str | None = Field(
        default=None,
        pattern=MODEL_PATTERN,
        description="Model that summarises. Default: the one that answers.",
    )
    llm_routing_model: str | None = Field(
        default=None,
        pattern=MODEL_PATTERN,
        description="Model that chooses who answers. Default: the one that summarises.",
    )
    llm_providers: str | None = Field(
        default=None, description="More providers, as `name=https://host/v1`, separated by commas."
    )
    llm_provider_keys: SecretStr | None = Field(
        default=None, description="Keys for those providers, as `name=key`, separated by commas."
    )
    llm_gguf: Path | None = Field(
        default=None,
        description="Model file (GGUF) to serve in this process, as the provider `local`. It answers unless "
        "SAGE_LLM_MODEL names another model.",
    )
    offline_model: bool = Field(
        default=True,
        description="Whether the offline model answers while no language model is configured.",
    )
    llm_json_schema: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether models get a JSON schema: `auto` until a provider rejects it, `on` always, "
        "`off` never.",
    )
    llm_timeout: float = Field(
        default=120,
        gt=0,
        le=3600,
        description="Seconds that one try of a model call may take. All tries together may take twice that.",
    )
    llm_tries: int = Field(default=5, ge=1, le=20, description="Tries of a model call at most.")
    llm_concurrency: int = Field(
        default=32, ge=1, le=10_000, description="Model calls at once, to each provider."
    )

    web_search_url: str | None = Field(
        default=None,
        pattern=r"^https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/[^?#\s]*)?$",
        description="Address of a SearXNG server for agents to search the web with, as `https://host`. "
        "Default: no search.",
    )
    web_fetch: bool = Field(default=False, description="Whether agents may fetch pages of the public web.")
    web_allow_private: bool = Field(
        default=False, description="Whether pages may be at private and loopback addresses."
    )
    web_allowed_hosts: str = Field(
        default="",
        description="Names, addresses and networks, separated by commas, where pages may be at any port "
        "though they are not public.",
    )
    web_timeout: float = Field(
        default=20, gt=0, le=300, description="Seconds that a search or a page may take."
    )
    web_max_bytes: int = Field(
        default=5_000_000,
        ge=1024,
        le=50_000_000,
        description="Size of a page or of a search's answer at most.",
    )

    turn_lease: float = Field(
        default=10,
        ge=0.5,
        le=600,
        description="Seconds after which another replica takes over a turn whose replica is silent.",
    )
    max_turns: int = Field(default=512, ge=1, description="Turns that run at once at most.")
    turn_seconds: float = Field(
        default=600, ge=1, le=86_400, description="Seconds that a turn may take, unless its agent says."
    )
    turn_tokens: int = Field(
        default=1_000_000, ge=1, description="Tokens that a turn may use, unless its agent says."
    )
    turn_memory_writes: int = Field(
        default=100, ge=0, le=1000, description="Changes of memory in a turn, unless its agent says."
    )
    tools_need_user: str = Field(
        default="",
        description="Tools, separated by commas, that only the user's own words may lead to: never a turn "
        "that nobody asked for, or that has read a page, a document or another's words.",
    )
    failpoint: str | None = Field(
        default=None,
        description="For tests of durability: where the process kills itself, as `commit.before`, or as "
        "`commit.before:2` for the second time.",
    )

    reflection: bool = Field(
        default=True, description="Whether the contract can be asked for (grpcurl, buf curl)."
    )
    otlp_endpoint: str | None = Field(
        default=None, description="OpenTelemetry collector for traces, as `http://host:4317`."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="What is logged."
    )
    log_format: Literal["text", "json"] = Field(default="text", description="For people or for machines.")

    @field_validator("listen", "metrics_listen")
    @classmethod
    def _addresses(cls, value: str, info: ValidationInfo) -> str:
        if value.startswith("unix:") or (value == "off" and info.field_name == "metrics_listen"):
            return value
        host, _, port = value.rpartition(":")
        if not host or not port.isdecimal() or int(port) > MAX_PORT:
            raise ValueError("must be an address and a port, as 127.0.0.1:50051")
        return value

    @field_validator("web_allowed_hosts")
    @classmethod
    def _hosts(cls, value: str) -> str:
        AllowedHosts.parsed(value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        jwt_key = self.jwt_key_file or self.jwt_jwks_url
        if (jwt_key or self.jwt_issuer or self.jwt_audience) and self.auth == "none":
            raise ValueError("SAGE_AUTH: must be `required` when JWTs are configured")
        if self.jwt_key_file and self.jwt_jwks_url:
            raise ValueError("SAGE_JWT_KEY_FILE and SAGE_JWT_JWKS_URL: give one of the two")
        if self.jwt_jwks_url and not self.jwt_jwks_url.startswith(("https://", "http://")):
            raise ValueError("SAGE_JWT_JWKS_URL: must begin with https:// or http://")
        if jwt_key and not (self.jwt_issuer and self.jwt_audience):
            raise ValueError("SAGE_JWT_ISSUER and SAGE_JWT_AUDIENCE: both are needed to verify JWTs")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("SAGE_TLS_CERTIFICATE and SAGE_TLS_KEY: give both")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("SAGE_TLS_CLIENT_CA: needs SAGE_TLS_CERTIFICATE and SAGE_TLS_KEY")
        url = self.database_url
        if url is not None and not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("SAGE_DATABASE_URL: must start with postgresql://")
        if self.pool_min > self.pool_max:
            raise ValueError("SAGE_POOL_MIN: must not be larger than SAGE_POOL_MAX")
        if self.auth == "none" and not is_loopback(self.listen):
            raise ValueError(
                "SAGE_LISTEN: without authentication the server serves loopback only. "
                "Set SAGE_AUTH=required, or listen on 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _embedding_complete(self) -> Settings:
        if self.embedding == "openai" and not self.embedding_base_url:
            raise ValueError("SAGE_EMBEDDING_BASE_URL: needed when SAGE_EMBEDDING is `openai`")
        if self.embedding == "onnx" and self.embedding_path is None:
            raise ValueError("SAGE_EMBEDDING_PATH: needed when SAGE_EMBEDDING is `onnx`")
        return self

    @model_validator(mode="after")
    def _models_reachable(self) -> Settings:
        _ = self.model_providers
        return self

    @property
    def tools_need_user_names(self) -> frozenset[str]:
        """The tools of `tools_need_user`."""
        return frozenset(name.strip() for name in self.tools_need_user.split(",") if name.strip())

    @property
    def jwt_configured(self) -> bool:
        """Whether JWTs are accepted."""
        return bool(self.jwt_key_file or self.jwt_jwks_url)

    @property
    def model_providers(self) -> Mapping[str, ModelProvider]:
        """Who can be asked for language models, by name."""
        return model_providers(
            self.llm_base_url,
            None if self.llm_api_key is None else self.llm_api_key.get_secret_value(),
            self.llm_providers or "",
            self.llm_provider_keys.get_secret_value() if self.llm_provider_keys else "",
        )


def load_settings() -> Settings:
    """The settings of the environment; raises SettingsError. An unknown SAGE_ variable is refused: it is a
    typing error that would otherwise go unnoticed."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    others = (CLIENT_PREFIX, PROXY_PREFIX)
    ours = {name for name in os.environ if name.startswith(PREFIX) and not name.startswith(others)}
    unknown = sorted(ours - known)
    if unknown:
        raise SettingsError("\n".join(_no_such(name, known) for name in unknown))
    key = os.environ.get(f"{PREFIX}LLM_API_KEY") or os.environ.get("OPENAI_API_KEY")
    try:
        return Settings(llm_api_key=SecretStr(key) if key else None)
    except ValidationError as error:
        raise SettingsError("\n".join(_described(problem) for problem in error.errors())) from None


def is_loopback(address: str) -> bool:
    """Whether nobody outside this machine can reach the address."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost" or address.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _no_such(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return f"{name}: there is no such setting{f' (did you mean {near[0]}?)' if near else ''}"


def _described(problem: ErrorDetails) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    plain = _IN_PLAIN_WORDS.get(problem["type"])
    if plain is not None:
        message = plain.format(**problem.get("ctx", {})).replace("'", "`").removesuffix(".0")
    if not problem["loc"]:
        return message
    return f"{PREFIX}{str(problem['loc'][0]).upper()}: {message}"
