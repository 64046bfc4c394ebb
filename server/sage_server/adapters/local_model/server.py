"""llama.cpp's own server, in threads of this process, for one model file."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from pathlib import Path
from typing import Any

from sage_server.domain.models import ModelName, ModelProvider

LOCAL_PROVIDER = "local"
_CONTEXT = 32_768
"""Tokens. Many models are made for more, which takes more memory than most machines have; one that is made
for less has less."""
_LONGEST_ANSWER = 2_048
"""Tokens. A small model that must keep to a schema may never find an end by itself."""
_SILENT = -1
_LONGEST_NAME = 200
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:@+-]+")


class LocalModelError(Exception):
    """The file cannot be served. The message says why, without the file's name."""


class LocalModelServer:
    """Serves one file on a free loopback port, with OpenAI's protocol, to who has the key. Must be closed.

    It holds its model to a JSON schema (`response_format`). It logs nothing, and has no other pages.
    """

    def __init__(self, server: Any, provider: ModelProvider, model: ModelName) -> None:
        self.provider = provider
        self.model = model
        self._server = server

    @classmethod
    async def start(cls, path: Path) -> LocalModelServer:
        """Load the file and listen. Raises LocalModelError."""
        key = secrets.token_urlsafe(32)
        server = await asyncio.to_thread(_serve, path, key)
        model = _NOT_IN_NAMES.sub("-", path.stem)[:_LONGEST_NAME]
        return cls(
            server,
            ModelProvider(f"{server.listening_address}/v1", key),
            ModelName(LOCAL_PROVIDER, model),
        )

    async def close(self) -> None:
        """Stop listening and give the memory back."""
        await asyncio.to_thread(self._drop)

    def _drop(self) -> None:
        # It has no other way to end than to be let go of.
        self._server = None


def _serve(path: Path, key: str) -> Any:
    if not path.is_file():
        raise LocalModelError("there is no such file")
    try:
        from xllamacpp import CommonParams, Server  # noqa: PLC0415 (needs the extra `local`)
    except ImportError:
        raise LocalModelError("needs the extra `local` (pip install 'sage-memory[local]')") from None
    options = CommonParams()
    options.model.path = str(path)
    options.hostnames = ["127.0.0.1"]
    options.port = 0
    options.api_keys = [key]
    options.n_ctx = _CONTEXT
    options.n_predict = _LONGEST_ANSWER
    # One is left to the server itself: threads of the model wait for each other, so a busy one holds up all.
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 1) - 1)
    options.cache_ram_mib = 0  # prompts are not kept beside the one that is answered
    options.offline = True
    options.ui = options.endpoint_slots = options.endpoint_props = False
    options.verbosity = _SILENT
    try:
        return Server(options)
    except RuntimeError:
        raise LocalModelError("cannot be loaded: it must be a model of text in the format GGUF") from None
