"""What every contender can do. The runner knows nothing else about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.peers.workload import Embedder, Memory


class Kind(Enum):
    """What a contender is compared as."""

    SAGE = "Sage"
    PRODUCT = "memory product"
    BY_HAND = "by hand"


@dataclass(frozen=True)
class Place:
    """Where a contender may keep its things."""

    folder: Path
    dsn: str
    """A database of its own in the embedded Postgres, with the extension `vector`."""
    embedder: Embedder
    address: str
    """Of the running Sage server. Empty if it does not take part."""
    api_key: str


class Peer(ABC):
    """A contender. Texts are unique, so they are the names of what was found."""

    key: str
    """Its name in the JSON object, for its database and for its folder."""
    name: str
    kind: Kind
    about: str
    """Where its data is and how it searches, in a few words."""
    bulk_sample = 1000
    """How many of 1,000 memories are timed; the others are filled in past its interface. Less than 1,000 only
    where all of them would take longer than everything else together."""
    single_sample = 20
    """How many of 20 single inserts are timed."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def open(self) -> None:
        """Make the store."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; the folder is removed afterwards."""

    @abstractmethod
    def insert_many(self, user: str, memories: Sequence[Memory]) -> None:
        """Store memories in the fastest documented way. They are found by search when it returns."""

    @abstractmethod
    def insert_one(self, user: str, memory: Memory) -> None:
        """Store one memory. It is found by search when it returns."""

    @abstractmethod
    def search(self, user: str, query: str, k: int, tag: str = "") -> list[str]:
        """The texts of the nearest memories of this user, the nearest first."""

    def fill(self, memories: Sequence[tuple[str, Memory]]) -> None:
        """Store memories of users, untimed, in any way."""
        for user, memory in memories:
            self.insert_one(user, memory)

    def settle(self) -> None:
        """After many inserts, untimed: what the database would do by itself some time later."""
        return
