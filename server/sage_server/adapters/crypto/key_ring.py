"""Users' keys, unwrapped and cached."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from uuid import UUID

from sage_server.adapters.crypto.cipher import AesUserCipher
from sage_server.domain.errors import data_loss, user_erased
from sage_server.ports.keys import KeyStore, RootKeyError, RootKeys, WrappedKey

USER_KEY_BYTES = 32
_log = logging.getLogger("sage.keys")


class CachedKeyRing:
    """Loads keys on demand and holds the unwrapped keys of at most `capacity` users."""

    def __init__(self, store: KeyStore, wrapping: KeyWrapping, capacity: int) -> None:
        self._store = store
        self._wrapping = wrapping
        self._capacity = capacity
        self._ciphers: OrderedDict[UUID, AesUserCipher] = OrderedDict()
        self._generation = 0

    async def cipher(self, user_id: UUID, *, at_least: int = 0) -> AesUserCipher:
        """The user's cipher, loaded if it is not cached or does not know a version that a row uses."""
        found = self._ciphers.get(user_id)
        if found is not None and found.key_version >= at_least:
            self._ciphers.move_to_end(user_id)
            return found
        return await self._load(user_id)

    def forget(self, user_id: UUID) -> None:
        """Drop the user's keys."""
        self._generation += 1
        self._ciphers.pop(user_id, None)

    def forget_all(self) -> None:
        """Drop every key."""
        self._generation += 1
        self._ciphers.clear()

    async def _load(self, user_id: UUID) -> AesUserCipher:
        generation = self._generation
        try:
            keys = {
                key.version: await self._wrapping.unwrap(user_id, key)
                for key in await self._store.load(user_id)
            }
        except RootKeyError as error:
            _log.error("a user's key does not open: %s", error, extra={"user": user_id})
            raise data_loss("user_keys", "wrapped_key") from error
        if not keys:
            raise user_erased()
        cipher = AesUserCipher(user_id, keys)
        # What was read before somebody said "forget" must not come back into the cache.
        if generation == self._generation:
            self._ciphers[user_id] = cipher
            while len(self._ciphers) > self._capacity:
                self._ciphers.popitem(last=False)
        return cipher


class KeyWrapping:
    """Makes users' keys and wraps them."""

    def __init__(self, root_keys: RootKeys) -> None:
        self._root_keys = root_keys

    async def new_key(self, user_id: UUID, version: int) -> WrappedKey:
        """A fresh random key for a user, wrapped."""
        return await self._wrap(user_id, version, os.urandom(USER_KEY_BYTES))

    async def unwrap(self, user_id: UUID, key: WrappedKey) -> bytes:
        """The key itself. Raises RootKeyError."""
        context = wrapping_context(user_id, key.version)
        return await self._root_keys.unwrap(key.root_key_id, key.wrapped, context)

    async def rewrap(self, user_id: UUID, key: WrappedKey) -> WrappedKey:
        """The same key, wrapped by the current root key."""
        return await self._wrap(user_id, key.version, await self.unwrap(user_id, key))

    async def _wrap(self, user_id: UUID, version: int, key: bytes) -> WrappedKey:
        root_key_id, wrapped = await self._root_keys.wrap(key, wrapping_context(user_id, version))
        return WrappedKey(version, root_key_id, wrapped)


def wrapping_context(user_id: UUID, version: int) -> bytes:
    """Ties a wrapped key to its user and version, so that rows of `user_keys` cannot be swapped."""
    return b"sage/v1/user-key/" + user_id.bytes + version.to_bytes(4)
