"""Scratchpads on Postgres."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, literal, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql import ColumnElement

from sage_server.adapters.postgres.database import Database, Statement
from sage_server.adapters.postgres.schema import IS_THREAD, cell, conversations, scratchpads
from sage_server.adapters.postgres.sealed_rows import cipher_for, seal_json, write_sealed
from sage_server.domain.errors import not_found
from sage_server.domain.scratchpads import Scratchpad
from sage_server.ports.keys import KeyRing, UserCipher

_ITEMS = cell(scratchpads.c.items_enc)
_c = conversations.c
_s = scratchpads.c
_THREAD = (_c.user_id == bindparam("user_id")) & (_c.id == bindparam("conversation_id"))
_KINDS = {False: IS_THREAD & _c.deleted_at.is_(None), True: ~IS_THREAD}
"""Threads of the user's, and agents' own."""
_GET = {
    own: Statement(
        select(_s.items_enc, _s.version, _s.updated_at, _s.key_version)
        .select_from(conversations.outerjoin(scratchpads, (_s.user_id == _c.user_id) & (_s.id == _c.id)))
        .where(_THREAD, kind)
    )
    for own, kind in _KINDS.items()
}
_sealed = {
    "items_enc": bindparam("items_enc", type_=_s.items_enc.type),
    "updated_at": bindparam("now", type_=_s.updated_at.type),
    "key_version": bindparam("key_version", type_=_s.key_version.type),
}


def _write(kind: ColumnElement[bool]) -> Statement:
    row = insert(scratchpads).from_select(
        ["user_id", "id", "version", *_sealed],
        # The lock keeps the thread from being removed before its notes are there.
        select(_c.user_id, _c.id, literal(1, _s.version.type), *_sealed.values())
        .where(_THREAD, kind)
        .with_for_update(read=True, key_share=True),
    )
    return Statement(
        row.on_conflict_do_update(
            index_elements=[_s.user_id, _s.id],
            set_={name: row.excluded[name] for name in _sealed} | {"version": _s.version + 1},
        ).returning(_s.version)
    )


_WRITE = {own: _write(kind) for own, kind in _KINDS.items()}
_REPLACE = Statement(
    update(scratchpads)
    .where(
        _s.user_id == bindparam("user_id"),
        _s.id == bindparam("conversation_id"),
        _s.version == bindparam("expected"),
    )
    .values(version=_s.version + 1, **_sealed)
    .returning(_s.version)
)


class PostgresScratchpadStore:
    """Implements ScratchpadStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def get(self, user_id: UUID, conversation_id: UUID, *, own: bool = False) -> Scratchpad:
        """By primary key, together with the thread."""
        before = await self._keys.cipher(user_id)
        row = await self._database.fetchrow(_GET[own], user_id=user_id, conversation_id=conversation_id)
        if row is None:
            raise not_found("conversation")
        if row["version"] is None:
            return Scratchpad(conversation_id)
        cipher = await cipher_for(self._keys, user_id, [row], before)
        items = json.loads(cipher.open(_ITEMS, conversation_id, row["items_enc"]))
        return Scratchpad(conversation_id, tuple(items), row["version"], row["updated_at"])

    async def write(
        self,
        user_id: UUID,
        conversation_id: UUID,
        items: Sequence[str],
        *,
        etag: str,
        now: datetime,
        own: bool = False,
    ) -> Scratchpad:
        """One statement; with an etag a read before it."""
        statement, values = _WRITE[own], {}
        if etag:
            current = await self.get(user_id, conversation_id, own=own)
            current.check_etag(etag)
            statement, values = _REPLACE, {"expected": current.version}
        version = await self._write(statement, user_id, conversation_id, items, now=now, **values)
        if version is None:
            # With an etag somebody was faster, and it is no longer current, or the thread is gone.
            current = await self.get(user_id, conversation_id, own=own)
            current.check_etag(etag)
            raise not_found("conversation")
        return Scratchpad(conversation_id, tuple(items), version, now)

    async def _write(
        self, statement: Statement, user_id: UUID, conversation_id: UUID, items: Sequence[str], **values: Any
    ) -> int | None:
        async def write(cipher: UserCipher) -> int | None:
            row = await self._database.fetchrow(
                statement,
                user_id=user_id,
                conversation_id=conversation_id,
                items_enc=seal_json(cipher, _ITEMS, conversation_id, list(items)),
                key_version=cipher.key_version,
                **values,
            )
            return None if row is None else int(row["version"])

        return await write_sealed(self._keys, user_id, write)
