"""The encodings of pages."""

from __future__ import annotations

import re

_CHARSET = re.compile(
    rb"""<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([\w:.-]+)|^\s*<\?xml\b[^>]*?\bencoding\s*=\s*["']([\w:.-]+)""",
    re.IGNORECASE,
)
# As in the Encoding Standard, where the names of ASCII and Latin-1 mean windows-1252. Only these: among the
# encodings that Python knows are some that take quadratic time.
_WINDOWS_1252 = ("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "latin1", "latin-1", "l1", "cp1252")
_ENCODINGS = {
    **dict.fromkeys(_WINDOWS_1252, "cp1252"),
    **{f"windows-{number}": f"cp{number}" for number in range(1250, 1259)},
    **{f"iso-8859-{number}": f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("gb2312", "gbk", "gb18030"), "gb18030"),
    **dict.fromkeys(("utf-8", "utf8"), "utf-8"),
    "iso-8859-9": "cp1254",
    "euc-jp": "euc-jp",
    "iso-2022-jp": "iso2022-jp",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "big5": "big5hkscs",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "macintosh": "mac-roman",
}


def named_encoding(label: str) -> str | None:
    """Python's name of the encoding; None for one that is not known, or not taken."""
    return _ENCODINGS.get(label.lower())


def declared_encoding(content: bytes) -> str | None:
    """What a page declares within its first 1024 bytes; None if that is nothing known."""
    found = _CHARSET.search(content, 0, 1024)
    return named_encoding((found[1] or found[2]).decode("latin-1")) if found else None
