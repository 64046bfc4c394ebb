"""Answers of creations that carried a request id, kept sealed for a day."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import bindparam, insert, select

from sage_server.adapters.postgres.database import Database, Statement
from sage_server.adapters.postgres.schema import cell, requests
from sage_server.adapters.postgres.sealed_rows import cipher_for, seal_json
from sage_server.domain.errors import database_unavailable
from sage_server.domain.idempotency import REPLAY_WINDOW, Once, request_id_reused
from sage_server.ports.keys import KeyRing, UserCipher

_RESPONSE = cell(requests.c.response_enc)
FIND = Statement(
    select(requests.c.response_enc, requests.c.ordinal, requests.c.key_version).where(
        requests.c.user_id == bindparam("user_id"), requests.c.id == bindparam("request_id")
    )
)
VALUES = {
    "user_id": bindparam("user_id", type_=requests.c.user_id.type),
    "id": bindparam("request_id", type_=requests.c.id.type),
    "response_enc": bindparam("response_enc", type_=requests.c.response_enc.type),
    "expires_at": bindparam("request_expires_at", type_=requests.c.expires_at.type),
    "key_version": bindparam("key_version", type_=requests.c.key_version.type),
}
"""The columns of a kept answer, for statements that store it together with what was created."""

INSERT = Statement(insert(requests).values(VALUES))


@dataclass(frozen=True)
class Replay:
    """A kept answer."""

    answer: Any
    ordinal: int | None


def values(cipher: UserCipher, user_id: UUID, once: Once, answer: object, now: datetime) -> dict[str, Any]:
    """The parameters of `VALUES` for an answer, which must be JSON.

    The digest is sealed with the answer: on its own it would let a reader of the database test guesses of
    what a person wrote.
    """
    kept = {"digest": once.digest.hex(), "answer": answer}
    return {
        "user_id": user_id,
        "request_id": once.request_id,
        "response_enc": seal_json(cipher, _RESPONSE, once.request_id, kept),
        "request_expires_at": now + REPLAY_WINDOW,
        "key_version": cipher.key_version,
    }


def is_repeat(error: asyncpg.UniqueViolationError) -> bool:
    """Whether a statement failed because its request id is known."""
    return error.constraint_name == "pk_requests"


async def find(database: Database, keys: KeyRing, user_id: UUID, once: Once | None) -> Replay | None:
    """The answer that a request id got before; raises REQUEST_ID_REUSED if it was another request."""
    if once is None:
        return None
    before = await keys.cipher(user_id)
    row = await database.fetchrow(FIND, user_id=user_id, request_id=once.request_id)
    if row is None:
        return None
    cipher = await cipher_for(keys, user_id, [row], before)
    kept = json.loads(cipher.open(_RESPONSE, once.request_id, row["response_enc"]))
    if not hmac.compare_digest(kept["digest"], once.digest.hex()):
        raise request_id_reused()
    return Replay(kept["answer"], row["ordinal"])


async def replayed(database: Database, keys: KeyRing, user_id: UUID, once: Once) -> Replay:
    """The answer of a request id that a statement has just found to be known."""
    found = await find(database, keys, user_id, once)
    if found is None:  # it expired a moment ago: a repeat creates anew
        raise database_unavailable()
    return found
