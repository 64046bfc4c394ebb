"""Whoever locks several turns locks them in one order, or two of them wait for each other for ever."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module

import pytest

from sage_server.adapters import postgres
from sage_server.adapters.postgres.database import Statement

_LOCKS_TURNS = re.compile(
    r"FROM turns\b(?P<which>(?:(?!\bFROM\b).)*?)\bFOR (?:NO KEY )?UPDATE(?P<skips> SKIP LOCKED)?", re.DOTALL
)
_ONE = re.compile(r"turns\.id = \$\d+")


def _statements() -> Iterator[tuple[str, Statement]]:
    for module in pkgutil.walk_packages(postgres.__path__, f"{postgres.__name__}."):
        if ".migrations" in module.name:
            continue
        for name, value in vars(import_module(module.name)).items():
            for key, statement in (value if isinstance(value, dict) else {"": value}).items():
                if isinstance(statement, Statement):
                    yield f"{module.name.rpartition('.')[2]}.{name}{key}", statement


LOCKS = [
    pytest.param(found["which"], id=name)
    for name, statement in _statements()
    for found in _LOCKS_TURNS.finditer(statement.sql)
    if not found["skips"]
]


def test_the_locks_on_turns_are_found() -> None:
    assert len(LOCKS) >= 6


@pytest.mark.parametrize("which", LOCKS)
def test_turns_are_locked_one_alone_or_in_the_order_of_their_first_events(which: str) -> None:
    assert _ONE.search(which) or "ORDER BY turns.first_event" in which
