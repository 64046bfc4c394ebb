"""Tokens of JSON as models write it, from text that grows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from sage_server.domain.model_output import clean

Token: TypeAlias = tuple[str, str]
"""What it is, and its text. What it is: one of `{}[],:` or one of the names below."""
TEXT = "text"
"""Some of a string, decoded. More follows."""
END = "end"
"""The rest of a string, decoded."""
WORD = "word"
"""A number or a literal."""
OTHER = "other"
"""A character that has no place in JSON."""

# Possessive repeats everywhere: nothing here may go back, so that the time is linear.
_OUTSIDE = re.compile(r"""\s*+(?:([{}\[\],:])|(["'])|([\w.+\-])|(//|\#|/\*)|(/\Z)|(.))?+""", re.DOTALL)
_STRUCTURE, _QUOTE, _WORD, _COMMENT, _HALF_COMMENT, _OTHER = range(1, 7)
_WORDS = re.compile(r"[\w.+\-]++")
_BLOCK_END = re.compile(r"\*(?:/|\Z)")
_HEX = "[0-9a-fA-F]"
_HIGH = rf"[dD][89abAB]{_HEX}{{2}}"
_BEGUN = rf"(?:\\(?:u{_HEX}{{0,3}})?)?\Z"
# An escape that is complete: the first half of a surrogate pair is not while the second may still come.
_ESCAPE = rf"\\(?:[^u]|u(?:{_HIGH}(?!{_BEGUN})|(?!{_HIGH}){_HEX}{{4}}|(?!{_HEX}{{4}}|{_HEX}{{0,3}}\Z)))"
_RUNS = {quote: re.compile(rf"(?:[^{quote}\\]++|{_ESCAPE})++") for quote in "\"'"}
_LOOSE = re.compile(rf"""(\\(?:["\\/bfnrt]|u{_HEX}{{4}}))|\\'|[\\"]""")


class Lexer:
    """Fed with pieces of a text, tells its tokens. What one piece leaves open the next one continues.

    Beyond JSON it knows single quotes, comments (`//`, `/* */`, `#`), line breaks in strings and backslashes
    that escape nothing. Before the first token it passes over everything up to a `{`.
    """

    def __init__(self) -> None:
        self._prose = True
        self._rest = ""
        self._quote = ""
        self._word: list[str] = []
        self._comment = ""

    def feed(self, piece: str) -> Iterator[Token]:
        """The tokens that end, or the parts of strings that come, in this piece."""
        text = self._rest + clean(piece)
        self._rest = ""
        at = 0
        while at < len(text):
            token, at = self._next(text, at)
            if token is not None:
                yield token

    def skip(self) -> None:
        """Pass over everything up to the next `{`. May be called between tokens, but not within a string."""
        self._prose = True

    def _next(self, text: str, at: int) -> tuple[Token | None, int]:
        if self._prose:
            return self._in_prose(text, at)
        if self._quote:
            return self._in_string(text, at)
        if self._word:
            return self._in_word(text, at)
        if self._comment:
            return self._in_comment(text, at)
        return self._outside(text, at)

    def _in_prose(self, text: str, at: int) -> tuple[Token | None, int]:
        brace = text.find("{", at)
        if brace < 0:
            return None, len(text)
        self._prose = False
        return ("{", "{"), brace + 1

    def _outside(self, text: str, at: int) -> tuple[Token | None, int]:
        match = _OUTSIDE.match(text, at)
        assert match is not None
        kind, end = match.lastindex, match.end()
        if kind is None:
            return None, end
        found = match[kind]
        if kind == _STRUCTURE:
            return (found, found), end
        if kind == _QUOTE:
            self._quote = found
        elif kind == _WORD:
            return self._in_word(text, end - 1)
        elif kind == _COMMENT:
            self._comment = found
        elif kind == _HALF_COMMENT:
            self._rest = found
        else:
            return (OTHER, found), end
        return None, end

    def _in_word(self, text: str, at: int) -> tuple[Token | None, int]:
        match = _WORDS.match(text, at)
        end = match.end() if match else at
        self._word.append(text[at:end])
        if end == len(text):
            return None, end
        word = "".join(self._word)
        self._word.clear()
        return (WORD, word), end

    def _in_comment(self, text: str, at: int) -> tuple[Token | None, int]:
        if self._comment == "/*":
            match = _BLOCK_END.search(text, at)
            if match is not None and match[0] == "*":
                self._rest = "*"
            end = match.end() if match else len(text)
            over = match is not None and match[0] == "*/"
        else:
            end = text.find("\n", at) + 1
            over = end > 0
        if over:
            self._comment = ""
        return None, end or len(text)

    def _in_string(self, text: str, at: int) -> tuple[Token | None, int]:
        run = _RUNS[self._quote].match(text, at)
        end = run.end() if run else at
        decoded = _decoded(run[0]) if run else ""
        if end < len(text) and text[end] == self._quote:
            self._quote = ""
            return (END, decoded), end + 1
        # What is left is the beginning of an escape.
        self._rest = text[end:]
        return (TEXT, decoded) if run else None, len(text)


def _decoded(run: str) -> str:
    if "\\" not in run:
        return run
    try:
        decoded: str = json.loads(f'"{run}"', strict=False)
    except ValueError:
        decoded = json.loads(f'"{_LOOSE.sub(_strict, run)}"', strict=False)
    return clean(decoded)


def _strict(loose: re.Match[str]) -> str:
    """What json takes for the same. A backslash that escapes nothing stands for itself, as in a formula."""
    if loose[1]:
        return loose[1]
    return "'" if loose[0] == "\\'" else "\\" + loose[0]
