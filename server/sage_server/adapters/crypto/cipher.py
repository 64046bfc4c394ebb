"""The one door between plaintext and ciphertext.

    cell = format(1) | key_version(4) | nonce(12) | ciphertext | tag(16)
    AAD  = length-prefixed(table, column, user id, format and key version, row id)

The associated data ties a cell to its place: moved to another table, column, row or user it does not open.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import struct
from collections.abc import Mapping
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sage_server.domain.errors import SageError, data_loss
from sage_server.domain.labels import normalise_label
from sage_server.ports.keys import Cell, Purpose

FORMAT = 1
_HEADER = struct.Struct(">BI")
_NONCE = 12
_TAG = 16
_PREFIX = _HEADER.size + _NONCE
_log = logging.getLogger("sage.crypto")


class AesUserCipher:
    """AES-256-GCM for cells, AES-SIV for labels, HMAC-SHA256 for digests, from one user's keys."""

    def __init__(self, user_id: UUID, keys: Mapping[int, bytes]) -> None:
        self._user_id = user_id
        self._keys = dict(keys)
        self._version = max(self._keys)
        self._gcm: dict[tuple[Purpose, int], AESGCM] = {}
        self._siv: dict[int, AESSIV] = {}
        self._places: dict[tuple[Cell, int], tuple[AESGCM, bytes]] = {}
        self._openers: dict[tuple[Cell, bytes], tuple[AESGCM, bytes]] = {}
        self._digest_key = self._derive(Purpose.DIGEST, self._version, 32)

    @property
    def key_version(self) -> int:
        """The version that new cells use."""
        return self._version

    def seal(self, cell: Cell, row_id: UUID, plaintext: bytes) -> bytes:
        """Encrypt a value for one place."""
        version = self._version
        nonce = os.urandom(_NONCE)
        aead, associated = self._places.get((cell, version)) or self._place(cell, version)
        sealed = aead.encrypt(nonce, plaintext, associated + row_id.bytes)
        return _HEADER.pack(FORMAT, version) + nonce + sealed

    def open(self, cell: Cell, row_id: UUID, ciphertext: bytes) -> bytes:
        """Decrypt a value, or raise DATA_LOSS."""
        opened = self.try_open(cell, row_id, ciphertext)
        if opened is None:
            raise self._lost(cell, row_id)
        return opened

    def try_open(self, cell: Cell, row_id: UUID, ciphertext: bytes) -> bytes | None:
        """Decrypt a value that may be anything."""
        place = self._openers.get((cell, ciphertext[: _HEADER.size]))
        if place is None:
            version = self._version_of(ciphertext, _PREFIX + _TAG)
            if version is None:
                return None
            place = self._places.get((cell, version)) or self._place(cell, version)
            self._openers[cell, ciphertext[: _HEADER.size]] = place
        aead, associated = place
        try:
            return aead.decrypt(
                ciphertext[_HEADER.size : _PREFIX], ciphertext[_PREFIX:], associated + row_id.bytes
            )
        except (InvalidTag, ValueError):  # ValueError: too short even for a nonce
            return None

    def tag(self, cell: Cell, text: str) -> bytes:
        """Encrypt a label so that equal labels give equal bytes."""
        return self._tag(cell, text, self._version)

    def tag_forms(self, cell: Cell, text: str) -> tuple[bytes, ...]:
        """The label as every key version seals it."""
        return tuple(self._tag(cell, text, version) for version in self._keys)

    def open_tag(self, cell: Cell, ciphertext: bytes) -> str:
        """The label that `tag` sealed."""
        version = self._version_of(ciphertext, _HEADER.size + _TAG)
        if version is None:
            raise self._lost(cell, None)
        try:
            label = self._labels(version).decrypt(
                ciphertext[_HEADER.size :], [self._associated(cell, version)]
            )
        except InvalidTag:
            raise self._lost(cell, None) from None
        return label.decode()

    def digest(self, data: bytes) -> bytes:
        """A digest that only this user's key can make."""
        return hmac.digest(self._digest_key, data, hashlib.sha256)

    def _tag(self, cell: Cell, text: str, version: int) -> bytes:
        label = normalise_label(text).encode()
        sealed = self._labels(version).encrypt(label, [self._associated(cell, version)])
        return _HEADER.pack(FORMAT, version) + sealed

    def _version_of(self, ciphertext: bytes, shortest: int) -> int | None:
        """The key version of something sealed; None if it is nothing that these keys could open."""
        if len(ciphertext) < shortest:
            return None
        form, version = _HEADER.unpack_from(ciphertext)
        return version if form == FORMAT and version in self._keys else None

    def _place(self, cell: Cell, version: int) -> tuple[AESGCM, bytes]:
        """What a place is sealed with, kept for the next time."""
        aead = self._gcm.get((cell.purpose, version))
        if aead is None:
            aead = self._gcm[cell.purpose, version] = AESGCM(self._derive(cell.purpose, version, 32))
        place = self._places[cell, version] = (aead, self._associated(cell, version))
        return place

    def _labels(self, version: int) -> AESSIV:
        found = self._siv.get(version)
        if found is None:
            found = self._siv[version] = AESSIV(self._derive(Purpose.TAGS, version, 64))
        return found

    def _derive(self, purpose: Purpose, version: int, length: int) -> bytes:
        info = f"sage/v1/{purpose.value}/{version}".encode()
        return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(self._keys[version])

    def _associated(self, cell: Cell, version: int) -> bytes:
        """The associated data up to the row id, whose length is fixed and comes last."""
        header = _HEADER.pack(FORMAT, version)
        parts = (cell.table.encode(), cell.column.encode(), self._user_id.bytes, header)
        return b"".join(len(part).to_bytes(2) + part for part in parts) + (16).to_bytes(2)

    def _lost(self, cell: Cell, row_id: UUID | None) -> SageError:
        _log.error(
            "a cell does not open",
            extra={"table": cell.table, "column": cell.column, "user": self._user_id, "row": row_id},
        )
        return data_loss(cell.table, cell.column)
