"""Overlays on Postgres: an agent's own rows among the blocks and memories."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import ARRAY, DateTime, Uuid, bindparam, delete, func, null, select, true, tuple_, update

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.block_rows import (
    BLOCK_COLUMNS,
    block_values,
    opened_block,
    revision_values,
)
from sage_server.adapters.postgres.blocks import UPDATE_BLOCK
from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.memory_filters import USED_MODEL
from sage_server.adapters.postgres.memory_rows import MEMORY_COLUMNS, opened_memory
from sage_server.adapters.postgres.memory_statements import OWNED, advanced
from sage_server.adapters.postgres.schema import (
    IS_ARCHIVAL,
    IS_LIVE,
    agents,
    block_revisions,
    heads,
    memories,
    memory_blocks,
)
from sage_server.adapters.postgres.sealed_rows import cipher_for, write_sealed
from sage_server.domain.agents import MemoryMode, agent_not_found
from sage_server.domain.blocks import Block, BlockActor, BlockActorKind, BlockChange
from sage_server.domain.errors import not_found, user_erased
from sage_server.domain.idempotency import Once
from sage_server.domain.overlays import (
    BlockOverlay,
    ConflictPolicy,
    Merged,
    OverlayChange,
    OverlayChangeKind,
    agent_not_overlay,
    block_overlays,
    overlay_conflict,
)
from sage_server.domain.paging import Page, TimeCursor
from sage_server.ports.keys import KeyRing, UserCipher

_b, _r, _m, _a = memory_blocks.c, block_revisions.c, memories.c, agents.c
_USER = bindparam("user_id", type_=Uuid())
_AGENT = bindparam("agent_id", type_=Uuid())
_TIME = DateTime(timezone=True)
_SEEN_BLOCKS = (_b.user_id == _USER) & (_b.agent_id.is_(None) | (_b.agent_id == _AGENT))
_OWN_MEMORIES = (_m.agent_id == _AGENT) & IS_LIVE & IS_ARCHIVAL
_BLOCKS = Statement(
    select(
        *BLOCK_COLUMNS,
        _r.actor,
        _r.agent_id.label("actor_id"),
        _r.turn_id,
    )
    .join(block_revisions, (_r.user_id == _b.user_id) & (_r.block_id == _b.id) & (_r.revision == _b.revision))
    .where(_SEEN_BLOCKS)
)
_LOCK_BLOCKS = Statement(select(_b.id).where(_SEEN_BLOCKS).order_by(_b.id).with_for_update())
_LOCK_HEAD = Statement(select(heads.c.memory_revision).where(heads.c.user_id == _USER).with_for_update())
_MODE = Statement(select(_a.memory_mode).where(_a.user_id == _USER, _a.id == _AGENT))
_DELETE_BLOCK = Statement(
    delete(memory_blocks).where(_b.user_id == _USER, _b.id == bindparam("block_id", type_=Uuid()))
)


def _memories(*, following: bool) -> Statement:
    page = select(*MEMORY_COLUMNS, USED_MODEL).where(OWNED, _OWN_MEMORIES)
    if following:
        last = tuple_(bindparam("at", type_=_TIME), bindparam("last_id", type_=Uuid()))
        page = page.where(tuple_(_m.updated_at, _m.id) < last)
    return Statement(page.order_by(_m.updated_at.desc(), _m.id.desc()).limit(bindparam("limit")))


def _move(*, some: bool) -> Statement:
    """Memories that are the agent's own become the user's. The version keeps a writer who read one before
    from telling an index that it is still the agent's."""
    which = _OWN_MEMORIES & (_m.id == func.any(bindparam("ids", type_=ARRAY(Uuid()))) if some else true())
    head = advanced(select(_m.id).where(OWNED, which).exists())
    return Statement(
        update(memories)
        .where(OWNED, which)
        .values(
            agent_id=null(),
            revision=select(head.c.memory_revision).scalar_subquery(),
            version=_m.version + 1,
            updated_at=bindparam("now", type_=_TIME),
        )
    )


