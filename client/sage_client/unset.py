"""A default that differs from every value, None and the empty string too."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Unset(Enum):
    """The type of `UNSET`: the argument was not given, so the field stays as it is."""

    UNSET = "UNSET"


UNSET: Final = Unset.UNSET
