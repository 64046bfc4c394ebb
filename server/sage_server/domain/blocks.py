"""Core memory blocks and their revisions."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from uuid import UUID

from sage_server.domain.errors import Reason, SageError, etag_mismatch, invalid

DEFAULT_CHAR_LIMIT = 5_000
MAX_BLOCKS = 100
"""How many blocks a user may have, shared ones and those of agents together."""


class BlockActorKind(IntEnum):
    """Who changed a block. Stored as a number."""

    USER = 1
    AGENT = 2
    SYSTEM = 3


@dataclass(frozen=True)
class BlockActor:
    """Who changes a block, and in which turn."""

    kind: BlockActorKind
    agent_id: UUID | None = None
    turn_id: UUID | None = None


BY_USER = BlockActor(BlockActorKind.USER)


@dataclass(frozen=True)
class BlockName:
    """What a block is found by. Case and space around the label do not count."""

    label: str
    agent_id: UUID | None = None
    """None for a block that all agents share."""


@dataclass(frozen=True)
class BlockChange:
    """New values for the fields that an update names; None leaves a field as it is."""

    description: str | None = None
    value: str | None = None
    char_limit: int | None = None
    read_only: bool | None = None


@dataclass(frozen=True)
class BlockRevision:
    """The state of a block after one change."""

    block_id: UUID
    revision: int
    value: str
    description: str
    char_limit: int
    read_only: bool
    actor: BlockActor
    created_at: datetime
    restored_revision: int | None = None


@dataclass(frozen=True)
class BlockBase:
    """The shared block, and its revision, of which an agent made a version of its own."""

    id: UUID
    revision: int


@dataclass(frozen=True)
class Block:
    """A labelled text that is always in the context of the agents that see it."""

    id: UUID
    label: str
    agent_id: UUID | None
    description: str
    value: str
    char_limit: int
    read_only: bool
    created_at: datetime
    updated_at: datetime
    revision: int = 1
    base: BlockBase | None = None
    """What an agent's own version of a shared block was made from."""

    @property
    def etag(self) -> str:
        """Changes with every revision. It names the block too: another one may get its label."""
        return f"v{self.revision}-{self.id.hex[-12:]}"

    def check_etag(self, etag: str) -> None:
        """Refuse a caller who read an older version. An empty etag asks for no check."""
        if etag and etag != self.etag:
            raise etag_mismatch("block")

    def check_length(self) -> None:
        """Refuse a value that is longer than the block's limit, in characters."""
        if len(self.value) > self.char_limit:
            raise SageError(
                Reason.BLOCK_LIMIT_EXCEEDED,
                "The value is longer than the block's limit.",
                metadata={"limit": str(self.char_limit), "length": str(len(self.value))},
            )

    def changed(self, change: BlockChange, now: datetime) -> Block:
        """The next revision. The very same block if the change leaves everything as it is."""
        description = self.description if change.description is None else change.description
        value = self.value if change.value is None else change.value
        char_limit = self.char_limit if change.char_limit is None else change.char_limit
        read_only = self.read_only if change.read_only is None else change.read_only
        same = replace(self, description=description, value=value, char_limit=char_limit, read_only=read_only)
        if same == self:
            return self
        same.check_length()
        return replace(same, updated_at=now, revision=self.revision + 1)

    def restored(self, earlier: BlockRevision, now: datetime) -> Block:
        """The next revision, with what an earlier one had."""
        return replace(
            self,
            description=earlier.description,
            value=earlier.value,
            char_limit=earlier.char_limit,
            read_only=earlier.read_only,
            updated_at=now,
            revision=self.revision + 1,
        )


@dataclass(frozen=True)
class BlockCursor:
    """The last block of a page: shared blocks come first, and ids are in the order of creation."""

    of_an_agent: bool
    id: UUID


def check_label(label: str) -> None:
    """Refuse a label of which nothing is left once the space around it does not count."""
    if not unicodedata.normalize("NFKC", label).strip():
        raise invalid("label", "must not be blank")


def label_taken() -> SageError:
    """The label is in use, in some spelling."""
    return SageError(
        Reason.ALREADY_EXISTS, "There is a block with this label already.", metadata={"resource": "block"}
    )


def too_many_blocks() -> SageError:
    """The user has as many blocks as the server allows."""
    return SageError(
        Reason.LIMIT_REACHED,
        "There are as many blocks as the server allows.",
        metadata={"resource": "blocks", "limit": str(MAX_BLOCKS)},
    )
