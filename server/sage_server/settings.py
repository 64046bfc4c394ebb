"""Every setting, read from the environment once. The only reader of the environment."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sage_server.domain.identity import TENANT_PATTERN

PREFIX = "SAGE_"


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
    recall: bool = Field(default=True, description="Whether messages are indexed for search.")

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

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        jwt_key = self.jwt_key_file or self.jwt_jwks_url
        if (jwt_key or self.jwt_issuer or self.jwt_audience) and self.auth == "none":
            raise ValueError("SAGE_AUTH: must be `required` when JWTs are configured")
        if self.jwt_key_file and self.jwt_jwks_url:
            raise ValueError("SAGE_JWT_KEY_FILE and SAGE_JWT_JWKS_URL: give one of the two")
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

    @property
    def jwt_configured(self) -> bool:
        """Whether JWTs are accepted."""
        return bool(self.jwt_key_file or self.jwt_jwks_url)


def load_settings() -> Settings:
    """The settings of the environment; raises SettingsError. An unknown SAGE_ variable is refused: it is a
    typing error that would otherwise go unnoticed."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        raise SettingsError(f"{', '.join(unknown)}: there is no such setting")
    try:
        return Settings()
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


def _described(problem: object) -> str:
    assert isinstance(problem, dict)
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    return f"{PREFIX}{str(problem['loc'][0]).upper()}: {message}"
