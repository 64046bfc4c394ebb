"""Root keys from a file or from the environment."""

from __future__ import annotations

import asyncio
import base64
import binascii
import fcntl
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sage_server.ports.keys import RootKeyError

_KEY_BYTES = 32
_NONCE = 12


class _HeldRootKeys:
    """Root keys that this process holds itself."""

    def __init__(self, keys: Mapping[str, bytes], current_id: str) -> None:
        self._keys = dict(keys)
        self._current_id = current_id

    @property
    def current_id(self) -> str:
        """The id of the key that wraps."""
        return self._current_id

    async def wrap(self, key: bytes, context: bytes) -> tuple[str, bytes]:
        """Wrap with AES-256-GCM, the context as associated data."""
        nonce = os.urandom(_NONCE)
        root = AESGCM(self._keys[self._current_id])
        return self._current_id, nonce + root.encrypt(nonce, key, _bound(self._current_id, context))

    async def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Unwrap, or raise RootKeyError."""
        root = self._keys.get(key_id)
        if root is None:
            raise RootKeyError(f"Root key {key_id} is not among the root keys of this server.")
        try:
            return AESGCM(root).decrypt(wrapped[:_NONCE], wrapped[_NONCE:], _bound(key_id, context))
        except (InvalidTag, ValueError):
            raise RootKeyError(f"A user key that root key {key_id} should open does not open.") from None


class EnvironmentRootKeys(_HeldRootKeys):
    """Root keys that the operator gives in settings: the current one and, for rotation, earlier ones."""

    def __init__(self, current: str, previous: Sequence[str] = ()) -> None:
        parsed = [_parse(text, "SAGE_ROOT_KEY") for text in (current, *previous)]
        super().__init__(dict(parsed), parsed[0][0])

    async def rotate(self) -> str:
        """The operator has changed the setting; the current key is the new one."""
        return self._current_id


class FileRootKeys(_HeldRootKeys):
    """Root keys in a file that only its owner may read, one `id base64` a line, the current one last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed_at = path.stat().st_mtime_ns if path.exists() else 0
        keys = _read(path)
        super().__init__(keys, list(keys)[-1])

    @classmethod
    def open_or_create(cls, path: Path) -> FileRootKeys:
        """The keys in the file; a missing file is made with one new key.

        Two servers that start at the same time end up with the same file.
        """
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path, _line(*_new_key()))
        return cls(path)

    @property
    def current_id(self) -> str:
        """The id of the newest key, also if another process has just added it."""
        self._catch_up()
        return self._current_id

    async def wrap(self, key: bytes, context: bytes) -> tuple[str, bytes]:
        """Wrap with the newest key."""
        await asyncio.to_thread(self._catch_up)
        return await super().wrap(key, context)

    async def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Unwrap; a key that another process added to the file in the meantime is read first."""
        if key_id not in self._keys:
            await asyncio.to_thread(self._catch_up)
        return await super().unwrap(key_id, wrapped, context)

    async def rotate(self) -> str:
        """Add a new key to the file, on disk before anything is wrapped with it."""
        await asyncio.to_thread(_add_key, self._path)
        await asyncio.to_thread(self._catch_up)
        return self._current_id

    def _catch_up(self) -> None:
        """Read the file again if it has changed."""
        changed_at = self._path.stat().st_mtime_ns if self._path.exists() else 0
        if changed_at != self._changed_at:
            self._keys = _read(self._path)
            self._current_id = list(self._keys)[-1]
            self._changed_at = changed_at


def _bound(key_id: str, context: bytes) -> bytes:
    return len(key_id).to_bytes(2) + key_id.encode() + context


def _new_key() -> tuple[str, bytes]:
    return f"root-{secrets.token_hex(4)}", os.urandom(_KEY_BYTES)


def _line(key_id: str, key: bytes) -> str:
    return f"{key_id} {base64.b64encode(key).decode()}\n"


def _parse(text: str, where: str) -> tuple[str, bytes]:
    """`id base64` or `id:base64`."""
    key_id, _, encoded = text.strip().replace(":", " ", 1).partition(" ")
    try:
        key = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        key = b""
    if not key_id or len(key) != _KEY_BYTES:
        raise RootKeyError(
            f"{where}: expected an id and 32 bytes in base64, such as `k1:{'A' * 43}=`. "
            "`sage-server keys new-root-key` prints a fresh one."
        )
    return key_id, key


def _read(path: Path) -> dict[str, bytes]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise RootKeyError(
                f"{path} may be read by others (mode {mode:04o}). Make it private: chmod 600 {path}"
            )
        lines = [line for line in path.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise RootKeyError(f"{path} cannot be read: {error.strerror}.") from error
    if not lines:
        raise RootKeyError(f"{path} holds no key. Restore it from a backup, or remove it to start afresh.")
    return dict(_parse(line, str(path)) for line in lines)


def _create(path: Path, content: str) -> None:
    """Make the file with its whole content at once, unless somebody else just did."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    _write_private(temporary, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
    _sync_folder(path.parent)


def _add_key(path: Path) -> None:
    """Add a key at the end. The lock keeps two processes from losing each other's."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = [*_read(path).items(), _new_key()]
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        _write_private(temporary, "".join(_line(*entry) for entry in keys))
        temporary.replace(path)
        _sync_folder(path.parent)


def _write_private(path: Path, content: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def new_root_key() -> str:
    """A fresh root key in the form that SAGE_ROOT_KEY takes."""
    key_id, key = _new_key()
    return f"{key_id}:{base64.b64encode(key).decode()}"
