"""The settings and what is written about them."""

from __future__ import annotations

from pathlib import Path

from sage_server.settings import PREFIX, Settings

DOCS = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_every_setting_is_documented_as_the_code_describes_it() -> None:
    text = DOCS.read_text()
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith(f"| `{PREFIX}")}
    assert set(rows) == {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        assert field.description is not None
        assert field.description in rows[f"{PREFIX}{name.upper()}"], name