_MEMORIES = {following: _memories(following=following) for following in (False, True)}
_MOVE = {some: _move(some=some) for some in (False, True)}


@dataclass(frozen=True)
class _Merge:
    """What is to be merged."""

    user_id: UUID
    agent_id: UUID
    ids: frozenset[UUID]
    policy: ConflictPolicy
    once: Once | None
    now: datetime

    @property
    def place(self) -> dict[str, Any]:
        return {"user_id": self.user_id, "agent_id": self.agent_id}


class _StaleCipherError(Exception):
    """Rows have a key version that the cipher does not know."""


class _RepeatedError(Exception):
    """The request id is known."""


class PostgresOverlayStore:
    """Implements OverlayStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def changes(
        self, user_id: UUID, agent_id: UUID, *, conflicting_only: bool, size: int, after: TimeCursor | None
    ) -> Page[OverlayChange, TimeCursor]:
        """Blocks are few and are all read; of the memories, no more than the page could hold."""
        place = {"user_id": user_id, "agent_id": agent_id}
        before = await self._keys.cipher(user_id)
        rows = await self._database.fetch(_BLOCKS, **place)
        found: list[Record] = []
        if not conflicting_only:
            last = {} if after is None else {"at": after.at, "last_id": after.id}
            found = await self._database.fetch(_MEMORIES[after is not None], limit=size + 1, **place, **last)
        cipher = await cipher_for(self._keys, user_id, [*rows, *found], before)
        changes = [
            change
            for change in _block_changes(cipher, rows)
            if (change.conflicting or not conflicting_only)
            and (after is None or (change.made_at, change.id) < (after.at, after.id))
        ]
        changes += _memory_changes(cipher, found)
        changes.sort(key=lambda change: (change.made_at, change.id), reverse=True)
        page = changes[:size]
        more = len(changes) > size
        return Page(page, TimeCursor(page[-1].made_at, page[-1].id) if more else None)

    async def merged_before(self, user_id: UUID, once: Once) -> Merged | None:
        """By the kept answer."""
        earlier = await replays.find(self._database, self._keys, user_id, once)
        return None if earlier is None else _answered(earlier)

    async def merge(
        self,
        user_id: UUID,
        agent_id: UUID,
        ids: Collection[UUID],
        policy: ConflictPolicy,
        *,
        once: Once | None,
        now: datetime,
    ) -> Merged:
        """One transaction, which holds the user's head and all blocks that the agent sees."""
        merge = _Merge(user_id, agent_id, frozenset(ids), policy, once, now)

        async def write(cipher: UserCipher) -> Merged:
            return await self._database.transact(partial(_merged, cipher=cipher, merge=merge))

        while True:
            try:
                return await write_sealed(self._keys, user_id, write)
            except _StaleCipherError:
                self._keys.forget(user_id)
            except _RepeatedError:
                break
            except asyncpg.UniqueViolationError as error:
                if not replays.is_repeat(error):
                    raise
                break
        assert once is not None
        return _answered(await replays.replayed(self._database, self._keys, user_id, once))


async def _merged(transaction: Transaction, cipher: UserCipher, merge: _Merge) -> Merged:
    head = await _locked(transaction, merge)
    rows = await transaction.fetch(_BLOCKS, **merge.place)
    if any(row["key_version"] > cipher.key_version for row in rows):
        raise _StaleCipherError
    actors = {row["id"]: _actor(row) for row in rows}
    blocks = [
        overlay
        for overlay in block_overlays(opened_block(cipher, row) for row in rows)
        if not merge.ids or overlay.own.id in merge.ids
    ]
    wanted = {} if not merge.ids else {"ids": list(merge.ids)}
    moved = await transaction.execute(_MOVE[bool(wanted)], **merge.place, **wanted, now=merge.now)
    if merge.ids and moved + len(blocks) < len(merge.ids):
        raise not_found("change")
    conflicts = [overlay for overlay in blocks if overlay.conflicting]
    if conflicts and merge.policy is ConflictPolicy.FAIL:
        raise overlay_conflict(len(conflicts))
    skipped = conflicts if merge.policy is ConflictPolicy.SKIP else []
    for overlay in blocks:
        if overlay not in skipped:
            await _merge_block(transaction, cipher, merge, overlay, actors[overlay.own.id])
    revision = head["memory_revision"] + (1 if moved else 0)
    merged = Merged(moved + len(blocks) - len(skipped), [one.own.id for one in skipped], revision)
    if merge.once is not None:
        kept = replays.values(cipher, merge.user_id, merge.once, _answer(merged), merge.now)
        await transaction.execute(replays.INSERT, **kept)
    return merged


