"""Rows of `memory_blocks` and `block_revisions`: how they are sealed and opened."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sage_server.adapters.postgres.database import Record
from sage_server.adapters.postgres.schema import block_revisions, cell, memory_blocks
from sage_server.adapters.postgres.sealed_rows import open_text, seal_text
from sage_server.domain.blocks import Block, BlockActor, BlockActorKind, BlockBase, BlockRevision
from sage_server.domain.ids import new_id
from sage_server.ports.keys import UserCipher

LABEL_TAG = cell(memory_blocks.c.label_tag)
_LABEL = cell(memory_blocks.c.label_enc)
_DESCRIPTION = cell(memory_blocks.c.description_enc)
_VALUE = cell(memory_blocks.c.value_enc)
_OLD_DESCRIPTION = cell(block_revisions.c.description_enc)
_OLD_VALUE = cell(block_revisions.c.value_enc)

BLOCK_COLUMNS = tuple(
    column for column in memory_blocks.c if column not in (memory_blocks.c.user_id, memory_blocks.c.label_tag)
)
REVISION_COLUMNS = tuple(column for column in block_revisions.c if column is not block_revisions.c.user_id)


def block_values(cipher: UserCipher, user_id: UUID, block: Block) -> dict[str, Any]:
    """Every column of a block. All cells are sealed anew: a row has one key version."""
    return {
        "user_id": user_id,
        "id": block.id,
        "agent_id": block.agent_id,
        "label_enc": seal_text(cipher, _LABEL, block.id, block.label),
        "label_tag": cipher.tag(LABEL_TAG, block.label),
        "description_enc": seal_text(cipher, _DESCRIPTION, block.id, block.description),
        "value_enc": seal_text(cipher, _VALUE, block.id, block.value),
        "char_limit": block.char_limit,
        "read_only": block.read_only,
        "revision": block.revision,
        "base_id": None if block.base is None else block.base.id,
        "base_revision": None if block.base is None else block.base.revision,
        "created_at": block.created_at,
        "updated_at": block.updated_at,
        "key_version": cipher.key_version,
    }


def revision_values(
    cipher: UserCipher, user_id: UUID, block: Block, actor: BlockActor, restored: int | None
) -> dict[str, Any]:
    """Every column of the revision that a block is at, under names that begin with `new_`."""
    row_id = new_id(block.updated_at)
    row = {
        "user_id": user_id,
        "id": row_id,
        "block_id": block.id,
        "revision": block.revision,
        "description_enc": seal_text(cipher, _OLD_DESCRIPTION, row_id, block.description),
        "value_enc": seal_text(cipher, _OLD_VALUE, row_id, block.value),
        "char_limit": block.char_limit,
        "read_only": block.read_only,
        "actor": actor.kind,
        "agent_id": actor.agent_id,
        "turn_id": actor.turn_id,
        "restored_revision": restored,
        "created_at": block.updated_at,
        "key_version": cipher.key_version,
    }
    return {f"new_{name}": value for name, value in row.items()}


def opened_block(cipher: UserCipher, row: Record) -> Block:
    """A row of BLOCK_COLUMNS."""
    row_id: UUID = row["id"]
    base_id = row["base_id"]
    return Block(
        id=row_id,
        label=open_text(cipher, _LABEL, row_id, row["label_enc"]),
        agent_id=row["agent_id"],
        description=open_text(cipher, _DESCRIPTION, row_id, row["description_enc"]),
        value=open_text(cipher, _VALUE, row_id, row["value_enc"]),
        char_limit=row["char_limit"],
        read_only=row["read_only"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        revision=row["revision"],
        base=None if base_id is None else BlockBase(base_id, row["base_revision"]),
    )


def opened_revision(cipher: UserCipher, row: Record) -> BlockRevision:
    """A row of REVISION_COLUMNS."""
    row_id: UUID = row["id"]
    return BlockRevision(
        block_id=row["block_id"],
        revision=row["revision"],
        value=open_text(cipher, _OLD_VALUE, row_id, row["value_enc"]),
        description=open_text(cipher, _OLD_DESCRIPTION, row_id, row["description_enc"]),
        char_limit=row["char_limit"],
        read_only=row["read_only"],
        actor=BlockActor(BlockActorKind(row["actor"]), row["agent_id"], row["turn_id"]),
        created_at=row["created_at"],
        restored_revision=row["restored_revision"],
    )


def block_answer(block: Block) -> dict[str, Any]:
    """A block just created, as the answer kept for its request id."""
    return {
        "id": str(block.id),
        "label": block.label,
        "agent_id": None if block.agent_id is None else str(block.agent_id),
        "description": block.description,
        "value": block.value,
        "char_limit": block.char_limit,
        "read_only": block.read_only,
        "created_at": block.created_at.isoformat(),
    }


def answered_block(answer: dict[str, Any]) -> Block:
    """The block of a kept answer."""
    created_at = datetime.fromisoformat(answer["created_at"])
    agent_id = answer["agent_id"]
    return Block(
        id=UUID(answer["id"]),
        label=answer["label"],
        agent_id=None if agent_id is None else UUID(agent_id),
        description=answer["description"],
        value=answer["value"],
        char_limit=answer["char_limit"],
        read_only=answer["read_only"],
        created_at=created_at,
        updated_at=created_at,
    )
