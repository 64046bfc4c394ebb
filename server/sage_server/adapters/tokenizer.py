"""Token counts from a real tokenizer whose tables come with its package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_MODULE = "bpe_openai._bindings"


class O200kCounter:
    """Counts tokens of o200k_base, the encoding of current OpenAI models. Works offline."""

    name = "o200k_base"

    def __init__(self) -> None:
        self._tokenizer = _load_bindings().tokenizer_for_encoding(self.name)

    def count(self, text: str) -> int:
        """How many tokens the text has."""
        return int(self._tokenizer.count(text))


def _load_bindings() -> Any:
    """The compiled part of bpe-openai alone. Its Python part reads every encoding's table into dicts at
    import, which costs most of a second and some 70 MB, and does not expose `count`."""
    package = importlib.util.find_spec("bpe_openai")
    assert package is not None
    assert package.origin is not None
    (library,) = Path(package.origin).parent.glob("_bindings*.*[do]")
    spec = importlib.util.spec_from_file_location(_MODULE, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
