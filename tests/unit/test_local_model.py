"""What is wrong with a model file is said before anything is served."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sage_server.adapters.tokenizer import O200kCounter
from sage_server.bootstrap.language_models import open_language_models
from sage_server.settings import SettingsError
from support.server import test_settings


async def refusal(path: Path) -> str:
    with pytest.raises(SettingsError) as refused:
        async with open_language_models(test_settings("postgresql://x", llm_gguf=path), O200kCounter()):
            pass
    return str(refused.value)


async def test_a_model_file_must_be_there(tmp_path: Path) -> None:
    assert await refusal(tmp_path / "none.gguf") == "SAGE_LLM_GGUF: there is no such file"
    assert await refusal(tmp_path) == "SAGE_LLM_GGUF: there is no such file"


async def test_a_model_file_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    expected = "SAGE_LLM_GGUF: needs the extra `local` (pip install 'sage-memory[local]')"
    assert await refusal(file) == expected
