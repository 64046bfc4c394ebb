"""The files that the settings name, looked at before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

from sage_server.settings import Settings, SettingsError


def named_files(settings: Settings) -> dict[str, Path]:
    """Those that are needed, by the names of their settings."""
    files = {
        "SAGE_TLS_CERTIFICATE": settings.tls_certificate,
        "SAGE_TLS_KEY": settings.tls_key,
        "SAGE_TLS_CLIENT_CA": settings.tls_client_ca,
        "SAGE_JWT_KEY_FILE": settings.jwt_key_file,
        "SAGE_LLM_GGUF": settings.llm_gguf,
    }
    return {name: path for name, path in files.items() if path is not None}


def check_files(settings: Settings) -> None:
    """Raises SettingsError, a line for each, if there are some that are not there or not readable."""
    bad = [
        f"{name}: there is no such file, or it cannot be read"
        for name, path in named_files(settings).items()
        if not os.access(path, os.R_OK) or not path.is_file()
    ]
    folder = settings.embedding_path if settings.embedding == "onnx" else None
    if folder is not None and not os.access(folder, os.R_OK | os.X_OK):
        bad.append("SAGE_EMBEDDING_PATH: there is no such folder, or it cannot be read")
    if bad:
        raise SettingsError("\n".join(bad))
