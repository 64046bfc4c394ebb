"""Core memory blocks on Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import (
    ARRAY,
    LargeBinary,
    Uuid,
    bindparam,
    delete,
    func,
    insert,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.block_rows import (
    BLOCK_COLUMNS,
    LABEL_TAG,
    REVISION_COLUMNS,
    answered_block,
    block_answer,
    block_values,
    opened_block,
    opened_revision,
    revision_values,
)
from sage_server.adapters.postgres.database import Database, Statement, Transaction
from sage_server.adapters.postgres.schema import block_revisions, heads, memory_blocks, user_keys
from sage_server.adapters.postgres.sealed_rows import cipher_for, write_sealed
from sage_server.domain.blocks import (
    MAX_BLOCKS,
    Block,
    BlockActor,
    BlockChange,
    BlockCursor,
    BlockName,
    BlockRevision,
    label_taken,
    too_many_blocks,
)
from sage_server.domain.errors import not_found, user_erased
from sage_server.domain.idempotency import Once
from sage_server.domain.paging import Page
from sage_server.ports.keys import KeyRing, UserCipher

_b = memory_blocks.c
_r = block_revisions.c
_OWNED = _b.user_id == bindparam("user_id")
_THIS = _OWNED & (_b.id == bindparam("block_id"))
_NAMED = (_b.label_tag == func.any(bindparam("forms", type_=ARRAY(LargeBinary())))) & (
    _b.agent_id.is_not_distinct_from(bindparam("of_agent", type_=Uuid()))
)
# Read together with the rows: a cipher that is older may not know the labels that they have.
_newest = (
    select(func.max(user_keys.c.key_version).label("newest"))
    .where(user_keys.c.user_id == bindparam("user_id"))
    .subquery("newest")
)
_LOCK = Statement(select(heads.c.user_id).where(heads.c.user_id == bindparam("user_id")).with_for_update())
_STATE = Statement(
    select(
        _newest.c.newest,
        select(func.count()).where(_OWNED).scalar_subquery().label("blocks"),
        select(memory_blocks).where(_OWNED, _NAMED).exists().label("taken"),
    )
)
_FIND = Statement(
    select(_newest.c.newest, *BLOCK_COLUMNS).select_from(_newest.outerjoin(memory_blocks, _OWNED & _NAMED))
)
_REVISION = {column.name: bindparam(f"new_{column.name}", type_=column.type) for column in block_revisions.c}
INSERT_BLOCK = Statement(
    insert(block_revisions)
    .values(_REVISION)
    .add_cte(
        insert(memory_blocks)
        .values({column.name: bindparam(column.name, type_=column.type) for column in memory_blocks.c})
        .cte("created")
    )
)
_FIXED = {"user_id", "id", "created_at"}
_changed = (
    update(memory_blocks)
    .where(_THIS, _b.revision == bindparam("expected"))
    .values(
        {
            column.name: bindparam(column.name, type_=column.type)
            for column in memory_blocks.c
            if column.name not in _FIXED
        }
    )
    .returning(_b.id)
    .cte("changed")
)
UPDATE_BLOCK = Statement(
    insert(block_revisions).from_select(list(_REVISION), select(*_REVISION.values()).select_from(_changed))
)
_DELETE = Statement(delete(memory_blocks).where(_THIS, _b.revision == bindparam("expected")))
_OF_BLOCK = (_r.user_id == bindparam("user_id")) & (_r.block_id == bindparam("block_id"))
_ONE_REVISION = Statement(select(*REVISION_COLUMNS).where(_OF_BLOCK, _r.revision == bindparam("revision")))
_REVISIONS = {
    following: Statement(
        select(*REVISION_COLUMNS)
        .where(_OF_BLOCK, _r.revision < bindparam("before") if following else true())
        .order_by(_r.revision.desc())
        .limit(bindparam("limit"))
    )
    for following in (False, True)
}


def _list(*, one_agent: bool, following: bool) -> Statement:
    order: tuple[ColumnElement[Any], ...] = (_b.agent_id.is_not(None), _b.id)
    page = select(*BLOCK_COLUMNS).where(_OWNED)
    if one_agent:
        page = page.where(_b.agent_id.is_(None) | (_b.agent_id == bindparam("of_agent")))
    if following:
        last = tuple_(bindparam("after_owned", type_=order[0].type), bindparam("after_id", type_=Uuid()))
        page = page.where(tuple_(*order) > last)
    return Statement(page.order_by(*order).limit(bindparam("limit")))


_LIST = {
    (one_agent, following): _list(one_agent=one_agent, following=following)
    for one_agent in (False, True)
    for following in (False, True)
}


@dataclass(frozen=True)
class _Creation:
    """A block to be created."""

    user_id: UUID
    block: Block
    actor: BlockActor
    once: Once | None


class PostgresBlockStore:
    """Implements BlockStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def created_before(self, user_id: UUID, once: Once) -> Block | None:
        """By the kept answer."""
        earlier = await replays.find(self._database, self._keys, user_id, once)
        return None if earlier is None else answered_block(earlier.answer)

    async def create(self, user_id: UUID, block: Block, actor: BlockActor, once: Once | None) -> Block:
        """One transaction. It locks the user's head, so creations of one user take turns."""
        creation = _Creation(user_id, block, actor, once)

        async def write(cipher: UserCipher) -> bool:
            return await self._database.transact(partial(_create, cipher=cipher, creation=creation))

        try:
            while not await write_sealed(self._keys, user_id, write):
                self._keys.forget(user_id)
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            first = await replays.replayed(self._database, self._keys, user_id, once)
            return answered_block(first.answer)
        return block

    async def get(self, user_id: UUID, name: BlockName) -> Block:
        """By every form that the label may have."""
        cipher = await self._keys.cipher(user_id)
        while True:
            forms = list(cipher.tag_forms(LABEL_TAG, name.label))
            row = await self._database.fetchrow(_FIND, user_id=user_id, of_agent=name.agent_id, forms=forms)
            assert row is not None
            if row["id"] is not None:
                return opened_block(await cipher_for(self._keys, user_id, [row], cipher), row)
            if row["newest"] is None or row["newest"] <= cipher.key_version:
                raise not_found("block")
            cipher = await self._keys.cipher(user_id, at_least=row["newest"])

    async def list(
        self, user_id: UUID, *, agent_id: UUID | None, size: int, after: BlockCursor | None
    ) -> Page[Block, BlockCursor]:
        """Sorted, not by an index: a user has few."""
        values: dict[str, object] = {} if agent_id is None else {"of_agent": agent_id}
        if after is not None:
            values |= {"after_owned": after.of_an_agent, "after_id": after.id}
        statement = _LIST[agent_id is not None, after is not None]
        before = await self._keys.cipher(user_id)
        rows = await self._database.fetch(statement, user_id=user_id, limit=size + 1, **values)
        cipher = await cipher_for(self._keys, user_id, rows, before)
        page = [opened_block(cipher, row) for row in rows[:size]]
        more = len(rows) > size
        return Page(page, BlockCursor(page[-1].agent_id is not None, page[-1].id) if more else None)

    async def update(
        self,
        user_id: UUID,
        name: BlockName,
        change: BlockChange,
        *,
        etag: str,
        actor: BlockActor,
        now: datetime,
    ) -> Block:
        """Read, change, and write if nobody else has; repeated for a caller who gave no etag."""
        while True:
            current = await self.get(user_id, name)
            current.check_etag(etag)
            changed = current.changed(change, now)
            if changed is current or await self._write(user_id, changed, actor):
                return changed

    async def restore(
        self,
        user_id: UUID,
        name: BlockName,
        revision: int,
        *,
        etag: str,
        actor: BlockActor,
        now: datetime,
    ) -> Block:
        """As `update`."""
        while True:
            current = await self.get(user_id, name)
            current.check_etag(etag)
            before = await self._keys.cipher(user_id)
            row = await self._database.fetchrow(
                _ONE_REVISION, user_id=user_id, block_id=current.id, revision=revision
            )
            if row is None:
                raise not_found("revision")
            earlier = opened_revision(await cipher_for(self._keys, user_id, [row], before), row)
            restored = current.restored(earlier, now)
            if await self._write(user_id, restored, actor, revision):
                return restored

    async def delete(self, user_id: UUID, name: BlockName, etag: str) -> int:
        """The foreign key takes the revisions along; their numbers have no gap, so the last is the count."""
        while True:
            current = await self.get(user_id, name)
            current.check_etag(etag)
            if await self._database.execute(
                _DELETE, user_id=user_id, block_id=current.id, expected=current.revision
            ):
                return current.revision

    async def revisions(
        self, user_id: UUID, name: BlockName, size: int, before: int | None
    ) -> Page[BlockRevision, int]:
        """A stretch of the index; one row more than asked shows if there is more."""
        block = await self.get(user_id, name)
        position = {} if before is None else {"before": before}
        held = await self._keys.cipher(user_id)
        rows = await self._database.fetch(
            _REVISIONS[before is not None], user_id=user_id, block_id=block.id, limit=size + 1, **position
        )
        if not rows:  # every page has some, so the block was deleted a moment ago
            raise not_found("block")
        cipher = await cipher_for(self._keys, user_id, rows, held)
        page = [opened_revision(cipher, row) for row in rows[:size]]
        return Page(page, page[-1].revision if len(rows) > size else None)

    async def _write(
        self, user_id: UUID, block: Block, actor: BlockActor, restored: int | None = None
    ) -> bool:
        """The block and its new revision in one statement, unless the revision before is not current."""

        async def write(cipher: UserCipher) -> int:
            row = block_values(cipher, user_id, block)
            row |= revision_values(cipher, user_id, block, actor, restored)
            return await self._database.execute(
                UPDATE_BLOCK, block_id=block.id, expected=block.revision - 1, **row
            )

        return await write_sealed(self._keys, user_id, write) == 1


async def _create(transaction: Transaction, cipher: UserCipher, creation: _Creation) -> bool:
    """False, and nothing is written, if the cipher is too old to tell whether the label is taken."""
    user_id, block, once = creation.user_id, creation.block, creation.once
    if await transaction.fetchrow(_LOCK, user_id=user_id) is None:
        raise user_erased()
    forms = list(cipher.tag_forms(LABEL_TAG, block.label))
    state = await transaction.fetchrow(_STATE, user_id=user_id, of_agent=block.agent_id, forms=forms)
    assert state is not None
    if state["newest"] > cipher.key_version:
        return False
    if once is not None:
        # Before the label is judged: a repeat that waited for the lock finds it taken, by itself.
        kept = replays.values(cipher, user_id, once, block_answer(block), block.created_at)
        await transaction.execute(replays.INSERT, **kept)
    if state["taken"]:
        raise label_taken()
    if state["blocks"] >= MAX_BLOCKS:
        raise too_many_blocks()
    revision = revision_values(cipher, user_id, block, creation.actor, None)
    await transaction.execute(INSERT_BLOCK, **block_values(cipher, user_id, block), **revision)
    return True
