"""Memory tokens: a state of one user's memory, sealed for that user.

They are sealed with the installation's key, so that a rotation of the user's key leaves them valid.
"""

from __future__ import annotations

import base64
import binascii
import struct
from uuid import UUID

from sage_server.domain.ids import INSTALLATION
from sage_server.domain.memories import memory_token_invalid
from sage_server.ports.keys import Cell, KeyRing, Purpose

_CELL = Cell("tokens", "memory", Purpose.PAGE)
_REVISION = struct.Struct(">q")


class MemoryTokens:
    """Turns revisions into opaque tokens and back."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    async def write(self, user_id: UUID, revision: int) -> str:
        """A token that stands for a revision."""
        cipher = await self._keys.cipher(INSTALLATION)
        sealed = cipher.seal(_CELL, user_id, _REVISION.pack(revision))
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    async def read(self, user_id: UUID, token: str) -> int:
        """The revision of a token. Raises MEMORY_TOKEN_INVALID unless it is this user's."""
        try:
            sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise memory_token_invalid() from None
        opened = (await self._keys.cipher(INSTALLATION)).try_open(_CELL, user_id, sealed)
        if opened is None:
            raise memory_token_invalid()
        return int(_REVISION.unpack(opened)[0])
