"""Who said the messages, and which of them a question names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sage_server.engine.memory_index.words import words_of

NOBODY = -2
"""The number of no author, which no row has."""
_AUTHOR_BYTES = 1_000  # the words of a name, and its places in the tables


@dataclass
class _Author:
    number: int
    name: str
    first_name: str
    words: frozenset[str]
    messages: int = 0


class Authors:
    """Everybody who said something, by number. Who has nothing left that is there is named no more.

    A question costs as much as the authors who share a word with it, however many others there are.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, _Author] = {}
        self._by_number: list[_Author] = []
        self._by_word: dict[str, list[_Author]] = {}
        self._first_names: Counter[str] = Counter()

    @property
    def bytes(self) -> int:
        """Memory that they take, about."""
        return _AUTHOR_BYTES * len(self._by_number)

    def spoke(self, name: str) -> int:
        """Count a message of an author; answers with the author's number."""
        author = self._by_name.get(name) or self._new(name)
        if not author.messages:
            self._first_names[author.first_name] += 1
        author.messages += 1
        return author.number

    def withdrew(self, number: int) -> None:
        """A message of the author is no longer there."""
        author = self._by_number[number]
        author.messages -= 1
        if not author.messages:
            self._first_names[author.first_name] -= 1

    def named(self, text: str) -> tuple[int, str]:
        """The only author whom a text names, by all of their name or by a first name that is nobody
        else's."""
        said = _plain_words(text)
        meant = {author.number for word in said for author in self._by_word.get(word, ())}
        named = [author for author in map(self._by_number.__getitem__, meant) if self._is_named(author, said)]
        return (named[0].number, named[0].name) if len(named) == 1 else (NOBODY, "")

    def _new(self, name: str) -> _Author:
        first_name = (name.split() or [""])[0].casefold()
        author = _Author(len(self._by_number), name, first_name, frozenset(_plain_words(name)))
        self._by_name[name] = author
        self._by_number.append(author)
        for word in author.words | {first_name}:
            self._by_word.setdefault(word, []).append(author)
        return author

    def _is_named(self, author: _Author, said: set[str]) -> bool:
        if not author.messages:
            return False
        unique = self._first_names[author.first_name] == 1
        return author.words <= said or (unique and author.first_name in said)


def _plain_words(text: str) -> set[str]:
    """Words as they are compared with names: without case and possessive."""
    return {word.casefold().removesuffix("'s") for word in words_of(text)}
