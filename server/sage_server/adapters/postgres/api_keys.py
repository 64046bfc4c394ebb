"""Credentials of backend services."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import asyncpg
from sqlalchemy import bindparam, func, insert, or_, select, update

from sage_server.adapters.postgres import replays
from sage_server.adapters.postgres.database import Database, Record, Statement
from sage_server.adapters.postgres.schema import api_keys, cell, requests
from sage_server.adapters.postgres.sealed_rows import cipher_for, open_text, seal_text, write_sealed
from sage_server.domain.errors import not_found
from sage_server.domain.idempotency import Once
from sage_server.domain.identity import ApiKey, Role
from sage_server.domain.ids import INSTALLATION
from sage_server.domain.paging import Page
from sage_server.ports.keys import KeyRing, UserCipher

_a = api_keys.c
_NAME = cell(_a.name_enc)
_COLUMNS = [column for column in api_keys.c if column not in (_a.user_id, _a.secret_hash)]
_OURS = _a.user_id == INSTALLATION

_insert = insert(api_keys).values(
    {column.name: bindparam(column.name, type_=column.type) for column in api_keys.c}
)
_CREATE = Statement(_insert)
_CREATE_ONCE = Statement(insert(requests).values(replays.VALUES).add_cte(_insert.cte("created")))
_BY_HASH = Statement(select(*_COLUMNS).where(_a.secret_hash == bindparam("secret_hash")))
_GET = Statement(select(*_COLUMNS).where(_OURS, _a.id == bindparam("key_id")))
_LIST = {
    following: Statement(
        select(*_COLUMNS)
        .where(
            _OURS,
            _a.tenant == bindparam("tenant"),
            *([_a.id < bindparam("after")] if following else []),
        )
        .order_by(_a.id.desc())
        .limit(bindparam("limit"))
    )
    for following in (False, True)
}
_tenant = bindparam("tenant", type_=_a.tenant.type)
_REVOKE = Statement(
    update(api_keys)
    .where(
        _OURS,
        _a.id == bindparam("key_id"),
        _a.role <= bindparam("up_to"),
        or_(_tenant.is_(None), _a.tenant == _tenant),
    )
    .values(revoked_at=func.coalesce(_a.revoked_at, bindparam("now")))
    .returning(*_COLUMNS)
)


class PostgresApiKeyStore:
    """Implements ApiKeyStore."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def create(
        self, key: ApiKey, secret: str, secret_hash: bytes, once: Once | None
    ) -> tuple[ApiKey, str]:
        """One statement, with the kept answer in it if there is a request id."""

        async def write(cipher: UserCipher) -> None:
            row = {
                "user_id": INSTALLATION,
                "id": key.id,
                "tenant": key.tenant,
                "name_enc": seal_text(cipher, _NAME, key.id, key.name),
                "role": key.role,
                "prefix": key.prefix,
                "secret_hash": secret_hash,
                "created_at": key.created_at,
                "expires_at": key.expires_at,
                "revoked_at": None,
                "key_version": cipher.key_version,
            }
            if once is None:
                await self._database.execute(_CREATE, **row)
                return
            answer = {"id": str(key.id), "secret": secret}
            kept = replays.values(cipher, INSTALLATION, once, answer, key.created_at)
            await self._database.execute(_CREATE_ONCE, **row | kept)

        try:
            await write_sealed(self._keys, INSTALLATION, write)
        except asyncpg.UniqueViolationError as error:
            if once is None or not replays.is_repeat(error):
                raise
            first = await replays.replayed(self._database, self._keys, INSTALLATION, once)
            return await self._get(UUID(first.answer["id"])), first.answer["secret"]
        return key, secret

    async def by_hash(self, secret_hash: bytes) -> ApiKey | None:
        """By the unique index; the name stays sealed, since nobody asked for it."""
        row = await self._database.fetchrow(_BY_HASH, secret_hash=secret_hash)
        return None if row is None else _key(row, "")

    async def list(self, tenant: str, size: int, after: UUID | None) -> Page[ApiKey, UUID]:
        """By the index on tenant and id."""
        cursor = {} if after is None else {"after": after}
        rows = await self._database.fetch(_LIST[after is not None], tenant=tenant, limit=size + 1, **cursor)
        cipher = await cipher_for(self._keys, INSTALLATION, rows)
        page = [_opened(cipher, row) for row in rows[:size]]
        return Page(page, page[-1].id if len(rows) > size else None)

    async def revoke(self, key_id: UUID, tenant: str | None, up_to: Role, now: datetime) -> ApiKey:
        """Keeps the time of the first revocation."""
        row = await self._database.fetchrow(_REVOKE, key_id=key_id, tenant=tenant, up_to=up_to, now=now)
        if row is None:
            raise not_found("API key")
        return _opened(await cipher_for(self._keys, INSTALLATION, [row]), row)

    async def _get(self, key_id: UUID) -> ApiKey:
        row = await self._database.fetchrow(_GET, key_id=key_id)
        if row is None:
            raise not_found("API key")
        return _opened(await cipher_for(self._keys, INSTALLATION, [row]), row)


def _opened(cipher: UserCipher, row: Record) -> ApiKey:
    return _key(row, open_text(cipher, _NAME, row["id"], row["name_enc"]))


def _key(row: Record, name: str) -> ApiKey:
    return ApiKey(
        id=row["id"],
        tenant=row["tenant"],
        name=name,
        role=Role(row["role"]),
        prefix=row["prefix"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )
