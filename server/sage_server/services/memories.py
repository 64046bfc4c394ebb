"""Archival memories, and deleting those of any source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sage_server.domain.conversations import CLOCK_TOLERANCE
from sage_server.domain.errors import SageError, at_index, invalid
from sage_server.domain.idempotency import Once
from sage_server.domain.ids import new_id
from sage_server.domain.memories import (
    Memory,
    MemoryChange,
    MemoryFilter,
    MemorySource,
    MemoryTrust,
    memory_read_only,
)
from sage_server.domain.paging import Page, TimeCursor
from sage_server.engine.given_vectors import check_model, checked, checked_one
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.ports.clock import Clock
from sage_server.ports.memories import MemoryStore, NewMemory, Removed, Space, Vector


@dataclass(frozen=True)
class ArchivalDraft:
    """A memory as a caller gives it."""

    text: str
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None
    agent_id: UUID | None = None
    created_at: datetime | None = None
    trust: MemoryTrust = MemoryTrust.USER
    vector: Vector | None = None
    model: str = ""
    """Of the vector, if the caller says."""


class Memories:
    """What a caller can do with memories, but for searching them."""

    def __init__(self, store: MemoryStore, writer: MemoryWriter, clock: Clock) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock

    async def insert(self, user_id: UUID, draft: ArchivalDraft, once: Once | None) -> tuple[Memory, int]:
        """Store one; answers with it and the revision."""
        now = self._clock.now()
        _check_time(draft, now)
        vectors, checked_for = await self._vectors(user_id, [draft], batch=False)
        memory = _memory(draft, now)
        written = await self._writer.insert(
            user_id, [memory], vectors, once=once, now=now, checked_for=checked_for
        )
        space = await self._writer.space(user_id)
        stored = memory._replace(
            id=written.ids[0],
            created_at=draft.created_at or written.at,
            updated_at=written.at,
            embedding_model=space.model if draft.vector is not None else self._writer.model_of(space),
        )
        return stored, written.revision

    async def insert_many(
        self, user_id: UUID, drafts: Sequence[ArchivalDraft], once: Once | None
    ) -> tuple[Sequence[UUID], int]:
        """Store several, all or none; answers with their ids and the revision."""
        now = self._clock.now()
        for index, draft in enumerate(drafts):
            try:
                _check_time(draft, now)
            except SageError as error:
                raise at_index(error, index) from None
        vectors, checked_for = await self._vectors(user_id, drafts, batch=True)
        memories = [_memory(draft, now) for draft in drafts]
        written = await self._writer.insert(
            user_id, memories, vectors, once=once, now=now, checked_for=checked_for
        )
        return written.ids, written.revision

    async def get(self, user_id: UUID, memory_id: UUID) -> Memory:
        """One memory of any source."""
        return await self._store.get(user_id, memory_id)

    async def list(
        self, user_id: UUID, which: MemoryFilter, size: int, after: TimeCursor | None
    ) -> Page[Memory, TimeCursor]:
        """A page, the newest first."""
        return await self._store.list(user_id, which, size, after)

    async def update(
        self,
        user_id: UUID,
        memory_id: UUID,
        change: MemoryChange,
        given: tuple[Vector | None, str],
        etag: str,
    ) -> tuple[Memory, int]:
        """Change what `change` names; a new text gets a new vector, the one `given` if there is one."""
        while True:
            current = await self._store.get(user_id, memory_id)
            current.check_etag(etag)
            if current.source is not MemorySource.ARCHIVAL:
                raise memory_read_only(current.source)
            space = await self._writer.space(user_id)
            vector, model = await self._vector_of(user_id, change, given, space)
            changed = _changed(current, change, self._clock.now())
            embedded = change.text is not None
            if embedded:
                changed = changed._replace(embedding_model=model)
            written = await self._store.update(user_id, changed, vector, space, embedded=embedded)
            if written is not None:
                if embedded:
                    new = NewMemory(changed, vector)
                    await self._writer.index(user_id, written.revision, [new], space)
                else:
                    await self._writer.refresh(user_id)
                return changed, written.revision
            # Another version by now, which the etag decides about, or another model.
            await self._writer.refresh(user_id)

    async def delete(self, user_id: UUID, memory_id: UUID, etag: str) -> Removed:
        """One memory, for good."""
        while True:
            current = await self._store.get(user_id, memory_id)
            current.check_etag(etag)
            removed = await self._store.remove_version(user_id, current, self._clock.now())
            if removed.ids:
                await self._writer.removed(user_id, removed)
                return removed

    async def delete_ids(self, user_id: UUID, ids: Sequence[UUID]) -> tuple[Removed, Sequence[UUID]]:
        """Several; answers also with the ids that named none."""
        wanted = list(dict.fromkeys(ids))
        removed = await self._store.remove(user_id, wanted, self._clock.now())
        await self._writer.removed(user_id, removed)
        gone = set(removed.ids)
        return await self._named(user_id, removed), [one for one in wanted if one not in gone]

    async def delete_matching(self, user_id: UUID, which: MemoryFilter) -> Removed:
        """All that match."""
        removed = await self._store.remove_matching(user_id, which, self._clock.now())
        await self._writer.removed(user_id, removed)
        return await self._named(user_id, removed)

    async def _named(self, user_id: UUID, removed: Removed) -> Removed:
        """With a revision also when nothing was removed: what is there now has none of it."""
        if removed.revision:
            return removed
        return Removed((await self._store.head(user_id)).revision, ())

    async def _vectors(
        self, user_id: UUID, drafts: Sequence[ArchivalDraft], *, batch: bool
    ) -> tuple[Sequence[Vector | None], Space | None]:
        """The vectors that the drafts bring, and the space that they were checked for, if they bring any."""
        given = [(at, draft.vector) for at, draft in enumerate(drafts) if draft.vector is not None]
        if not given:
            return [None] * len(drafts), None
        space = await self._writer.space(user_id)
        for at, _ in given:
            try:
                check_model(drafts[at].model, space)
            except SageError as error:
                raise (at_index(error, at) if batch else error) from None
        unit = checked([vector for _, vector in given], space, [at for at, _ in given] if batch else None)
        by_place = {at: vector for (at, _), vector in zip(given, unit, strict=True)}
        return [by_place.get(at) for at in range(len(drafts))], space

    async def _vector_of(
        self, user_id: UUID, change: MemoryChange, given: tuple[Vector | None, str], space: Space
    ) -> tuple[Vector | None, str]:
        """The vector of a new text and its model, which is empty if it must wait for one."""
        vector, model = given
        if change.text is None:
            return None, ""
        if vector is not None:
            check_model(model, space)
            return checked_one(vector, space), space.model
        made = await self._writer.embed(user_id, [change.text], space)
        return (None, "") if made is None else (made[0], space.model)


def _memory(draft: ArchivalDraft, now: datetime) -> Memory:
    return Memory(
        id=new_id(now),
        source=MemorySource.ARCHIVAL,
        text=draft.text,
        created_at=draft.created_at or now,
        updated_at=now,
        tags=draft.tags,
        metadata=draft.metadata or {},
        agent_id=draft.agent_id,
        trust=draft.trust,
    )


def _changed(current: Memory, change: MemoryChange, now: datetime) -> Memory:
    return current._replace(
        text=current.text if change.text is None else change.text,
        tags=current.tags if change.tags is None else change.tags,
        metadata=current.metadata if change.metadata is None else change.metadata,
        trust=current.trust if change.trust is None else change.trust,
        updated_at=now,
        version=current.version + 1,
    )


def _check_time(draft: ArchivalDraft, now: datetime) -> None:
    if draft.created_at is not None and draft.created_at > now + CLOCK_TOLERANCE:
        raise invalid("create_time", "must not be more than one day in the future")
