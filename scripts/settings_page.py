"""The rows of docs/settings.md are made from the types that read the settings.

Where a row stands, and the text around the tables, is written by hand: put `| `SAGE_NEW` |` into the table
where a new setting belongs, and run `make generate`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Literal, get_args, get_origin

import annotated_types
from proxy import PREFIX as PROXY_PREFIX
from proxy import ProxySettings
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings
from typer.core import TyperOption
from typer.main import get_command

from sage_client.cli.app import app
from sage_server.settings import PREFIX, Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
_ROW = re.compile(r"^\| `(SAGE_\w+)` \|.*$", re.MULTILINE)


def rows() -> dict[str, str]:
    """The row of every setting: of the server, of the proxy, of the command line."""
    found = dict(_fields(Settings, PREFIX))
    found.update(_fields(ProxySettings, PROXY_PREFIX))
    found.update(_options())
    return found


def page(text: str) -> str:
    """The page with its rows as the code has them. Exits if one is missing or knows no setting."""
    known = rows()
    placed = _ROW.findall(text)
    if missing := sorted(known.keys() - set(placed)):
        sys.exit(f"{PAGE.name}: put a row where it belongs for {', '.join(missing)}")
    if unknown := sorted(set(placed) - known.keys()):
        sys.exit(f"{PAGE.name}: there is no setting {', '.join(unknown)}")
    return _ROW.sub(lambda row: known[row[1]], text)


def _fields(settings: type[BaseSettings], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in settings.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        yield variable, _row(variable, field.default, _sentences(field))


def _options() -> Iterator[tuple[str, str]]:
    for option in get_command(app).params:
        if isinstance(option, TyperOption) and isinstance(option.envvar, str):
            text = f"{option.help} As `{option.opts[-1]}`."
            yield option.envvar, _row(option.envvar, option.default, text)


def _row(name: str, default: object, meaning: str) -> str:
    return f"| `{name}` | {_shown(default)} | {meaning} |"


def _shown(default: object) -> str:
    match default:
        case None | "" | SecretStr():
            return ""
        case bool():
            return f"`{str(default).lower()}`"
        case Enum():
            return f"`{default.value}`"
    return f"`{default}`"


def _sentences(field: FieldInfo) -> str:
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    # A description that explains each choice has named them.
    listed = ", ".join(f"`{choice}`" for choice in choices)
    named = all(f"`{choice}`" in (field.description or "") for choice in choices)
    parts = [field.description or "", "" if named else f"One of {listed}.", _bounds(field)]
    return " ".join(part for part in parts if part)


def _bounds(field: FieldInfo) -> str:
    low = high = ""
    for bound in field.metadata:
        match bound:
            case annotated_types.Ge(ge=value) if value != 0:
                low = f"at least {value}"
            case annotated_types.Gt(gt=value):
                low = f"more than {value}"
            case annotated_types.Le(le=value):
                high = f"at most {value}"
    text = " and ".join(part for part in (low, high) if part)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def main() -> None:
    """Write the page, or check that it is what the code gives."""
    text = PAGE.read_text(encoding="utf-8")
    match sys.argv[1:]:
        case ["generate"]:
            PAGE.write_text(page(text), encoding="utf-8")
        case ["check"]:
            if page(text) != text:
                sys.exit(f"docs/{PAGE.name} is not what the settings are. Run `make generate` and commit it.")
        case _:
            sys.exit("usage: settings_page.py generate|check")


if __name__ == "__main__":
    main()
