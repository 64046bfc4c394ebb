"""Caches that must forget a user on demand."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class UserCache(Protocol):
    """Holds things of users in memory."""

    def forget(self, user_id: UUID) -> None:
        """Drop what is held of the user, and never bring back what was read before this call."""
        ...

    def forget_all(self) -> None:
        """Drop everything, likewise."""
        ...


class Caches:
    """Every cache of this process."""

    def __init__(self, *members: UserCache) -> None:
        self._members = members

    def forget(self, user_id: UUID) -> None:
        """Drop what any cache holds of the user."""
        for member in self._members:
            member.forget(user_id)

    def forget_all(self) -> None:
        """Drop everything."""
        for member in self._members:
            member.forget_all()
