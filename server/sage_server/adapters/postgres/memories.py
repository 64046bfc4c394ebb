"""Memories on Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import (
    ARRAY,
    BigInteger,
    DateTime,
    LargeBinary,
    Text,
    Uuid,
    bindparam,
    func,
    insert,
    null,
    select,
    tuple_,
    update,
)

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.database import Database, Record, Statement, Transaction
from sage_server.adapters.postgres.memory_filters import (
    USED_MODEL,
    filter_shape,
    filter_values,
    listed,
    removed_matching,
)
from sage_server.adapters.postgres.memory_rows import (
    GIVEN,
    MEMORY_COLUMNS,
    MODEL_COLUMNS,
    VECTOR_COLUMNS,
    opened_batch,
    opened_memory,
    resealed_vectors,
    sealed_content,
    sealed_memories,
    sealed_vector,
)
from sage_server.adapters.postgres.memory_statements import (
    IN_SPACE,
    OWNED,
    TAKES_SPACE,
    advanced,
    inserted,
    never_again,
    removed,
    space_values,
)
from sage_server.adapters.postgres.schema import IS_LIVE, conversations, heads, memories, requests
from sage_server.adapters.postgres.sealed_rows import cipher_for, newest_cipher, write_sealed
from sage_server.domain.errors import not_found, user_erased
from sage_server.domain.idempotency import Once
from sage_server.domain.memories import Memory, MemoryFilter, MemorySource, MemoryState
from sage_server.domain.paging import Page, TimeCursor
from sage_server.ports.keys import KeyRing, UserCipher
from sage_server.ports.memories import (
    MemoryBatch,
    MemoryHead,
    NewMemory,
    Removed,
    Space,
    Vector,
    Written,
)

_BATCH = 2_000
_FEW = 64
_SLOTS = (0, 1)
_FIRST = UUID(int=0)
_BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)
_m, _h, _c = memories.c, heads.c, conversations.c
_MINE = _m.id == bindparam("memory_id", type_=Uuid())
_TIME = DateTime(timezone=True)

_HEAD = Statement(
    select(_h.memory_revision, _h.pruned_revision, _h.embedding_model, _h.dimensions, _h.vector_slot).where(
        _h.user_id == bindparam("user_id")
    )
)
_COUNTS = Statement(select(_m.source, func.count().label("count")).where(OWNED, IS_LIVE).group_by(_m.source))
_REVISIONS = Statement(
    select(_h.user_id, _h.memory_revision).where(
        _h.user_id == func.any(bindparam("user_ids", type_=ARRAY(Uuid())))
    )
)


def _insert(slot: int, *, once: bool) -> Statement:
    """One statement for the revision, the rows and the kept answer."""
    head = advanced(*IN_SPACE, **TAKES_SPACE)
    statement = select(head.c.memory_revision).add_cte(inserted(head, slot).cte("inserted"))
    if once:
        kept = select(*replays.VALUES.values(), head.c.memory_revision)
        columns = [*replays.VALUES, "ordinal"]
        statement = statement.add_cte(insert(requests).from_select(columns, kept).cte("kept"))
    return Statement(statement)


def _index(slot: int) -> Statement:
    """As `_insert`; what is there already stays as it is, unless it was taken away with its conversation."""
    head = advanced(*IN_SPACE, **TAKES_SPACE)
    new = inserted(head, slot, of_items=True)
    set_again = [*GIVEN, "state", "revision", "key_version", "tags"]
    set_again += [MODEL_COLUMNS[slot].name, VECTOR_COLUMNS[slot].name]
    stored = (
        new.on_conflict_do_update(
            index_elements=[_m.user_id, _m.id],
            set_={name: new.excluded[name] for name in set_again} | {"version": _m.version + 1},
            where=_m.state == int(MemoryState.WITHDRAWN),
        )
        .returning(_m.id)
        .cte("stored")
    )
    return Statement(
        select(
            head.c.memory_revision,
            select(func.array_agg(stored.c.id)).scalar_subquery().label("ids"),
        )
    )


INSERT_MEMORIES = {(slot, once): _insert(slot, once=once) for slot in _SLOTS for once in (False, True)}
INDEX_MEMORIES = {slot: _index(slot) for slot in _SLOTS}
_INDEXABLE = Statement(
    select(_c.id)
    .where(
        _c.user_id == bindparam("user_id"),
        _c.id == bindparam("conversation_id"),
        _c.deleted_at.is_(None),
        ~_c.private,
    )
    .with_for_update(read=True)
)
_GET = Statement(select(*MEMORY_COLUMNS, USED_MODEL).where(OWNED, _MINE, IS_LIVE))


_KEPT_VECTORS = Statement(
    select(_m.key_version, *MODEL_COLUMNS, *VECTOR_COLUMNS).where(OWNED, _MINE, IS_LIVE)
)


def _update(slot: int, *, embedded: bool) -> Statement:
    """The revision and the row in one statement; neither if the row is of another version by now."""
    this = OWNED & _MINE & IS_LIVE & (_m.version == bindparam("expected_version", type_=BigInteger()))
    if not embedded:  # neither a rotation nor another model changes the version
        this &= _m.key_version == bindparam("expected_key_version", type_=_m.key_version.type)
        for column in MODEL_COLUMNS:
            this &= column.is_not_distinct_from(bindparam(f"expected_{column.name}", type_=Text()))
    head = advanced(*IN_SPACE, select(_m.id).where(this).exists())
    values: dict[str, Any] = {
        name: bindparam(f"new_{name}", type_=_m[name].type)
        for name in (
            "content_enc",
            "origin_enc",
            "metadata_enc",
            "tags",
            "key_version",
            "trust",
            "updated_at",
        )
    }
    if embedded:
        values |= {column.name: null() for column in (*MODEL_COLUMNS, *VECTOR_COLUMNS)}
        values[MODEL_COLUMNS[slot].name] = bindparam("new_model", type_=Text())
        values[VECTOR_COLUMNS[slot].name] = bindparam("vector", type_=LargeBinary())
    else:
        values |= {
            column.name: bindparam(f"new_{column.name}", type_=LargeBinary()) for column in VECTOR_COLUMNS
        }
    return Statement(
        update(memories)
        .where(this)
        .values(values | {"revision": head.c.memory_revision, "version": _m.version + 1})
        .returning(_m.revision)
    )


_UPDATE = {
    (slot, embedded): _update(slot, embedded=embedded) for slot in _SLOTS for embedded in (False, True)
}
_THESE = _m.id == func.any(bindparam("ids", type_=ARRAY(Uuid())))
_REMOVE = Statement(removed(_THESE).add_cte(never_again(_THESE)))
_REMOVE_VERSION = Statement(
    removed(_MINE & (_m.version == bindparam("expected_version", type_=BigInteger())))
)


def _batches(slot: int) -> tuple[Statement, Statement]:
    vector = (MODEL_COLUMNS[slot].label("model"), VECTOR_COLUMNS[slot].label("vector_enc"))
    rows = select(*MEMORY_COLUMNS, *vector).where(OWNED)
    last = tuple_(bindparam("at", type_=_TIME), bindparam("after", type_=Uuid()))
    everything = rows.where(IS_LIVE, tuple_(_m.created_at, _m.id) > last).order_by(_m.created_at, _m.id)
    after = tuple_(bindparam("revision", type_=BigInteger()), bindparam("after", type_=Uuid()))
    since = rows.where(tuple_(_m.revision, _m.id) > after).order_by(_m.revision, _m.id)
    return Statement(everything.limit(_BATCH)), Statement(since.limit(_BATCH))


_LOAD, _CHANGES = zip(*(_batches(slot) for slot in _SLOTS), strict=True)


class PostgresMemoryStore:
    """Implements MemoryStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def head(self, user_id: UUID) -> MemoryHead:
        """The user's counters."""
        row = await self._database.fetchrow(_HEAD, user_id=user_id)
        if row is None:
            raise user_erased()
        model = row["embedding_model"]
        space = None if model is None else Space(model, row["dimensions"], row["vector_slot"])
        return MemoryHead(row["memory_revision"], row["pruned_revision"], space)

    async def counts(self, user_id: UUID) -> Mapping[MemorySource, int]:
        """Counted, not estimated."""
        rows = await self._database.fetch(_COUNTS, user_id=user_id)
        return {MemorySource(row["source"]): row["count"] for row in rows}

    async def revisions(self, user_ids: Sequence[UUID]) -> Mapping[UUID, int]:
        """One statement for all."""
        rows = await self._database.fetch(_REVISIONS, user_ids=list(user_ids))
        return {row["user_id"]: row["memory_revision"] for row in rows}

    async def insert(
        self, user_id: UUID, memories: Sequence[NewMemory], space: Space, once: Once | None, now: datetime
    ) -> Written | None:
        """One statement. Its revision is not known before it runs, so a kept answer holds it apart."""
        ids = [entry.memory.id for entry in memories]

        async def write(cipher: UserCipher) -> Record | None:
            kept = {}
            if once is not None:
                answer = [now.isoformat(), *map(str, ids)]
                kept = replays.values(cipher, user_id, once, answer, now)
            return await self._database.fetchrow(
                INSERT_MEMORIES[space.slot, once is not None],
                **sealed_memories(cipher, memories, space.slot),
                **kept | {"user_id": user_id, "key_version": cipher.key_version},
                **space_values(space),
            )

        try:
            row = await write_sealed(self._keys, user_id, write)
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            return _answered(await replays.replayed(self._database, self._keys, user_id, once))
        if row is None:
            earlier = await replays.find(self._database, self._keys, user_id, once)
            return None if earlier is None else _answered(earlier)
        return Written(row["memory_revision"], ids, now)

    async def index_items(
        self, user_id: UUID, conversation_id: UUID, memories: Sequence[NewMemory], space: Space
    ) -> Written | None:
        """The conversation's row is locked against deletion while its messages are stored."""
        now = memories[0].memory.updated_at

        async def write(cipher: UserCipher) -> Written | None:
            async def store(transaction: Transaction) -> Written | None:
                found = await transaction.fetchrow(
                    _INDEXABLE, user_id=user_id, conversation_id=conversation_id
                )
                if found is None:
                    return Written(0, [], now)
                row = await transaction.fetchrow(
                    INDEX_MEMORIES[space.slot],
                    **sealed_memories(cipher, memories, space.slot),
                    user_id=user_id,
                    key_version=cipher.key_version,
                    **space_values(space),
                )
                return None if row is None else Written(row["memory_revision"], row["ids"] or [], now)

            return await self._database.transact(store)

        return await write_sealed(self._keys, user_id, write)

    async def get(self, user_id: UUID, memory_id: UUID) -> Memory:
        """By primary key."""
        before = await self._keys.cipher(user_id)
        row = await self._database.fetchrow(_GET, user_id=user_id, memory_id=memory_id)
        if row is None:
            raise not_found("memory")
        return opened_memory(await cipher_for(self._keys, user_id, [row], before), row, {})

    async def list(
        self, user_id: UUID, which: MemoryFilter, size: int, after: TimeCursor | None
    ) -> Page[Memory, TimeCursor]:
        """A stretch of the index by time, or of the one by tags."""
        before = await self._filtering(user_id, which)
        values = filter_values(before, which)
        statement = listed(*filter_shape(values, which), following=after is not None)
        if after is not None:
            values |= {"at": after.at, "last_id": after.id}
        rows = await self._database.fetch(statement, user_id=user_id, limit=size + 1, **values)
        cipher = await cipher_for(self._keys, user_id, rows, before)
        tags: dict[bytes, str] = {}
        page = [opened_memory(cipher, row, tags) for row in rows[:size]]
        return Page(page, TimeCursor(page[-1].created_at, page[-1].id) if len(rows) > size else None)

    async def update(
        self, user_id: UUID, changed: Memory, vector: Vector | None, space: Space, *, embedded: bool
    ) -> Written | None:
        """One statement. Vectors that stay are sealed again: all cells of a row are of one key."""

        async def write(cipher: UserCipher) -> Record | None:
            extra: dict[str, Any] = {}
            if embedded:
                extra["new_model"] = changed.embedding_model or None
                extra["vector"] = sealed_vector(cipher, space.slot, changed.id, vector)
            else:
                kept = await self._database.fetchrow(_KEPT_VECTORS, user_id=user_id, memory_id=changed.id)
                if kept is None:
                    return None
                cipher = await cipher_for(self._keys, user_id, [kept], cipher)
                extra["expected_key_version"] = kept["key_version"]
                extra |= {f"expected_{column.name}": kept[column.name] for column in MODEL_COLUMNS}
                extra |= resealed_vectors(cipher, changed.id, kept)
            sealed = sealed_content(cipher, changed)
            return await self._database.fetchrow(
                _UPDATE[space.slot, embedded],
                user_id=user_id,
                memory_id=changed.id,
                expected_version=changed.version - 1,
                **space_values(space),
                new_trust=changed.trust,
                new_updated_at=changed.updated_at,
                **{f"new_{name}": value for name, value in sealed.items()},
                **extra,
            )

        row = await write_sealed(self._keys, user_id, write)
        return None if row is None else Written(row["revision"], [changed.id], changed.updated_at)

    async def remove(self, user_id: UUID, ids: Sequence[UUID], now: datetime) -> Removed:
        """One statement."""
        return await self._removed(user_id, _REMOVE, ids=list(ids), now=now)

    async def remove_version(self, user_id: UUID, memory: Memory, now: datetime) -> Removed:
        """One statement."""
        return await self._removed(
            user_id, _REMOVE_VERSION, memory_id=memory.id, expected_version=memory.version, now=now
        )

    async def remove_matching(self, user_id: UUID, which: MemoryFilter, now: datetime) -> Removed:
        """One statement."""
        values = filter_values(await self._filtering(user_id, which), which)
        return await self._removed(user_id, removed_matching(*filter_shape(values, which)), now=now, **values)

    async def load(self, user_id: UUID, space: Space) -> AsyncIterator[MemoryBatch]:
        """By the index that has this order."""
        async for batch in self._opened(
            user_id,
            space,
            _LOAD[space.slot],
            lambda row: {"at": row["created_at"], "after": row["id"]},
            {"at": _BEFORE_ALL, "after": _FIRST},
        ):
            yield batch

    async def changes(self, user_id: UUID, space: Space, after: int) -> AsyncIterator[MemoryBatch]:
        """By revision, traces of deletions too."""
        statement = _CHANGES[space.slot]
        last = UUID(int=2**128 - 1)
        async for batch in self._opened(
            user_id,
            space,
            statement,
            lambda row: {"revision": row["revision"], "after": row["id"]},
            {"revision": after, "after": last},
        ):
            yield batch

    async def _filtering(self, user_id: UUID, which: MemoryFilter) -> UserCipher:
        if which.tags:
            return await newest_cipher(self._database, self._keys, user_id)
        return await self._keys.cipher(user_id)

    async def _removed(self, user_id: UUID, statement: Statement, **values: Any) -> Removed:
        rows = await self._database.fetch(statement, user_id=user_id, **values)
        return Removed(max((row["revision"] for row in rows), default=0), [row["id"] for row in rows])

    async def _opened(
        self,
        user_id: UUID,
        space: Space,
        statement: Statement,
        position: Callable[[Record], dict[str, Any]],
        start: dict[str, Any],
    ) -> AsyncIterator[MemoryBatch]:
        cipher = await self._keys.cipher(user_id)
        values = start
        while rows := await self._database.fetch(statement, user_id=user_id, **values):
            cipher = await cipher_for(self._keys, user_id, rows, cipher)
            yield await _opened_rows(cipher, rows, space.slot)
            if len(rows) < _BATCH:
                return
            values = position(rows[-1])


async def _opened_rows(cipher: UserCipher, rows: Sequence[Record], slot: int) -> MemoryBatch:
    """Off the event loop if there are many."""
    if len(rows) <= _FEW:
        return opened_batch(cipher, rows, slot)
    return await asyncio.to_thread(opened_batch, cipher, rows, slot)


def _answered(first: replays.Replay) -> Written:
    assert first.ordinal is not None
    at, *ids = first.answer
    return Written(
        first.ordinal, [UUID(memory_id) for memory_id in ids], datetime.fromisoformat(at), repeated=True
    )
