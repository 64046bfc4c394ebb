"""Stores. Every method acts for one user and must not see or touch another user's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from sage_server.domain.conversations import (
    AppendedItem,
    Conversation,
    ConversationChange,
    ConversationOrder,
    DraftItem,
    Fork,
    Item,
    ItemFilter,
)
from sage_server.domain.idempotency import Once
from sage_server.domain.identity import ApiKey, Role, User, UserOverview
from sage_server.domain.paging import Page, TimeCursor


class ConversationStore(Protocol):
    """Threads. The main agent's thread is never seen through it.

    A creation with `once` must happen at most once, and a repeat must give the first answer, or raise
    REQUEST_ID_REUSED if its digest is another.
    """

    async def create(self, user_id: UUID, conversation: Conversation, once: Once | None) -> Conversation:
        """Store a new, empty conversation."""
        ...

    async def get(self, user_id: UUID, conversation_id: UUID) -> Conversation:
        """Must raise NOT_FOUND. Deleted conversations are found."""
        ...

    async def list(
        self,
        user_id: UUID,
        *,
        order: ConversationOrder,
        deleted: bool,
        size: int,
        after: TimeCursor | None,
    ) -> Page[Conversation, TimeCursor]:
        """A page of the live ones, or of the deleted ones, newest first.

        Its cost must not grow with the number of conversations.
        """
        ...

    async def update(
        self, user_id: UUID, conversation_id: UUID, change: ConversationChange, etag: str, now: datetime
    ) -> Conversation:
        """Change what `change` names. Must raise ETAG_MISMATCH if `etag` is given and not current."""
        ...

    async def set_deleted(
        self, user_id: UUID, conversation_id: UUID, deleted_at: datetime | None, etag: str, now: datetime
    ) -> Conversation | None:
        """Delete softly, or undelete with None. None if the conversation was in that state already.

        Must raise NOT_FOUND if there is none.
        """
        ...

    async def delete_many(
        self, user_id: UUID, conversation_ids: Sequence[UUID] | None, now: datetime
    ) -> Sequence[UUID]:
        """Delete softly those that are live, or all with None; answers with their ids."""
        ...

    async def count(self, user_id: UUID, *, deleted: bool) -> int:
        """How many live, or deleted, conversations there are."""
        ...

    async def reserved(self, user_id: UUID, ids: Sequence[UUID]) -> set[UUID]:
        """Those of the ids that belong to what this store does not show."""
        ...

    async def restore(self, user_id: UUID, conversation: Conversation) -> bool:
        """Store an imported conversation, empty. False if there is one with this id already.

        Must raise NOT_FOUND if the id belongs to what this store does not show.
        """
        ...


class ItemStore(Protocol):
    """The items of threads. Says NOT_FOUND where ConversationStore would."""

    async def append(
        self, user_id: UUID, conversation_id: UUID, items: Sequence[DraftItem], once: Once | None
    ) -> Sequence[AppendedItem]:
        """Store items in this order at the end, all or nothing.

        Positions must be without gaps however many callers append at the same time, and the counts of the
        conversation must include them. Must raise CONVERSATION_DELETED for a deleted conversation.
        """
        ...

    async def list(
        self, user_id: UUID, conversation_id: UUID, which: ItemFilter, size: int, after: int | None
    ) -> Page[Item, int]:
        """A page by position."""
        ...

    async def delete(self, user_id: UUID, conversation_id: UUID, item_id: UUID) -> None:
        """Delete for good and keep the counts right."""
        ...

    async def restore(self, user_id: UUID, conversation_id: UUID, items: Sequence[DraftItem]) -> int:
        """Append those whose ids are not there yet; answers with how many."""
        ...


class ForkStore(Protocol):
    """Copies of threads."""

    async def fork(self, user_id: UUID, fork: Fork, once: Once | None) -> Conversation:
        """Copy a live conversation with its items, all or nothing.

        Must raise NOT_FOUND, or CONVERSATION_DELETED for a deleted conversation.
        """
        ...


class UserStore(Protocol):
    """Users by their id in the application."""

    async def resolve(self, tenant: str, external_id: str) -> UUID:
        """The user's id; a user who is new is created, with a key. Concurrent calls must agree.

        Must raise USER_ERASED while the user is being erased: whoever remembered the id of then could not
        start afresh.
        """
        ...

    async def find(self, tenant: str, external_id: str) -> User | None:
        """The user, or None if there is none or their erasure is complete."""
        ...

    async def overview(self, user: User) -> UserOverview:
        """What an administrator sees."""
        ...


class ErasureStore(Protocol):
    """Removing a user for good."""

    async def unfinished(self, limit: int) -> Sequence[UUID]:
        """Users whose erasure was cut short."""
        ...

    async def destroy_keys(self, user_id: UUID, now: datetime) -> tuple[datetime, int]:
        """Destroy every key of the user, for good.

        Answers with when that first happened and with the signal that tells replicas.
        """
        ...

    async def delete_rows(self, user_id: UUID) -> dict[str, int]:
        """Delete every row of every table that carries the user; answers with how many, by table.

        Must forget the user's external id as well. After it, a writer that still holds the old key must
        fail.
        """
        ...


class RotationStore(Protocol):
    """Sealing a user's rows again with the current key."""

    async def pending(self, limit: int) -> Sequence[UUID]:
        """Users with rows or keys of an older version."""
        ...

    async def reseal(self, user_id: UUID, limit: int) -> int:
        """Seal some rows with the current version; answers with how many. Safe beside writers."""
        ...

    async def drop_unused(self, user_id: UUID) -> int:
        """Remove older key versions that no row uses; answers with how many are left."""
        ...


