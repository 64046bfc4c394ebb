"""Every place at which a server can be made to die is one where a test lets it die."""

from __future__ import annotations

import ast
from pathlib import Path

import sage_server
from support.turn_deaths import DEATHS


def _names(call: ast.AST) -> set[str]:
    """What a call names as the place where the process is."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return set()
    if call.func.attr not in ("reach", "_failpoint"):
        return set()
    texts = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
    return {text for text in texts if isinstance(text, str)}


def test_no_failpoint_is_without_its_death() -> None:
    (folder,) = sage_server.__path__
    sources = [ast.parse(file.read_text()) for file in Path(folder).rglob("*.py")]
    named = {name for source in sources for node in ast.walk(source) for name in _names(node)}
    died_at = {point.partition(":")[0] for death in DEATHS for point in death.points}
    assert named == died_at
    assert len(named) > 25
