"""Pages of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200

T = TypeVar("T")
Cursor = TypeVar("Cursor")


def page_size(requested: int) -> int:
    """The size to use for a requested one: 0 means the default, too large means the maximum."""
    return min(requested, MAX_PAGE_SIZE) if requested > 0 else DEFAULT_PAGE_SIZE


@dataclass(frozen=True)
class TimeCursor:
    """The last row of a page in an order by time and then id."""

    at: datetime
    id: UUID


@dataclass(frozen=True)
class Page(Generic[T, Cursor]):
    """Some rows and where the next ones begin."""

    rows: Sequence[T]
    next: Cursor | None
