"""`make test-local` runs these, with the extra `local` in an environment of its own."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("xllamacpp") else ["test_gguf.py"]
