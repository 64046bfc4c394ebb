"""Counting tokens."""

from __future__ import annotations

from typing import Protocol


class TokenCounter(Protocol):
    """A real tokenizer that needs no network."""

    @property
    def name(self) -> str:
        """Of the encoding. Example: `o200k_base`."""
        ...

    def count(self, text: str) -> int:
        """How many tokens the text has. Must take any valid text of any length."""
        ...