async def _locked(transaction: Transaction, merge: _Merge) -> Record:
    """The user's head, with everything held that a merge compares. Blocks come first, as in the steps of
    turns."""
    await transaction.fetch(_LOCK_BLOCKS, **merge.place)
    head = await transaction.fetchrow(_LOCK_HEAD, user_id=merge.user_id)
    if head is None:
        raise user_erased()
    once = merge.once
    if once is not None and await transaction.fetchrow(
        replays.FIND, user_id=merge.user_id, request_id=once.request_id
    ):
        # Before the changes are judged: a repeat that waited for the locks finds them gone.
        raise _RepeatedError
    agent = await transaction.fetchrow(_MODE, **merge.place)
    if agent is None:
        raise agent_not_found()
    if agent["memory_mode"] != MemoryMode.OVERLAY:
        raise agent_not_overlay(MemoryMode(agent["memory_mode"]))
    # Once more: some may have been created before the head was locked.
    await transaction.fetch(_LOCK_BLOCKS, **merge.place)
    return head


async def _merge_block(
    transaction: Transaction, cipher: UserCipher, merge: _Merge, overlay: BlockOverlay, actor: BlockActor
) -> None:
    """The whole of the overlay's version becomes the next revision of what the agents share."""
    own, under = overlay.own, overlay.under
    if under is None:
        # A revision of its own, so that a turn that is about to change the block as the agent's cannot.
        changed = replace(own, agent_id=None, base=None, revision=own.revision + 1, updated_at=merge.now)
    else:
        await transaction.execute(_DELETE_BLOCK, user_id=merge.user_id, block_id=own.id)
        change = BlockChange(own.description, own.value, own.char_limit, own.read_only)
        changed = under.changed(change, merge.now)
        if changed is under:
            return
    await _write_block(transaction, cipher, merge.user_id, changed, actor)


async def _write_block(
    transaction: Transaction, cipher: UserCipher, user_id: UUID, block: Block, actor: BlockActor
) -> None:
    row = block_values(cipher, user_id, block) | revision_values(cipher, user_id, block, actor, None)
    written = await transaction.execute(UPDATE_BLOCK, block_id=block.id, expected=block.revision - 1, **row)
    assert written == 1  # its row is locked


def _block_changes(cipher: UserCipher, rows: Sequence[Record]) -> list[OverlayChange]:
    turns: Mapping[UUID, UUID | None] = {row["id"]: row["turn_id"] for row in rows}
    return [
        OverlayChange(overlay.kind, overlay.own, turns[overlay.own.id], overlay.conflicting)
        for overlay in block_overlays(opened_block(cipher, row) for row in rows)
    ]


def _memory_changes(cipher: UserCipher, rows: Sequence[Record]) -> list[OverlayChange]:
    tags: dict[bytes, str] = {}
    return [
        OverlayChange(OverlayChangeKind.MEMORY_INSERTED, opened_memory(cipher, row, tags), row["turn_id"])
        for row in rows
    ]


def _actor(row: Record) -> BlockActor:
    """Who made the block what it is."""
    return BlockActor(BlockActorKind(row["actor"]), row["actor_id"], row["turn_id"])


def _answer(merged: Merged) -> object:
    return {
        "count": merged.count,
        "skipped": [str(change_id) for change_id in merged.skipped],
        "revision": merged.revision,
    }


def _answered(first: replays.Replay) -> Merged:
    answer = first.answer
    return Merged(answer["count"], [UUID(change_id) for change_id in answer["skipped"]], answer["revision"])
