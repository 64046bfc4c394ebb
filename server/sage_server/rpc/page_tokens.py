"""Page tokens: sealed for one user, one call and its parameters, so that any other use fails."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.paging import TimeCursor
from sage_server.ports.keys import Cell, KeyRing, Purpose

T = TypeVar("T")
_SEQ = struct.Struct(">q")
_TIME = struct.Struct(">q16s")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PageTokens:
    """Turns positions in a list into opaque tokens and back."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    async def read(self, owner: UUID, request: Any, decode: Callable[[bytes], T]) -> T | None:
        """The position of the request's token; None without one. Raises INVALID_PAGE_TOKEN."""
        if not request.page_token:
            return None
        cell, parameters = _place(request)
        cipher = await self._keys.cipher(owner)
        opened = cipher.try_open(cell, parameters, _decoded(request.page_token))
        if opened is None:
            raise SageError(
                Reason.INVALID_PAGE_TOKEN,
                "The page token does not belong to this call and these parameters.",
                metadata={"method": cell.column},
            )
        return decode(opened)

    async def write(self, owner: UUID, request: Any, position: bytes | None) -> str:
        """A token for the page after this one; empty on the last page."""
        if position is None:
            return ""
        cell, parameters = _place(request)
        cipher = await self._keys.cipher(owner)
        return base64.urlsafe_b64encode(cipher.seal(cell, parameters, position)).decode().rstrip("=")


def encode_seq(seq: int | None) -> bytes | None:
    """A position in a conversation."""
    return None if seq is None else _SEQ.pack(seq)


def decode_seq(position: bytes) -> int:
    """Reads `encode_seq`."""
    return int(_SEQ.unpack(position)[0])


def encode_time(cursor: TimeCursor | None) -> bytes | None:
    """A position in an order by time."""
    if cursor is None:
        return None
    return _TIME.pack((cursor.at - _EPOCH) // timedelta(microseconds=1), cursor.id.bytes)


def decode_time(position: bytes) -> TimeCursor:
    """Reads `encode_time`."""
    micros, row_id = _TIME.unpack(position)
    return TimeCursor(_EPOCH + timedelta(microseconds=micros), UUID(bytes=row_id))


def encode_id(row_id: UUID | None) -> bytes | None:
    """A position in an order by id."""
    return None if row_id is None else row_id.bytes


def decode_id(position: bytes) -> UUID:
    """Reads `encode_id`."""
    return UUID(bytes=position)


def _place(request: Any) -> tuple[Cell, UUID]:
    """The call and its parameters; the size of a page may change on the way."""
    method = request.DESCRIPTOR.name.removesuffix("Request")
    parameters = type(request)()
    parameters.CopyFrom(request)
    parameters.ClearField("page_token")
    parameters.ClearField("page_size")
    digest = hashlib.sha256(parameters.SerializeToString(deterministic=True)).digest()
    return _cell(method), UUID(bytes=digest[:16])


@cache
def _cell(method: str) -> Cell:
    return Cell("page_tokens", method, Purpose.PAGE)


def _decoded(token: str) -> bytes:
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
