"""One page of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page, and the token of the next one: empty on the last page."""

    items: tuple[T, ...]
    next_page_token: str
