"""New keys for old."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from sage_server.domain.errors import SageError, not_found, user_erased
from sage_server.engine.replicas import Replicas
from sage_server.ports.keys import KeyStore, NewKey, Rewrap, RootKeyError, RootKeys, WrappedKey
from sage_server.ports.stores import RotationStore, UserStore

_BATCH = 200
_FIRST = (UUID(int=0), 0)
_log = logging.getLogger("sage.keys")


class KeyRotation:
    """Rotates users' keys and the root key. Everything can be repeated, and runs beside writers."""

    def __init__(
        self,
        *,
        users: UserStore,
        key_store: KeyStore,
        root_keys: RootKeys,
        new_key: NewKey,
        rewrap: Rewrap,
        rotations: RotationStore,
        replicas: Replicas,
    ) -> None:
        self._users = users
        self._key_store = key_store
        self._root_keys = root_keys
        self._new_key = new_key
        self._rewrap = rewrap
        self._rotations = rotations
        self._replicas = replicas

    async def rotate_user(self, tenant: str, external_id: str) -> tuple[UUID, int]:
        """Give the user a new key, which every replica uses from now on; answers with its version.

        Rows sealed with older keys stay readable, and `reseal` seals them again.
        """
        user = await self._users.find(tenant, external_id)
        if user is None:
            raise not_found("user")
        while True:
            versions = [key.version for key in await self._key_store.load(user.id)]
            if not versions:
                raise user_erased()
            version = versions[-1] + 1
            if await self._key_store.add(user.id, await self._new_key(user.id, version)):
                break
        await self._replicas.forget_everywhere(user.id)
        return user.id, version

    async def reseal(self, user_id: UUID, progress: Callable[[int], None] = lambda _: None) -> bool:
        """Seal the user's rows with the current key and drop the older ones; True when none is left.

        A writer elsewhere that still holds the older key may add a row behind our back. The foreign key
        then keeps that version, and the next round catches the row.
        """
        done = 0
        while batch := await self._rotations.reseal(user_id, _BATCH):
            done += batch
            progress(done)
        return await self._rotations.drop_unused(user_id) == 0

    async def reseal_pending(self) -> int:
        """Go on with rotations that are not complete; answers with how many are left.

        A user whose rows cannot be read does not keep the others waiting.
        """
        left = 0
        for user_id in await self._rotations.pending(_BATCH):
            try:
                left += not await self.reseal(user_id)
            except SageError as error:
                left += 1
                _log.warning("a user's rows were not sealed again: %s", error, extra={"user": user_id})
        return left

    async def rotate_root(self, progress: Callable[[int], None] = lambda _: None) -> tuple[str, int]:
        """Make a new root key current and wrap every user key with it; answers with its id and how many.

        A key that does not open stays as it is, and is named in the log.
        """
        await self._root_keys.rotate()
        rewrapped = 0
        after = _FIRST
        # The current key is asked for anew each time: two rotations at once must agree on the newest.
        while batch := await self._key_store.not_wrapped_by(self._root_keys.current_id, after, _BATCH):
            for user_id, old in batch:
                rewrapped += await self._wrap_again(user_id, old)
            after = (batch[-1][0], batch[-1][1].version)
            progress(rewrapped)
        return self._root_keys.current_id, rewrapped

    async def _wrap_again(self, user_id: UUID, old: WrappedKey) -> bool:
        try:
            new = await self._rewrap(user_id, old)
        except RootKeyError as error:
            _log.error("a key was not wrapped again: %s", error, extra={"user": user_id})
            return False
        # If somebody else was faster, or the user was erased, there is nothing left to do.
        return await self._key_store.rewrap(user_id, old, new)
