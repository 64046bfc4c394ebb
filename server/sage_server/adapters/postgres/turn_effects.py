"""What the tools of a step change in memory, in the transaction that stores the step."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import bindparam, literal
from sqlalchemy.dialects.postgresql import insert

from sage_server.adapters.postgres.block_rows import block_values, revision_values
from sage_server.adapters.postgres.blocks import INSERT_BLOCK, UPDATE_BLOCK
from sage_server.adapters.postgres.database import Statement, Transaction
from sage_server.adapters.postgres.memories import INSERT_MEMORIES
from sage_server.adapters.postgres.memory_rows import sealed_memories
from sage_server.adapters.postgres.memory_statements import space_values
from sage_server.adapters.postgres.schema import cell, scratchpads
from sage_server.adapters.postgres.sealed_rows import seal_json
from sage_server.ports.keys import UserCipher
from sage_server.ports.turns import BlockEdit, EffectConflict, Lease, Step

_s = scratchpads.c
_NOTES = cell(_s.items_enc)
_row = insert(scratchpads).values(
    user_id=bindparam("user_id"),
    id=bindparam("conversation_id"),
    version=literal(1, _s.version.type),
    items_enc=bindparam("items_enc"),
    updated_at=bindparam("now"),
    key_version=bindparam("key_version"),
)
_WRITE_NOTES = Statement(
    _row.on_conflict_do_update(
        index_elements=[_s.user_id, _s.id],
        set_={name: _row.excluded[name] for name in ("items_enc", "updated_at", "key_version")}
        | {"version": _s.version + 1},
    )
)


async def store_effects(
    transaction: Transaction, cipher: UserCipher, lease: Lease, step: Step, now: datetime
) -> int:
    """Store them; answers with the revision of the memories, 0 if there were none. Raises EffectConflict."""
    for edit in step.blocks:
        await _store_block(transaction, cipher, lease, edit)
    if step.scratchpad is not None:
        thread = lease.turn.conversation_id
        await transaction.execute(
            _WRITE_NOTES,
            user_id=lease.user_id,
            conversation_id=thread,
            items_enc=seal_json(cipher, _NOTES, thread, list(step.scratchpad)),
            key_version=cipher.key_version,
            now=now,
        )
    if not step.memories:
        return 0
    assert step.space is not None
    row = await transaction.fetchrow(
        INSERT_MEMORIES[step.space.slot, False],
        **sealed_memories(cipher, step.memories, step.space.slot),
        user_id=lease.user_id,
        key_version=cipher.key_version,
        **space_values(step.space),
    )
    if row is None:
        raise EffectConflict
    return int(row["memory_revision"])


async def _store_block(transaction: Transaction, cipher: UserCipher, lease: Lease, edit: BlockEdit) -> None:
    block = edit.block
    row = block_values(cipher, lease.user_id, block)
    row |= revision_values(cipher, lease.user_id, block, edit.actor, None)
    if edit.created:
        await transaction.execute(INSERT_BLOCK, **row)
        return
    expected = block.revision - 1
    if not await transaction.execute(UPDATE_BLOCK, block_id=block.id, expected=expected, **row):
        raise EffectConflict