class ApiKeyStore(Protocol):
    """Credentials of backend services, by the hash of their secret."""

    async def create(
        self, key: ApiKey, secret: str, secret_hash: bytes, once: Once | None
    ) -> tuple[ApiKey, str]:
        """Store a new key, its name sealed, its secret only as a hash.

        With `once`, a repeat must give the first key and secret; that answer is kept sealed.
        """
        ...

    async def by_hash(self, secret_hash: bytes) -> ApiKey | None:
        """The key, revoked and expired ones too. The name is left out."""
        ...

    async def list(self, tenant: str, size: int, after: UUID | None) -> Page[ApiKey, UUID]:
        """A page, newest first."""
        ...

    async def revoke(self, key_id: UUID, tenant: str | None, up_to: Role, now: datetime) -> ApiKey:
        """Revoke; a key that is revoked stays as it is.

        Must raise NOT_FOUND outside the tenant (None means any) and for a key of a higher role.
        """
        ...


@dataclass(frozen=True)
class Replica:
    """A running server process."""

    id: UUID
    started_at: datetime
    seen_at: datetime
    version: str


@dataclass(frozen=True)
class Signal:
    """Something that every replica must drop from its caches."""

    seq: int
    user_id: UUID
    """Whose entries to drop; the installation stands for its API keys."""


class ReplicaStore(Protocol):
    """What replicas tell each other through the database, in commit order and without gaps."""

    async def head(self) -> int:
        """The last signal."""
        ...

    async def signal(self, user_id: UUID) -> int:
        """Tell every replica to drop what it caches of the user; answers with the signal's number."""
        ...

    async def report(self, replica: Replica, applied: int) -> Sequence[Signal]:
        """Say that the replica is alive and has applied signals up to `applied`; answers with later ones."""
        ...

    async def leave(self, replica_id: UUID) -> None:
        """The replica stops."""
        ...

    async def live(self) -> Sequence[Replica]:
        """Replicas that reported lately."""
        ...

    async def behind(self, signal: int) -> tuple[int, int]:
        """How many live replicas have applied the signal, and how many have not."""
        ...


@dataclass(frozen=True)
class RetentionPolicy:
    """How long things are kept."""

    deleted_before: datetime
    """Conversations deleted before this go for good."""
    inactive_before: datetime | None
    """Conversations without an item since this go for good; None keeps them."""


class RetentionStore(Protocol):
    """Removing what is no longer kept."""

    async def prune(self, policy: RetentionPolicy, now: datetime, limit: int) -> int:
        """Remove some of what is due; answers with how many rows. 0 if nothing is due or another
        replica is at it."""
        ...


@dataclass(frozen=True)
class DatabaseInfo:
    """What the database says of itself."""

    version: str
    schema_revision: str


class DatabaseProbe(Protocol):
    """Whether and what the database is."""

    async def check(self) -> DatabaseInfo:
        """Must raise DATABASE_UNAVAILABLE if it does not answer."""
        ...
