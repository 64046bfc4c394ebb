"""Who calls, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from uuid import UUID

from sage_server.domain.errors import Reason, SageError

TENANT_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
"""What a tenant may be called, wherever its name comes from."""


class Role(IntEnum):
    """What a credential allows. A higher role allows everything that a lower one does."""

    USER = 0
    SERVICE = 1
    ADMIN = 2
    OPERATOR = 3


def permission_denied(required: Role) -> SageError:
    """The credentials are good, and not for this."""
    return SageError(
        Reason.PERMISSION_DENIED,
        f"This needs an API key with the role {required.name}.",
        metadata={"required_role": required.name},
    )


@dataclass(frozen=True)
class Caller:
    """An authenticated caller of one RPC."""

    tenant: str
    role: Role
    user: UUID | None
    """The user that the call acts for. Only admin RPCs go without one."""

    @property
    def user_id(self) -> UUID:
        """The user of an RPC that needs one; authentication has made sure of it."""
        assert self.user is not None
        return self.user

    def tenant_named(self, tenant: str) -> str:
        """The tenant that an admin call is about: the caller's own, or any for an operator. Raises
        PERMISSION_DENIED."""
        if tenant and tenant != self.tenant and self.role is not Role.OPERATOR:
            raise permission_denied(Role.OPERATOR)
        return tenant or self.tenant


@dataclass(frozen=True)
class User:
    """A user of the application."""

    id: UUID
    tenant: str
    external_id: str
    created_at: datetime


@dataclass(frozen=True)
class UserOverview:
    """A user as an administrator sees them."""

    user: User
    key_version: int
    key_rotation_pending: bool
    conversation_count: int
    item_count: int


@dataclass(frozen=True)
class ApiKey:
    """A backend service's credential, without its secret."""

    id: UUID
    tenant: str
    name: str
    role: Role
    prefix: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def usable(self, now: datetime) -> bool:
        """Whether the key opens anything at this time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
