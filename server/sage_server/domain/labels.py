"""Labels and tags: short names that are compared without regard to case and to space around them."""

from __future__ import annotations

import unicodedata


def normalise_label(text: str) -> str:
    """The form in which labels are compared."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()
