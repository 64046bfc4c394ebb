"""New keys for old."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from sage_server.domain.errors import not_found, user_erased
from sage_server.engine.replicas import Replicas
from sage_server.ports.keys import KeyRing, KeyStore, NewKey, Rewrap, RootKeys
from sage_server.ports.stores import RotationStore, UserStore

_BATCH = 200


class KeyRotation:
    """Rotates users' keys and the root key. Everything can be repeated, and runs beside writers."""

    def __init__(
        self,
        *,
        users: UserStore,
        keys: KeyRing,
        key_store: KeyStore,
        root_keys: RootKeys,
        new_key: NewKey,
        rewrap: Rewrap,
        rotations: RotationStore,
        replicas: Replicas,
    ) -> None:
        self._users = users
        self._keys = keys
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
        """Go on with rotations that are not complete; answers with how many are left."""
        users = await self._rotations.pending(_BATCH)
        return sum([not await self.reseal(user_id) for user_id in users])

    async def rotate_root(self, progress: Callable[[int], None] = lambda _: None) -> tuple[str, int]:
        """Make a new root key current and wrap every user key with it; answers with its id and how many."""
        await self._root_keys.rotate()
        rewrapped = 0
        # Asked anew each time: two rotations at once must agree on the newest key, not undo each other.
        while batch := await self._key_store.not_wrapped_by(self._root_keys.current_id, _BATCH):
            for user_id, old in batch:
                new = await self._rewrap(user_id, old)
                # Somebody else rewrapped it, or the user was erased: either way it is done.
                rewrapped += await self._key_store.rewrap(user_id, old, new)
            progress(rewrapped)
        return self._root_keys.current_id, rewrapped
