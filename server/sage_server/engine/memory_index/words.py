"""Words of a text, and the terms that stand for them in the keyword index."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import Stemmer

_APOSTROPHE = "\u2019"
# Han and Hiragana put no spaces between words. A character is a word, as in most search engines.
_ALONE = "\u3005\u3007\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Accents and vowel signs belong to the letter before them; `\w` does not know most of them.
_MARKS = "".join(chr(at) for at in range(0x300, 0x2000) if unicodedata.category(chr(at)) in ("Mn", "Mc"))
_LETTERS = rf"[^\W_{_ALONE}](?:[^\W_{_ALONE}]|[{_MARKS}])*"
_WORD = re.compile(rf"[{_ALONE}]|{_LETTERS}(?:['{_APOSTROPHE}]{_LETTERS})*")
_CAPACITY = 200_000
_LONGEST = 40  # what is longer is no word, and not kept
# Articles, pronouns, auxiliaries and prepositions, and what questions begin with: they are in every message
# and say nothing of what is asked.
_STOP_WORDS = """
    a about am an and any are as at be been being but by can could did do does for from had has have he her
    hers him his how i if in into is it its just me my no not of on or our she should so some than that the
    their them then there these they this to was we were what when where which who whom whose why will with
    would you your yours
"""
_STOP = frozenset(_STOP_WORDS.split())
END = "\x01"
"""Stands between two texts where words of several come one after the other."""
_GAPS = {number: " " for number in range(2, 128) if not chr(number).isalnum() and chr(number) != "'"}


def words_of(text: str) -> list[str]:
    """The words of a text as they are spelled, with a plain apostrophe."""
    return [word.replace(_APOSTROPHE, "'") for word in _found(text)]


class Words:
    """Cuts texts into terms. One instance serves a process: its memory of stems makes a word cheap.

    A term is the Snowball stem of a lower-case word without a possessive `'s`; words of the stop list have
    none.
    """

    def __init__(self) -> None:
        self._terms = _Terms()

    def forget(self) -> None:
        """Drop the words that were learnt: they are from what people wrote."""
        self._terms.clear()

    def terms(self, text: str) -> list[str]:
        """The terms of a text, in order, with repeats."""
        return list(filter(None, map(self._terms.__getitem__, _found(text))))

    def stream(self, texts: Sequence[str]) -> list[str]:
        """The words of several texts, END between two texts; a quotation mark may be left on a word.

        A translation and one split are a fifth of what the expression costs. They find the same words in
        ASCII, unless two apostrophes meet.
        """
        plain = [
            text if text.isascii() and "''" not in text and END not in text else " ".join(_found(text))
            for text in texts
        ]
        return f" {END} ".join(plain).translate(_GAPS).split()

    def streamed(self, word: str) -> str:
        """The term of a word of `stream`; empty if it has none."""
        found = _WORD.findall(word) if "'" in word else (word,)
        return self._terms[found[0]] if found else ""

    def spelled(self, text: str) -> dict[str, str]:
        """The distinct terms of a text, each with the first word that it stands for."""
        found: dict[str, str] = {}
        for word in _found(text):
            term = self._terms[word]
            if term:
                found.setdefault(term, word)
        return found


def _found(text: str) -> list[str]:
    """The words of a text. One form of each character: an accent of its own, as in names of files, or two
    letters in one, as in many a PDF, are no other word."""
    return _WORD.findall(text if text.isascii() else unicodedata.normalize("NFKC", text))


class _Terms(dict[str, str]):
    """Terms by word, as it is spelled: the lower case of a text may be cut into other words than the text.
    A dictionary that learns what it does not have is the fastest loop in Python."""

    def __init__(self) -> None:
        super().__init__()
        self._stemmer = Stemmer.Stemmer("english", 0)  # without a cache of its own

    def __missing__(self, word: str) -> str:
        if len(self) >= _CAPACITY:
            self.clear()
        plain = word.lower().replace(_APOSTROPHE, "'").removesuffix("'s")
        term: str = "" if plain in _STOP else self._stemmer.stemWord(plain)
        if len(word) <= _LONGEST:
            self[word] = term
        return term
