"""What an administrator sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ApiKeyRole(StrEnum):
    """What an API key may do."""

    SERVICE = "service"
    """Acts for users of its tenant."""
    ADMIN = "admin"
    """As SERVICE, and administers its tenant."""
    OPERATOR = "operator"
    """As ADMIN for every tenant, and the installation."""
    UNKNOWN = "unknown"
    """A role that this version of the client does not know. Never sent."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A credential of a backend service, without its secret. `prefix` is what the secret begins with."""

    id: str
    tenant: str
    name: str
    role: ApiKeyRole
    prefix: str
    create_time: datetime
    expire_time: datetime | None
    revoke_time: datetime | None


@dataclass(frozen=True, slots=True)
class CreatedApiKey:
    """A new key and its secret, which is shown this once and stays out of `repr`."""

    api_key: ApiKey
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class User:
    """A user as an administrator sees them. Nothing that the user wrote is here."""

    id: str
    tenant: str
    external_id: str
    create_time: datetime
    key_version: int
    key_rotation_pending: bool
    conversation_count: int
    item_count: int


@dataclass(frozen=True, slots=True)
class Erasure:
    """What an erasure did: rows removed by table, and replicas whose caches are surely empty."""

    rows_by_table: Mapping[str, int]
    erase_time: datetime
    replicas_confirmed: int
    replicas_unconfirmed: int


@dataclass(frozen=True, slots=True)
class RootKeyRotation:
    """The root key that is current now, and how many user keys were wrapped with it."""

    root_key_id: str
    rewrapped_keys: int


@dataclass(frozen=True, slots=True)
class Replica:
    """A running server process of the installation."""

    id: str
    start_time: datetime
    seen_time: datetime
    version: str


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server is and how it is set up."""

    version: str
    replica: Replica
    replicas: tuple[Replica, ...]
    database: str
    database_version: str
    schema_revision: str
    root_key_id: str
    authentication: str


class FlagScope(StrEnum):
    """Where a feature flag applies. The most specific level wins."""

    GLOBAL = "global"
    """The whole installation."""
    TENANT = "tenant"
    USER = "user"
    UNKNOWN = "unknown"
    """A level that this version of the client does not know. Never sent."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A feature flag's value at one level. `tenant` and `external_id` are empty where a level has none."""

    name: str
    scope: FlagScope
    tenant: str
    external_id: str
    enabled: bool
    update_time: datetime


@dataclass(frozen=True, slots=True)
class JobQueueStats:
    """How many background jobs of a kind wait, run, and failed for good, and how long the oldest waits."""

    kind: str
    queued: int
    running: int
    dead: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A background job that failed for good. `error_type` is the kind of error, never its text."""

    id: str
    kind: str
    attempts: int
    error_type: str
    create_time: datetime
    fail_time: datetime
