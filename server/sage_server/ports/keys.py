"""Keys and the door between plaintext and ciphertext."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias
from uuid import UUID


class Purpose(Enum):
    """What a derived key is for. Keys of different purposes never open each other's cells."""

    CONTENT = "content"
    VECTOR = "vector"
    PROMPT = "prompt"
    EVENT = "event"
    JOB = "job"
    TAGS = "tags"
    DIGEST = "digest"
    PAGE = "page"


@dataclass(frozen=True, eq=False)
class Cell:
    """The place of a sealed value, all but its row. A cell opens only in the place it was sealed for.

    Made once for each place and known by its identity, which makes looking its key up cheap.
    """

    table: str
    column: str
    purpose: Purpose


@dataclass(frozen=True)
class WrappedKey:
    """A user's key as it is stored."""

    version: int
    root_key_id: str
    wrapped: bytes


NewKey: TypeAlias = Callable[[UUID, int], Awaitable[WrappedKey]]
"""Makes a fresh, wrapped key for a user and a version."""

Rewrap: TypeAlias = Callable[[UUID, WrappedKey], Awaitable[WrappedKey]]
"""Wraps a user's key again with the current root key."""


class UserCipher(Protocol):
    """One user's unwrapped keys. Lives for one request; a cache below makes that cheap."""

    @property
    def key_version(self) -> int:
        """The version that `seal` uses. The row must be stored with it."""
        ...

    def seal(self, cell: Cell, row_id: UUID, plaintext: bytes) -> bytes:
        """Encrypt a value for one place. The result is different every time."""
        ...

    def open(self, cell: Cell, row_id: UUID, ciphertext: bytes) -> bytes:
        """Decrypt a value. Must raise DATA_LOSS for anything that was not sealed for this very place."""
        ...

    def try_open(self, cell: Cell, row_id: UUID, ciphertext: bytes) -> bytes | None:
        """As `open`, for what a caller sent and not for what was stored: None instead of DATA_LOSS."""
        ...

    def tag(self, cell: Cell, text: str) -> bytes:
        """Encrypt a label deterministically, so that SQL can match it.

        Labels that differ only in case, surrounding space or Unicode form must give the same bytes.
        """
        ...

    def tag_forms(self, cell: Cell, text: str) -> Sequence[bytes]:
        """The label sealed with every key version that a stored row may still use, for look-ups."""
        ...

    def open_tag(self, cell: Cell, ciphertext: bytes) -> str:
        """The normalised label. Must raise DATA_LOSS for a label of another cell or user."""
        ...

    def digest(self, data: bytes) -> bytes:
        """A keyed digest of 32 bytes, equal for equal data of this user only."""
        ...


class KeyRing(Protocol):
    """The users' keys. Must hold a bounded number of unwrapped keys."""

    async def cipher(self, user_id: UUID, *, at_least: int = 0) -> UserCipher:
        """The user's cipher, which can open every stored key version.

        `at_least` names a version that was seen in a row: a cache that does not know it yet must load
        again. Must raise USER_ERASED if the user has no key.
        """
        ...

    def forget(self, user_id: UUID) -> None:
        """Drop what is cached for the user."""
        ...

    def forget_all(self) -> None:
        """Drop everything that is cached."""
        ...


class RootKeys(Protocol):
    """Wraps users' keys. Implemented by a file, the environment, or a key management service."""

    @property
    def current_id(self) -> str:
        """The id of the key that `wrap` uses. Not secret."""
        ...

    async def wrap(self, key: bytes, context: bytes) -> tuple[str, bytes]:
        """Wrap with the current key, bound to the context; answers with that key's id."""
        ...

    async def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Must raise RootKeyError if the key is not known or the context is another."""
        ...

    async def rotate(self) -> str:
        """Make a new key current and keep the old ones for unwrapping; answers with its id.

        Where keys are made elsewhere, must answer with the id that is current there.
        """
        ...


class RootKeyError(Exception):
    """A root key is missing, misplaced or wrong. The message says what to do, and holds no key."""


class KeyStore(Protocol):
    """Wrapped keys in the database."""

    async def load(self, user_id: UUID) -> Sequence[WrappedKey]:
        """Every usable version, the oldest first. Empty if the user was erased or never was."""
        ...

    async def add(self, user_id: UUID, key: WrappedKey) -> bool:
        """Store a new version. False if that version exists already (somebody else was faster).

        Must raise USER_ERASED for a user who was erased.
        """
        ...

    async def not_wrapped_by(
        self, root_key_id: str, after: tuple[UUID, int], limit: int
    ) -> Sequence[tuple[UUID, WrappedKey]]:
        """Some keys that another root key wraps, in the order of user and version, after one of them."""
        ...

    async def rewrap(self, user_id: UUID, old: WrappedKey, new: WrappedKey) -> bool:
        """Replace the wrapping of one version, unless it has changed since it was read."""
        ...
