"""Keys: the root keys, each user's key ring, and the cipher that seals cells."""

from sage_server.adapters.crypto.key_ring import CachedKeyRing, KeyWrapping
from sage_server.adapters.crypto.root_keys import EnvironmentRootKeys, FileRootKeys, new_root_key

__all__ = ["CachedKeyRing", "EnvironmentRootKeys", "FileRootKeys", "KeyWrapping", "new_root_key"]
