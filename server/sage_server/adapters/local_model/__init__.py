"""A model file (GGUF) that is served in this process."""

from __future__ import annotations

from sage_server.adapters.local_model.server import LOCAL_PROVIDER, LocalModelError, LocalModelServer

__all__ = ["LOCAL_PROVIDER", "LocalModelError", "LocalModelServer"]
